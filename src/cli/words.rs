//! The words of the command line, before they are parsed: a target that stands before the command is brought behind it, and what
//! the line of an earlier version was is answered with the new one. Called by [`Cli::of`](super::Cli::of); pure, but for a look at
//! whether a word is a target.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Arg, Command};

use crate::stores::Database;
use crate::target::is_target;
use crate::text::quoted;

/// Commands that have another name now.
const RENAMED: &[(&str, &[&str])] = &[
    ("queue", &["tasks", "--next"]),
    ("held", &["tasks", "--held"]),
    ("stats", &["log", "--sum"]),
    ("forget-daemon", &["forget", "--daemon"]),
];

/// The line as the parser takes it, with `-t TARGET` behind the command; or the line that it should be.
pub(super) fn straightened(
    mut words: Vec<OsString>,
    cli: &Command,
) -> Result<Vec<OsString>, Vec<OsString>> {
    let leading = leading_target(&words);
    if let Some(program) = words.first_mut() {
        *program = "shiftboss".into();
    }
    if words.len() <= 1 + leading {
        return Ok(words);
    }
    words[1..=1 + leading].rotate_left(leading);
    if words[1] == "spool" {
        words.splice(..2, ["shiftspool".into()]);
        return Err(words);
    }
    let renamed = RENAMED.iter().find(|(old, _)| words[1] == *old);
    let name = renamed.map_or_else(|| words[1].clone(), |(_, new)| OsString::from(new[0]));
    let command = cli.find_subcommand(&name).filter(|it| it.get_arguments().any(is_target_option));
    // The only argument of `backup` is the copy.
    let is_alone = |at: &usize| name == "backup" && words.len() == at + 1;
    let target = command.and_then(|command| old_target(&words, command));
    let target = target.filter(|at| !is_alone(at)).map(|at| words.remove(at));
    if renamed.is_none() && target.is_none() {
        return Ok(words);
    }
    if let Some((_, new)) = renamed {
        words.splice(1..2, new.iter().map(OsString::from));
    }
    words.splice(2..2, target.into_iter().flat_map(|target| ["-t".into(), target]));
    Err(words)
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

/// Where a target stands as the first argument behind the command, as it did once; not if one is given properly.
fn old_target(words: &[OsString], command: &Command) -> Option<usize> {
    let mut at = 2;
    loop {
        let text = words.get(at)?.to_str().unwrap_or_default();
        if !text.starts_with('-') {
            return is_target(Path::new(&words[at])).then_some(at);
        }
        let option = command.get_arguments().find(|it| is_named(it, text));
        if text == "--" || option.is_some_and(is_target_option) {
            return None;
        }
        let has_value = option.is_some_and(|it| it.get_action().takes_values());
        at += 1 + usize::from(has_value && !text.contains('='));
    }
}

/// An option is called so; its value may stand behind its name.
fn is_named(argument: &Arg, word: &str) -> bool {
    match word.strip_prefix("--") {
        Some(long) => argument.get_long() == long.split('=').next(),
        None => word.len() > 1 && argument.get_short() == word.chars().nth(1),
    }
}

/// A line as it can be typed; passwords are left out.
pub(super) fn shown(words: &[OsString]) -> String {
    let word = |word: &OsString| quoted(&Database::from(PathBuf::from(word)).to_string());
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn straightened(line: &str) -> Result<String, String> {
        let words = line.split(' ').map(OsString::from).collect();
        let straight = super::straightened(words, &Cli::command());
        straight.map(|it| shown(&it)).map_err(|it| shown(&it))
    }

    /// A target stands before the command or behind it.
    #[test]
    fn a_target_is_brought_behind_its_command() {
        for line in ["s -t db why a", "s why -t db a"] {
            assert_eq!(straightened(line).unwrap(), "shiftboss why -t db a", "{line}");
        }
        assert_eq!(straightened("s --target=db why a").unwrap(), "shiftboss why --target=db a");
        assert_eq!(straightened("s -tdb why a").unwrap(), "shiftboss why -tdb a");
        for line in ["s", "s -t", "s -t db", "s --help", "s serve a b c"] {
            let same = line.replacen('s', "shiftboss", 1);
            assert_eq!(straightened(line).unwrap().trim_end(), same);
        }
    }

    /// What was typed before is answered with what is to be typed now.
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
            ("queue -n 5 URL", "tasks -t URL --next -n 5"),
        ] {
            let (old, new) = (old.replace("URL", url), new.replace("URL", url));
            assert_eq!(straightened(&format!("s {old}")), Err(format!("shiftboss {new}")));
        }
        assert_eq!(straightened("s spool list q"), Err("shiftspool list q".to_owned()));
        for right in
            ["why -t URL alpha", "why alpha URL", "move URL a.db", "requeue -- URL", "backup URL"]
        {
            let right = right.replace("URL", url);
            assert_eq!(straightened(&format!("s {right}")), Ok(format!("shiftboss {right}")));
        }
    }
}
