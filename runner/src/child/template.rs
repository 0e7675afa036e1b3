//! A command to run for many things, with placeholders for what differs. No shell sees the values. Pure.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Programs whose `-c` takes a script.
const SHELLS: [&str; 11] =
    ["sh", "bash", "rbash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh"];

/// A placeholder as it is written, for example `{key}`, and its value.
pub type Place<'v> = (&'static str, &'v [u8]);

#[derive(Debug, Clone)]
pub struct Template {
    /// The program; nothing is replaced in its name.
    pub program: OsString,
    /// Its arguments, in which placeholders are replaced wherever they occur.
    pub arguments: Vec<OsString>,
}

impl Template {
    /// Refuses placeholders in the script of a shell's `-c`, because their values come from outside. The error names
    /// the first one, and says what to write instead. Scripts of other programs are not recognised.
    pub fn refuse_scripts(&self, places: &[&str]) -> Result<(), String> {
        let words: Vec<_> = std::iter::once(&self.program).chain(&self.arguments).collect();
        // A shell may stand behind `env`, `nice` and the like.
        for (at, word) in words.iter().enumerate() {
            let Some(shell) = Path::new(word).file_name().and_then(OsStr::to_str) else { continue };
            let script = SHELLS.contains(&shell).then(|| script(&words[at + 1..])).flatten();
            let place = script.and_then(|script| places.iter().find(|place| has(script, place)));
            if let Some(place) = place {
                return Err(refusal(shell, place));
            }
        }
        Ok(())
    }

    /// Whether a placeholder occurs in an argument.
    #[must_use]
    pub fn has_place(&self, place: &str) -> bool {
        self.arguments.iter().any(|argument| has(argument, place))
    }

    /// The arguments with these placeholders filled. Filled-in values are not searched again.
    #[must_use]
    pub fn arguments_with(&self, places: &[Place<'_>]) -> Vec<OsString> {
        self.arguments.iter().map(|argument| fill(argument, places)).collect()
    }
}

fn refusal(shell: &str, place: &str) -> String {
    let value = if place == "{paths}" { "$@" } else { "$1" };
    format!(
        "{place} stands within the script of {shell} -c, which would execute what is put there: write \
         sh -c 'echo \"{value}\"' sh {place} instead, or use the variables that the command has in its environment; \
         --allow-shell-templates takes it as it is"
    )
}

/// The script of a shell that is called with these words: the first word after the options, if `c` is among these.
fn script<'w>(words: &[&'w OsString]) -> Option<&'w OsString> {
    let (mut has_c, mut words) = (false, words.iter());
    while let Some(word) = words.next() {
        match word.as_bytes() {
            [b'-', b'-', ..] => {}
            [b'-' | b'+', letters @ ..] => {
                has_c |= letters.contains(&b'c');
                if matches!(letters.last(), Some(b'o' | b'O')) {
                    // The name of a setting follows.
                    words.next();
                }
            }
            _ => return has_c.then_some(*word),
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

    fn check(words: &str) -> Result<(), String> {
        let mut words = words.split(' ').map(|word| OsString::from(word.replace('_', " ")));
        let template = Template { program: words.next().unwrap(), arguments: words.collect() };
        template.refuse_scripts(&["{key}", "{payload}", "{paths}"])
    }

    /// A placeholder in a shell's script is refused, however the shell is called; one after the script is an argument.
    #[test]
    fn scripts_have_no_places() {
        for refused in [
            "sh -c echo_{key}",
            "/bin/bash -c {payload}",
            "dash -ec echo_{key}",
            "zsh -lc x{key}y",
            "ash -e -c -- echo_{key}",
            "bash --norc -euo pipefail -c echo_{key}",
            "/usr/bin/env A=b nice -n 5 busybox sh -c echo_{key}",
            "timeout 5 sh -c echo_{key} sh {key}",
            "fish -c echo_{key}",
        ] {
            let error = check(refused).unwrap_err();
            assert!(error.contains("sh -c 'echo \"$1\"' sh {"), "{refused}: {error}");
        }
        assert!(check("bash -c echo_{paths}").unwrap_err().contains("'echo \"$@\"' sh {paths}"));
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

    /// Placeholders are filled once, wherever they occur; what only looks like one stays.
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
