//! A command to be run for many things, with places for what differs. No shell sees what is put there.
//! Pure.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use thiserror::Error;

/// Programs whose `-c` takes a script.
const SHELLS: [&str; 8] = ["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish"];

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

/// A place in the script of a shell's `-c`.
#[derive(Debug, Error)]
#[error(
    "{place} stands within the script of {shell} -c, which would run what is put there as a part of \
    itself: write {shell} -c 'echo \"$1\"' {shell} {place} instead, or use the variables that the command \
    has in its environment; --allow-shell-templates takes it as it is"
)]
pub struct ShellTemplate {
    place: String,
    shell: &'static str,
}

impl Template {
    /// Refuses places in scripts: what is put there is somebody else's.
    ///
    /// # Errors
    /// The first of these places that stands in the script of a shell's `-c`.
    pub fn refuse_scripts(&self, places: &[&str]) -> Result<(), ShellTemplate> {
        let words = std::iter::once(&self.program).chain(&self.arguments);
        let words: Vec<&OsStr> = words.map(OsString::as_os_str).collect();
        // A shell may stand behind `env`, `nice` and the like.
        for (at, word) in words.iter().enumerate() {
            let found = shell(word).zip(script(&words[at + 1..]));
            let Some((shell, script)) = found else {
                continue;
            };
            if let Some(place) = places.iter().find(|place| has(script, place)) {
                return Err(ShellTemplate { place: (*place).to_owned(), shell });
            }
        }
        Ok(())
    }

    /// Whether a place stands in an argument.
    #[must_use]
    pub fn has_place(&self, place: &str) -> bool {
        self.arguments.iter().any(|argument| has(argument, place))
    }

    /// The arguments with these places filled. What was put in is not looked at again.
    #[must_use]
    pub fn arguments_with(&self, places: &[Place<'_>]) -> Vec<OsString> {
        self.arguments.iter().map(|argument| fill(argument, places)).collect()
    }
}

/// The name of a shell, in whatever directory it is.
fn shell(word: &OsStr) -> Option<&'static str> {
    let name = Path::new(word).file_name()?;
    SHELLS.into_iter().find(|shell| name == *shell)
}

/// The script of a shell that is called with these words: the first of them behind the options, if `c` is
/// one of these.
fn script<'w>(words: &[&'w OsStr]) -> Option<&'w OsStr> {
    let mut has_c = false;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"--" | b"-" => return words.next().copied().filter(|_| has_c),
            b"--rcfile" | b"--init-file" => _ = words.next(),
            [b'-', b'-', ..] => {}
            [sign @ (b'-' | b'+'), options @ ..] => {
                has_c |= *sign == b'-' && options.contains(&b'c');
                if options.iter().any(|option| matches!(option, b'o' | b'O')) {
                    // The name of a setting follows.
                    words.next();
                }
            }
            _ => return Some(*word).filter(|_| has_c),
        }
    }
    None
}

fn has(argument: &OsStr, place: &str) -> bool {
    argument.as_bytes().windows(place.len()).any(|part| part == place.as_bytes())
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

    /// A place in a script is refused, however the shell is called; a place behind it is an argument.
    #[test]
    fn scripts_have_no_places() {
        let check = |words: &str| {
            let mut words = words.split(' ').map(|word| OsString::from(word.replace('_', " ")));
            let template = Template { program: words.next().unwrap(), arguments: words.collect() };
            template.refuse_scripts(&["{key}", "{payload}"]).map_err(|error| error.to_string())
        };
        for refused in [
            "sh -c echo_{key}",
            "/bin/bash -c {payload}",
            "dash -ec echo_{key}",
            "zsh -lc x{key}y",
            "ksh -c -e echo_{key}",
            "ash -e -c -- echo_{key}",
            "bash -o pipefail -c echo_{key}",
            "bash --norc -euo pipefail -c echo_{key}",
            "bash --rcfile x -c echo_{key}",
            "busybox sh -c echo_{key}",
            "env A=b sh -c echo_{key}",
            "/usr/bin/env nice -n 5 /bin/sh -c echo_{key}",
            "timeout 5 sh -c echo_{key} sh {key}",
        ] {
            let told = check(refused).unwrap_err();
            assert!(told.contains("--allow-shell-templates"), "{refused}: {told}");
        }
        assert!(check("/bin/sh -c echo_{key}").unwrap_err().contains("'echo \"$1\"' sh {key}"));
        for taken in [
            "sh -c echo_\"$1\" sh {key}",
            "env bash -ec echo_\"$@\" bash {key} {payload}",
            "sh script.sh -c {key}",
            "sh -e script.sh {key}",
            "sh -c",
            "./check -c {key}",
            "sh -c echo_{other}",
            "sha256sum -- {key}",
        ] {
            assert_eq!(check(taken), Ok(()), "{taken}");
        }
    }

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
