//! A command to be run for many things, with places for what differs. No shell sees what is put there.
//! Pure.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Programs whose `-c` takes a script.
const SHELLS: [&str; 11] =
    ["sh", "bash", "rbash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh"];

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
    /// Refuses places in scripts: what is put there is somebody else's. The error names the first of these places
    /// that stands in the script of a shell's `-c`, or of what takes one like it, and says what to write instead.
    pub fn refuse_scripts(&self, places: &[&str]) -> Result<(), String> {
        let words = std::iter::once(&self.program).chain(&self.arguments);
        let words: Vec<&OsStr> = words.map(OsString::as_os_str).collect();
        // A shell may stand behind `env`, `nice` and the like.
        for (at, word) in words.iter().enumerate() {
            let Some(program) = Path::new(word).file_name().and_then(OsStr::to_str) else {
                continue;
            };
            for script in scripts(program, &words[at + 1..]) {
                if let Some(place) = places.iter().find(|place| has(script, place)) {
                    return Err(refusal(program, place));
                }
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

fn refusal(program: &str, place: &str) -> String {
    let is_many = place == "{paths}";
    let (value, argv) = if is_many { ("$@", "$argv") } else { ("$1", "$argv[1]") };
    let instead = match program {
        "env" => "each word as an argument of its own, without -S,".to_owned(),
        "fish" | "csh" | "tcsh" => format!("{program} -c 'echo \"{argv}\"' {place}"),
        "su" | "runuser" => format!("{program} USER -c 'echo \"{value}\"' sh {place}"),
        "flock" => format!("flock FILE sh -c 'echo \"{value}\"' sh {place}"),
        "sg" | "script" => format!("sh -c 'echo \"{value}\"' sh {place}, without {program},"),
        shell => format!("{shell} -c 'echo \"{value}\"' {shell} {place}"),
    };
    format!(
        "{place} stands within a script of {program} (-c, -S, eval), which would run what is put there as a part of \
        itself: write {instead} instead, or use the variables that the command has in its environment; \
        --allow-shell-templates takes it as it is"
    )
}

/// Which of a program's arguments are scripts, or become a part of one.
fn scripts<'w>(program: &str, words: &[&'w OsStr]) -> Vec<&'w OsStr> {
    match program {
        "env" => split_strings(words),
        "su" | "runuser" | "script" => commands(words),
        "flock" => flock_command(words),
        "sg" => group_command(words),
        shell if SHELLS.contains(&shell) => shell_scripts(words, shell == "fish"),
        _ => Vec::new(),
    }
}

/// The script of `flock`, which takes one as the last word, behind a `-c` that follows its file.
fn flock_command<'w>(words: &[&'w OsStr]) -> Vec<&'w OsStr> {
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"-w" | b"--timeout" | b"--wait" | b"-E" | b"--conflict-exit-code" => _ = words.next(),
            [b'-', _, ..] => {}
            _ => break,
        }
    }
    let is_script = matches!(words.next().map(OsStr::as_bytes), Some(b"-c" | b"--command"));
    words.next().filter(|_| is_script).into_iter().collect()
}

/// The script of `sg`, which stands behind the group, with or without a `-c`.
fn group_command<'w>(words: &[&'w OsStr]) -> Vec<&'w OsStr> {
    let is_script = |word: &&&OsStr| !matches!(word.as_bytes(), b"-" | b"-c");
    words.iter().filter(is_script).skip(1).take(1).copied().collect()
}

/// The scripts of a shell that is called with these words: the first of them behind the options, if `c` is
/// one of these, with all that it may make a script of; and what fish takes as an option's value.
fn shell_scripts<'w>(words: &[&'w OsStr], is_fish: bool) -> Vec<&'w OsStr> {
    let (mut has_c, mut found) = (false, Vec::new());
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"--" | b"-" => break,
            b"--rcfile" | b"--init-file" => _ = words.next(),
            [b'-', b'-', ..] => {
                let name =
                    if word.as_bytes().starts_with(b"--i") { "init-command" } else { "command" };
                take_value(word, &mut words, b'c', name, &mut found);
            }
            [b'-', .., b'C'] if is_fish => found.extend(words.next()),
            [sign @ (b'-' | b'+'), options @ ..] => {
                has_c |= *sign == b'-' && options.contains(&b'c');
                found.push(word);
                if options.iter().any(|option| matches!(option, b'o' | b'O')) {
                    // The name of a setting follows.
                    words.next();
                }
            }
            _ if has_c => return [found, script_and_arguments(word, words)].concat(),
            _ => return found,
        }
    }
    match words.next().filter(|_| has_c) {
        Some(script) => [found, script_and_arguments(script, words)].concat(),
        None => found,
    }
}

