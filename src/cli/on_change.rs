//! The arguments of `on-change`, as typed, and the checked settings made from them.

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use clap::Args;

use super::{RunArguments, absolute, template};
use crate::child::CommandSpec;
use crate::config::Watch;
use crate::exit::{ExitCode, Failure};
use crate::schedule::machine::Timing;
use crate::schedule::watch::Trees;

/// The longest name of an on-change, in bytes: with additions it becomes a file name.
const NAME_BYTES_MAX: usize = 200;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shiftboss on-change --glob '*.org' ~/notes -- ./build-database
  shiftboss on-change --debounce 1s --cooldown 0s --ignore target/ . -- cargo check
  shiftboss on-change --status")]
pub struct OnChangeArguments {
    #[command(flatten)]
    pub watch: Watch,
    /// Run COMMAND once, watch nothing, and exit with its code; 124: its --timeout was over
    #[arg(long, conflicts_with = "retry")]
    pub once: bool,
    /// Take {paths} within the script of a shell's -c; as the whole script, it is executed
    #[arg(long)]
    pub allow_shell_templates: bool,
    /// Try a failed run again, after a growing time
    #[arg(long)]
    pub retry: bool,
    /// The name of its lock, status and log lines; if none is given, COMMAND's and a number for PATHs
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub name: Option<String>,
    /// Show the state of those that run, and exit
    #[arg(long, conflicts_with_all = ["once", "paths", "command"])]
    pub status: bool,
    /// With --status: print one JSON object
    #[arg(long, requires = "status")]
    pub json: bool,
    #[command(flatten)]
    pub run: RunArguments,
    /// The directories to watch, or the files of one directory
    #[arg(value_name = "PATH", required_unless_present = "status")]
    pub paths: Vec<PathBuf>,
    /// The program to run, and its arguments
    #[arg(last = true, num_args = 1.., required_unless_present = "status")]
    pub command: Vec<OsString>,
}

/// The settings of runs, checked.
#[derive(Debug)]
pub struct OnChangeSettings {
    pub name: String,
    pub trees: Trees,
    pub timing: Timing,
    /// One run and no more.
    pub is_once: bool,
    pub command: CommandSpec,
}

impl TryFrom<OnChangeArguments> for OnChangeSettings {
    type Error = Failure;

    fn try_from(typed: OnChangeArguments) -> Result<Self, Failure> {
        let trees = trees(&typed.watch, &typed.paths)?;
        let command = template(typed.command, typed.allow_shell_templates, &["{paths}"])?;
        let name = match typed.name {
            Some(name) => name,
            None => name_of(&command.program, &typed.paths)?,
        };
        let (timing, command) = (typed.watch.timing(typed.retry), typed.run.spec(command));
        Ok(Self { name, trees, timing, is_once: typed.once, command })
    }
}

/// What is watched: trees, or files of one directory.
fn trees(watch: &Watch, paths: &[PathBuf]) -> Result<Trees, Failure> {
    let trees = watch.trees(paths).map_err(Failure::of(ExitCode::Usage))?;
    match Trees::of_files(paths) {
        Some(_) if !watch.globs.is_empty() => {
            Err(Failure::usage("--glob: PATH is a file, of which nothing is to be chosen"))
        }
        Some(trees) => trees.map_err(Failure::of(ExitCode::Usage)),
        None => Ok(trees),
    }
}

/// The command's name, without its directory, and a number that stands for the trees: one command may watch
/// several, each in a process of its own.
fn name_of(program: &OsString, trees: &[PathBuf]) -> Result<String, Failure> {
    let program = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
    let name = name(&program).map_err(|why| {
        Failure::usage(format!("the name {program:?} cannot be used: {why} (--name)"))
    })?;
    let mut hasher = DefaultHasher::new();
    for tree in trees {
        absolute(tree.clone())?.hash(&mut hasher);
    }
    Ok(format!("{name}-{:08x}", hasher.finish() >> 32))
}

fn name(text: &str) -> Result<String, String> {
    let is_file = !text.starts_with('.') && !text.contains(['/', '\0']);
    match text.len() {
        1..=NAME_BYTES_MAX if is_file => Ok(text.to_owned()),
        _ => Err(format!(
            "give one of 1 to {NAME_BYTES_MAX} bytes, without a slash and no dot in front"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn typed(words: &[&str]) -> Result<OnChangeSettings, String> {
        match Cli::try_parse_from(["shiftboss", "on-change"].iter().chain(words)) {
            Ok(Cli { command: Command::OnChange(typed) }) => {
                OnChangeSettings::try_from(*typed).map_err(|error| error.to_string())
            }
            Ok(_) => Err("another command".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Arguments become settings, with the reference's times; wrong ones are named.
    #[test]
    fn typed_settings_are_checked() {
        let settings = typed(&["a", "b", "--", "/bin/make", "-j"]).unwrap();
        let seconds = Duration::from_secs;
        let timing = Timing {
            debounce: seconds(5),
            max_wait: seconds(60),
            cooldown: seconds(180),
            retry: false,
        };
        assert_eq!(settings.timing, timing);
        assert!(settings.name.starts_with("make-") && settings.name.len() == 13);
        let name = |words: &[&str]| typed(words).unwrap().name;
        assert_eq!(name(&["a", "b", "--", "make", "x"]), settings.name);
        assert_ne!(name(&["a", "--", "make"]), settings.name);
        assert_eq!(name(&["--name", "n", "a", "--", "make"]), "n");
        assert_eq!((settings.trees.roots.len(), settings.command.arguments.len()), (2, 1));
        let accepted = |words: &[&str]| {
            Cli::try_parse_from(["shiftboss", "on-change"].iter().chain(words)).is_ok()
        };
        assert!(accepted(&["--status"]));
        for (words, named) in [
            (&["--timeout", "0s", "a", "--", "x"][..], "--timeout"),
            (&["--cooldown", "400days", "a", "--", "x"], "--cooldown"),
            (&["--debounce", "soon", "a", "--", "x"], "--debounce"),
            (&["--glob", "[z-a]", "a", "--", "x"], "[z-a]"),
            (&["--name", "a/b", "a", "--", "x"], "a/b"),
            (&["a", "--", ".."], ".."),
            (&["a"], "COMMAND"),
            (&["--", "x"], "PATH"),
            (&["--status", "a", "--", "x"], "--status"),
            (&["--once", "--retry", "a", "--", "x"], "--once"),
        ] {
            let refused = typed(words).unwrap_err();
            assert!(refused.contains(named), "{words:?}: {refused}");
        }
    }
}
