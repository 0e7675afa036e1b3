//! The command to be run, with places for a job's key and payload. No shell sees what is put there.
//! Pure.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::wire::Job;

/// What is replaced, and by what of a job.
const PLACES: [(&[u8], Field); 2] =
    [(b"{key}", |job| &job.key), (b"{payload}", |job| &job.payload)];

type Field = fn(&Job) -> &[u8];

/// A program and what it is called with.
#[derive(Debug, Clone)]
pub struct Template {
    /// The program; nothing is replaced in its name.
    pub program: OsString,
    /// Its arguments, in which `{key}` and `{payload}` are replaced wherever they stand.
    pub arguments: Vec<OsString>,
}

impl Template {
    /// The arguments for `job`. What was put in is not looked at again.
    #[must_use]
    pub fn arguments_for(&self, job: &Job) -> Vec<OsString> {
        self.arguments.iter().map(|argument| fill(argument, job)).collect()
    }
}

fn fill(argument: &OsStr, job: &Job) -> OsString {
    let mut rest = argument.as_bytes();
    let mut filled = Vec::with_capacity(rest.len());
    while let Some(first) = rest.first() {
        match PLACES.iter().find(|(place, _)| rest.starts_with(place)) {
            Some((place, field)) => {
                filled.extend_from_slice(field(job));
                rest = &rest[place.len()..];
            }
            None => {
                filled.push(*first);
                rest = &rest[1..];
            }
        }
    }
    OsString::from_vec(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places are filled once, wherever they stand; what only looks like one stays.
    #[test]
    fn places_are_filled() {
        let job =
            Job { attempt: None, key: b"a{payload}".to_vec(), payload: b"\xff $(id)".to_vec() };
        let filled = |text: &str| fill(OsStr::new(text), &job).into_vec();
        assert_eq!(filled("{key}"), b"a{payload}");
        assert_eq!(filled("x={payload};{key}{key}"), b"x=\xff $(id);a{payload}a{payload}");
        for same in ["", "{Key}", "{key", "key}", "{}", "{{key"] {
            assert_eq!(filled(same), same.as_bytes());
        }
        assert_eq!(filled("{{key}}"), b"{a{payload}}");
    }
}