/// A script, and its arguments if it may make scripts of them.
fn script_and_arguments<'w>(
    script: &'w OsStr,
    rest: impl Iterator<Item = &'w OsStr>,
) -> Vec<&'w OsStr> {
    let makes_scripts = makes_scripts(script);
    std::iter::once(script).chain(rest.filter(|_| makes_scripts)).collect()
}

/// Whether a script may run its arguments: it has `eval`, or calls a shell with a script that has a variable.
fn makes_scripts(script: &OsStr) -> bool {
    let is_between = |byte: &u8| !byte.is_ascii_alphanumeric() && *byte != b'_';
    if script.as_bytes().split(is_between).any(|word| word == b"eval") {
        return true;
    }
    let ends_word = |byte: &u8| byte.is_ascii_whitespace() || b"'\";&|()`".contains(byte);
    let words = script.as_bytes().split(ends_word).filter(|word| !word.is_empty());
    let words: Vec<&OsStr> = words.map(OsStr::from_bytes).collect();
    // A quoted script is several words here: a variable in any of them is taken for one of its.
    (0..words.len()).any(|at| {
        let program = Path::new(words[at]).file_name().and_then(OsStr::to_str).unwrap_or_default();
        let behind = &words[at + 1..];
        !scripts(program, behind).is_empty() && behind.iter().any(|word| has(word, "$"))
    })
}

/// What `env -S` takes apart, and the scripts of the program that is in it: the words behind are further
/// arguments of that one.
fn split_strings<'w>(words: &[&'w OsStr]) -> Vec<&'w OsStr> {
    let (mut found, mut behind) = (Vec::new(), Vec::new());
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"-u" | b"--unset" | b"-C" | b"--chdir" => _ = words.next(),
            [b'-', ..] => take_value(word, &mut words, b'S', "split-string", &mut found),
            assignment if assignment.contains(&b'=') => {}
            _ => {
                behind.push(word);
                behind.extend(words.by_ref());
            }
        }
    }
    let parts = found.iter().flat_map(|string| string.as_bytes().split(u8::is_ascii_whitespace));
    let mut parts = parts.filter(|part| !part.is_empty()).map(OsStr::from_bytes);
    if let Some(program) = parts.next().map(Path::new).and_then(Path::file_name) {
        let words: Vec<_> = parts.chain(behind).collect();
        found.extend(scripts(&program.to_string_lossy(), &words));
    }
    found
}

/// The scripts of `su`, whose options may stand behind the user.
fn commands<'w>(words: &[&'w OsStr]) -> Vec<&'w OsStr> {
    let mut found = Vec::new();
    for name in ["command", "session-command"] {
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            take_value(word, &mut words, b'c', name, &mut found);
        }
    }
    // What a script makes scripts of may be any of the words behind it.
    if found.iter().any(|script| makes_scripts(script)) { words.to_vec() } else { found }
}

