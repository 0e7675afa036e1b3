//! A command to be run for many things, with places for what differs. No shell sees what is put there.
//! Pure.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A place as it is written, `{key}` for example, and what is put there.
pub type Place<'v> = (&'static str, &'v [u8]);

/// A program and what it is called with.
#[derive(Debug, Clone)]
pub struct Template {
    /// The program; nothing is replaced in its name.
    pub program: OsString,
    /// Its arguments, in which places are replaced wherever they stand.
    pub arguments: Vec<OsString>,
}

impl Template {
    /// The arguments with these places filled. What was put in is not looked at again.
    #[must_use]
    pub fn arguments_with(&self, places: &[Place<'_>]) -> Vec<OsString> {
        self.arguments.iter().map(|argument| fill(argument, places)).collect()
    }
}

fn fill(argument: &OsStr, places: &[Place<'_>]) -> OsString {
    let mut rest = argument.as_bytes();
    let mut filled = Vec::with_capacity(rest.len());
    while let Some(first) = rest.first() {
        match places.iter().find(|(place, _)| rest.starts_with(place.as_bytes())) {
            Some((place, value)) => {
                filled.extend_from_slice(value);
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
        let places: [Place<'_>; 2] = [("{key}", b"a{payload}"), ("{payload}", b"\xff $(id)")];
        let filled = |text: &str| fill(OsStr::new(text), &places).into_vec();
        assert_eq!(filled("{key}"), b"a{payload}");
        assert_eq!(filled("x={payload};{key}{key}"), b"x=\xff $(id);a{payload}a{payload}");
        for same in ["", "{Key}", "{key", "key}", "{}", "{{key"] {
            assert_eq!(filled(same), same.as_bytes());
        }
        assert_eq!(filled("{{key}}"), b"{a{payload}}");
    }
}
