//! The words of the command line, before they are parsed: a target before the command is moved after it, and a line of
//! an earlier version is answered with the new form. Called by [`Cli::of`](super::Cli::of); pure, except that it looks
//! whether a word is a target.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Command};

use crate::stores::Database;
use crate::target::is_target;
use crate::text::quoted;

/// Commands that were renamed.
const RENAMED: &[(&str, &[&str])] = &[
    ("queue", &["tasks", "--next"]),
    ("held", &["tasks", "--held"]),
    ("stats", &["log", "--sum"]),
    ("forget-daemon", &["forget", "--daemon"]),
];

/// The line in the form that the parser takes, with `-t TARGET` after the command.
pub(super) fn straightened(mut words: Vec<OsString>) -> Vec<OsString> {
    let leading = leading_target(&words);
    if let Some(program) = words.first_mut() {
        *program = "shiftboss".into();
    }
    if words.len() > 1 + leading {
        words[1..=1 + leading].rotate_left(leading);
    }
    words
}

/// The new form of a [straightened] line of an earlier version. `is_refused`: the parser does not take it; one that it takes is old
/// only if keys follow a target as if that were one of them.
pub(super) fn renewed(
    mut words: Vec<OsString>,
    cli: &Command,
    is_refused: bool,
) -> Option<Vec<OsString>> {
    if words.get(1)? == "spool" {
        words.splice(..2, ["shiftspool".into()]);
        return Some(words);
    }
    let renamed = RENAMED.iter().find(|(old, _)| words[1] == *old);
    let name = renamed.map_or_else(|| words[1].clone(), |(_, new)| OsString::from(new[0]));
    let command = cli.find_subcommand(&name).filter(|it| it.get_arguments().any(is_target_option));
    let is_meant = |command: &Command, at: usize| {
        is_refused || takes_keys(command) && words.get(at + 1).is_some_and(|word| word != "--")
    };
    let target = command.and_then(|it| old_target(&words, it).filter(|at| is_meant(it, *at)));
    let target = target.map(|at| words.remove(at));
    if renamed.is_none() && target.is_none() {
        return None;
    }
    if let Some((_, new)) = renamed {
        words.splice(1..2, new.iter().map(OsString::from));
    }
    words.splice(2..2, target.into_iter().flat_map(|target| ["-t".into(), target]));
    Some(words)
}

/// Its first argument may be several.
fn takes_keys(command: &Command) -> bool {
    let first = command.get_positionals().next();
    first.is_some_and(|it| matches!(it.get_action(), ArgAction::Append))
}

/// How many words before the command are a target.
fn leading_target(words: &[OsString]) -> usize {
    match words.get(1).and_then(|word| word.to_str()) {
        Some("-t" | "--target") => 2,
        Some(word) if word.starts_with("--target=") => 1,
        Some(word) if word.starts_with("-t") && word.len() > 2 => 1,
        _ => 0,
    }
}

fn is_target_option(argument: &Arg) -> bool {
    argument.get_id() == "target"
}

/// Where a target is the first argument after the command, as in earlier versions; `None` if one is given properly.
fn old_target(words: &[OsString], command: &Command) -> Option<usize> {
    let own = words.iter().take_while(|word| *word != "--").count();
    let text = |at: usize| words[at].to_str().unwrap_or_default();
    let option = |at: usize| command.get_arguments().find(|it| is_named(it, text(at)));
    if (2..own).filter_map(option).any(is_target_option) {
        return None;
    }
    let mut at = 2;
    while at < own && text(at).starts_with('-') {
        let may_have = option(at).is_some_and(|it| it.get_action().takes_values());
        // Otherwise its value is in the same word.
        let is_bare =
            !text(at).contains('=') && (text(at).starts_with("--") || text(at).len() == 2);
        at += 1 + usize::from(may_have && is_bare);
    }
    (at < own && is_target(Path::new(&words[at]))).then_some(at)
}

/// Whether this is the name of the option; its value may follow in the same word.
fn is_named(argument: &Arg, word: &str) -> bool {
    match (word.strip_prefix("--"), word.strip_prefix('-')) {
        (Some(long), _) => argument.get_long() == long.split('=').next(),
        (None, Some(short)) => !short.is_empty() && argument.get_short() == short.chars().next(),
        (None, None) => false,
    }
}

/// A line as it can be typed; passwords are left out.
pub(super) fn shown(words: &[OsString]) -> String {
    let word = |word: &OsString| quoted(&Database::from(PathBuf::from(word)).to_string());
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;

    fn words(line: &str) -> Vec<OsString> {
        super::straightened(line.split(' ').map(OsString::from).collect())
    }

    fn parsed(line: &str) -> Result<(), String> {
        let parsed = Cli::of(line.split(' ').map(OsString::from));
        parsed.map(drop).map_err(|error| error.to_string())
    }

    /// A target may be before the command or after it.
    #[test]
    fn a_target_is_brought_behind_its_command() {
        for line in ["s -t db why a", "s why -t db a"] {
            assert_eq!(shown(&words(line)), "shiftboss why -t db a", "{line}");
        }
        assert_eq!(shown(&words("s --target=db why a")), "shiftboss why --target=db a");
        assert_eq!(shown(&words("s -tdb why a")), "shiftboss why -tdb a");
        for line in ["s", "s -t", "s -t db", "s --help", "s serve a b c"] {
            let same = line.replacen('s', "shiftboss", 1);
            assert_eq!(shown(&words(line)).trim_end(), same);
        }
    }

    /// An old command line is answered with the present one; a key may look like a target.
    #[test]
    fn an_old_line_is_answered_with_the_new_one() {
        let url = "postgres://h/db";
        for (old, new) in [
            ("queue -n 5", "tasks --next -n 5"),
            ("held", "tasks --held"),
            ("stats --by day", "log --sum --by day"),
            ("forget-daemon URL two", "forget -t URL --daemon two"),
            ("why URL alpha", "why -t URL alpha"),
            ("why --json URL alpha", "why -t URL --json alpha"),
            ("pause --timeout 5s URL", "pause -t URL --timeout 5s"),
            ("queue -n5 URL", "tasks -t URL --next -n5"),
            ("requeue URL alpha", "requeue -t URL alpha"),
            ("spool list q", "shiftspool list q"),
        ] {
            let (old, new) = (old.replace("URL", url), new.replace("URL", url));
            let told = parsed(&format!("s {old}")).unwrap_err();
            assert!(told.contains(&format!("otherwise now:\n  {}\n", program(&new))), "{told}");
        }
        for right in [
            "why -t URL alpha",
            "why URL",
            "retry URL",
            "add URL payload",
            "why URL -t db",
            "log -n5 -t URL",
            "move URL a.db",
            "requeue -- URL",
            "backup URL",
        ] {
            assert_eq!(parsed(&format!("s {}", right.replace("URL", url))), Ok(()), "{right}");
        }
        assert!(!parsed("s why -t db URL a").unwrap_err().contains("otherwise"));
    }

    fn program(line: &str) -> String {
        if line.starts_with("shiftspool") { line.to_owned() } else { format!("shiftboss {line}") }
    }
}