/// Takes the value of an option, within its word or behind it, if the word is that option.
fn take_value<'w>(
    word: &'w OsStr,
    rest: &mut impl Iterator<Item = &'w OsStr>,
    short: u8,
    long: &str,
    found: &mut Vec<&'w OsStr>,
) {
    let is_joined = match word.as_bytes() {
        [b'-', b'-', name @ ..] => {
            let end = name.iter().position(|byte| *byte == b'=');
            let option = &name[..end.unwrap_or(name.len())];
            let is_it = !option.is_empty() && long.as_bytes().starts_with(option);
            is_it.then_some(end.is_some())
        }
        [b'-', letters @ ..] => {
            let at = letters.iter().position(|letter| *letter == short);
            at.map(|at| at + 1 < letters.len())
        }
        _ => None,
    };
    match is_joined {
        Some(true) => found.push(word),
        Some(false) => found.extend(rest.next()),
        None => {}
    }
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

    /// What is behind a string that is split, or a script with `eval`, may be a part of a script.
    #[test]
    fn words_behind_may_be_scripts() {
        for refused in [
            "env -S sh_-c {key}",
            "env -S/bin/sh_-c {key}",
            "env -vS sh_-ec {key}",
            "su root -c eval_$1 sh {key}",
        ] {
            assert!(check(refused).is_err(), "{refused}");
        }
        for fine in ["env -S sh_-c_x sh {key}", "env -S program {key}", "su root -c x sh {key}"] {
            assert_eq!(check(fine), Ok(()), "{fine}");
        }
    }

    /// A place in a script is refused, however the shell is called; a place behind it is an argument.
    #[test]
    fn scripts_have_no_places() {
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
            "fish --command=echo_{key}",
            "fish --command echo_{key}",
            "fish -cecho_{key}",
            "csh -fc echo_{key}",
            "tcsh -c echo_{key}",
            "env -S sh_-c_'echo_{key}'",
            "env -i -u A B=c -Sprogram_{key} x",
            "/usr/bin/env --split-string=program_{key}",
            "su nobody -c echo_{key}",
            "su - nobody --command=echo_{key}",
            "su -lc echo_{key} nobody",
            "runuser -u nobody --session-command echo_{key}",
            "sh -c eval_\"$1\" sh {key}",
            "sh -c x;eval_$* -- sh {payload}",
        ] {
            let error = check(refused).unwrap_err();
            assert!(error.contains("--allow-shell-templates"), "{refused}: {error}");
        }
        for (refused, instead) in [
            ("/bin/sh -c echo_{key}", "sh -c 'echo \"$1\"' sh {key} instead"),
            ("bash -c echo_{paths}", "bash -c 'echo \"$@\"' bash {paths} instead"),
            ("fish -c echo_{key}", "fish -c 'echo \"$argv[1]\"' {key} instead"),
            ("tcsh -c echo_{paths}", "tcsh -c 'echo \"$argv\"' {paths} instead"),
            ("su x -c echo_{key}", "su USER -c 'echo \"$1\"' sh {key} instead"),
            ("env -S x_{key}", "without -S"),
        ] {
            let error = check(refused).unwrap_err();
            assert!(error.contains(instead), "{error}");
        }
        for taken in [
            "sh -c echo_\"$1\" sh {key}",
            "env bash -ec echo_\"$@\" bash {key} {payload}",
            "sh script.sh -c {key}",
            "sh -e script.sh {key}",
            "sh -c",
            "./check -c {key}",
            "sh -c echo_{other}",
            "sha256sum -- {key}",
            "env rsync -S {key}",
            "env -Sprogram_-x {key}",
            "su nobody -c echo_\"$1\" sh {key}",
            "fish -c echo_$argv[1] {key}",
            "sh -c evaluate_\"$1\" sh {key}",
            "csh script.csh -c {key}",
        ] {
            assert_eq!(check(taken), Ok(()), "{taken}");
        }
    }

    /// Other programs take scripts, too, and a script may make one of its arguments.
    #[test]
    fn scripts_of_other_programs_have_no_places() {
        for refused in [
            "flock -w 5 /lock -c echo_{key}",
            "flock /lock --command echo_{key}",
            "flock /lock sh -c echo_{key}",
            "sg group -c echo_{key}",
            "sg - group echo_{key}",
            "script -qec echo_{key} /dev/null",
            "script --command=echo_{key}",
            "sh -c sh_-c_\"$1\" sh {key}",
            "bash -c exec_/bin/sh_-ec_'echo_$1' bash {payload}",
            "sh -c flock_/lock_-c_\"$1\" sh {key}",
            "fish -C echo_{key}",
            "fish -iC echo_{key} script.fish",
            "fish --init-command=echo_{key}",
        ] {
            assert!(check(refused).is_err(), "{refused}");
        }
        for fine in [
            "flock /lock ./check -c {key}",
            "flock -n /lock sh -c echo_\"$1\" sh {key}",
            "bash -C script.sh {key}",
            "sh -c ./run.sh_-c_\"$1\" sh {key}",
            "sh -c sh_-c_true;_echo_x sh {key}",
            "sg group",
        ] {
            assert_eq!(check(fine), Ok(()), "{fine}");
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
