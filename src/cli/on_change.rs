//! The arguments of `on-change`, as typed, and the checked settings made of them.

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{absolute, template};
use crate::child::{GRACE, Template};
use crate::exit::{ExitCode, Failure};
use crate::schedule::globs::Globs;
use crate::schedule::machine::{COOLDOWN, DEBOUNCE, MAX_WAIT, Timing};
use crate::schedule::watch::Trees;

/// What `--help` begins with.
pub(super) const ABOUT: &str = "Watch directories, and run COMMAND when something in them has changed and it is \
quiet again\n\nCOMMAND runs once at the start, then after each change; two runs never overlap. It finds \
the changed paths in the file that SHIFTBOSS_CHANGED names, each ended by a NUL, and in place \
of an argument {paths}. Globs are written as in .gitignore. By default .git is left out, \
and what editors keep beside files (*.tmp, *~, .#*, #*#, .*.sw?, 4913, *.~undo-tree~).";

const EXAMPLES: &str = "\
Examples:
  shiftboss on-change --glob '*.org' ~/notes -- ./build-database
  shiftboss on-change --debounce 1s --cooldown 0s --ignore target/ . -- cargo check
  shiftboss on-change --status";

/// The longest name of an on-change, in bytes: with what is added to it, it is a file's name.
const NAME_BYTES_MAX: usize = 200;
/// The longest of its times.
const TIME_MAX: Duration = Duration::from_secs(366 * 86_400);

/// What is typed behind `on-change`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct OnChangeArguments {
    /// Run when nothing has changed for longer than this
    #[arg(long, value_name = "TIME", default_value_t = DEBOUNCE.into(), value_parser = time)]
    pub debounce: humantime::Duration,
    /// Run so long after the first change at the latest, quiet or not
    #[arg(long, value_name = "TIME", default_value_t = MAX_WAIT.into(), value_parser = time)]
    pub max_wait: humantime::Duration,
    /// Let more than this pass between the end of a run and the start of the next
    #[arg(long, value_name = "TIME", default_value_t = COOLDOWN.into(), value_parser = time)]
    pub cooldown: humantime::Duration,
    /// Count only what matches this glob; may be given more than once
    #[arg(long, value_name = "GLOB")]
    pub glob: Vec<String>,
    /// Leave out what matches this glob, directories with all in them; !GLOB takes back
    #[arg(long, value_name = "GLOB")]
    pub ignore: Vec<String>,
    /// Leave out what .gitignore files leave out: the trees' own, and with one PATH also those above it in
    /// its repository
    #[arg(long)]
    pub gitignore: bool,
    /// Run COMMAND once, watch nothing, and exit with its code
    #[arg(long, conflicts_with = "retry")]
    pub once: bool,
    /// End COMMAND after so long (TERM, then KILL); that is a failure, and with --once exit code 124
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub timeout: Option<Duration>,
    /// How long COMMAND may take to end after SIGTERM
    #[arg(long, value_name = "TIME", default_value_t = GRACE.into(), value_parser = time)]
    pub grace: humantime::Duration,
    /// Take {paths} within the script of a shell's -c; as the whole script, it is executed
    #[arg(long)]
    pub allow_shell_templates: bool,
    /// Try a failed run again, after a growing time
    #[arg(long)]
    pub retry: bool,
    /// The name of its lock, status and log lines; if none is given, COMMAND's and a number for PATHs
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Show the state of those that run, and exit
    #[arg(long, conflicts_with_all = ["graph", "once", "paths", "command"])]
    pub status: bool,
    /// With --status: print one JSON object
    #[arg(long, requires = "status")]
    pub json: bool,
    /// Print a picture of how it decides when to run, as source text, and exit
    #[arg(long, value_enum, value_name = "KIND", conflicts_with_all = ["once", "paths", "command"])]
    pub graph: Option<Picture>,
    /// What is logged: a level (error, warn, info, debug, trace), or a list of target=level
    #[arg(long, value_name = "FILTER", env = "SHIFTBOSS_LOG", default_value = "info")]
    pub log_level: String,
    /// The directories to watch, or the files of one directory
    #[arg(value_name = "PATH", required_unless_present_any = ["status", "graph"])]
    pub paths: Vec<PathBuf>,
    /// The program to run, and its arguments
    #[arg(last = true, num_args = 1.., required_unless_present_any = ["status", "graph"])]
    pub command: Vec<OsString>,
}

/// A picture's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Picture {
    /// For Graphviz
    Dot,
    /// For Mermaid
    Mermaid,
}

/// What is asked for, checked.
#[derive(Debug)]
pub enum OnChange {
    /// The machine's picture.
    Graph(Picture),
    /// How those that run are.
    Status {
        /// Only that of this name.
        name: Option<String>,
        /// As JSON.
        json: bool,
    },
    /// Runs.
    Run(Box<OnChangeSettings>),
}

/// The settings of runs, checked.
#[derive(Debug)]
pub struct OnChangeSettings {
    /// Its name.
    pub name: String,
    /// What is watched.
    pub trees: Trees,
    /// When a run is due.
    pub timing: Timing,
    /// One run and no more.
    pub is_once: bool,
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// How long it may run.
    pub time_limit: Option<Duration>,
    /// From TERM to KILL.
    pub grace: Duration,
}

fn wrong(message: impl Into<String>) -> Failure {
    Failure::new(ExitCode::Usage, message)
}

impl TryFrom<OnChangeArguments> for OnChange {
    type Error = Failure;

    fn try_from(typed: OnChangeArguments) -> Result<Self, Failure> {
        if let Some(picture) = typed.graph {
            return Ok(Self::Graph(picture));
        }
        if let Some(name) = &typed.name {
            check_name(name)?;
        }
        if typed.status {
            return Ok(Self::Status { name: typed.name, json: typed.json });
        }
        Ok(Self::Run(Box::new(settings(typed)?)))
    }
}

fn settings(typed: OnChangeArguments) -> Result<OnChangeSettings, Failure> {
    let times = [
        ("--debounce", typed.debounce),
        ("--max-wait", typed.max_wait),
        ("--cooldown", typed.cooldown),
    ]
    .map(|(flag, time)| (flag, Duration::from(time)));
    if let Some((flag, time)) = times.iter().find(|(_, time)| *time > TIME_MAX) {
        let time = humantime::format_duration(*time);
        return Err(wrong(format!("{flag} {time}: give a time up to 366days")));
    }
    if typed.timeout.is_some_and(|timeout| timeout.is_zero()) {
        return Err(wrong("--timeout 0s: give a time above 0, or none"));
    }
    let trees = trees(&typed)?;
    let Template { program, arguments } =
        template(typed.command, typed.allow_shell_templates, &["{paths}"])?;
    let name = match typed.name {
        Some(name) => name,
        None => name_of(&program, &typed.paths)?,
    };
    Ok(OnChangeSettings {
        name,
        trees,
        timing: Timing {
            debounce: typed.debounce.into(),
            max_wait: typed.max_wait.into(),
            cooldown: typed.cooldown.into(),
            retry: typed.retry,
        },
        is_once: typed.once,
        program,
        arguments,
        time_limit: typed.timeout,
        grace: typed.grace.into(),
    })
}

/// What is watched: trees, or files of one directory.
fn trees(typed: &OnChangeArguments) -> Result<Trees, Failure> {
    let globs = Globs::new(&typed.glob, &typed.ignore, typed.gitignore)
        .map_err(|error| wrong(error.to_string()))?;
    match Trees::of_files(&typed.paths) {
        Some(_) if !typed.glob.is_empty() => {
            Err(wrong("--glob: PATH is a file, of which nothing is to be chosen"))
        }
        Some(trees) => trees.map_err(|error| wrong(error.to_string())),
        None => Ok(Trees::new(typed.paths.clone(), globs)),
    }
}

/// The command's name, without its directory, and a number that stands for the trees: one command may watch
/// several, each in a process of its own.
fn name_of(program: &OsString, trees: &[PathBuf]) -> Result<String, Failure> {
    let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
    check_name(&name)?;
    let mut hasher = DefaultHasher::new();
    for tree in trees {
        absolute(tree.clone())?.hash(&mut hasher);
    }
    Ok(format!("{name}-{:08x}", hasher.finish() >> 32))
}

fn check_name(name: &str) -> Result<(), Failure> {
    let is_file = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']);
    if is_file && name.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    Err(wrong(format!(
        "the name {name:?} cannot be used: give one (--name) of 1 to {NAME_BYTES_MAX} bytes, without a slash and no dot in front"
    )))
}

fn time(text: &str) -> Result<humantime::Duration, humantime::DurationError> {
    text.parse()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn typed(words: &[&str]) -> Result<OnChange, String> {
        match Cli::try_parse_from(["shiftboss", "on-change"].iter().chain(words)) {
            Ok(Cli { command: Command::OnChange(typed) }) => {
                OnChange::try_from(typed).map_err(|error| error.to_string())
            }
            Ok(_) => Err("another command".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// What is typed becomes settings, with the reference's times; what is wrong is named.
    #[test]
    fn typed_settings_are_checked() {
        let Ok(OnChange::Run(settings)) = typed(&["a", "b", "--", "/bin/make", "-j"]) else {
            panic!("no settings");
        };
        let seconds = Duration::from_secs;
        let timing = Timing {
            debounce: seconds(5),
            max_wait: seconds(60),
            cooldown: seconds(180),
            retry: false,
        };
        assert_eq!(settings.timing, timing);
        assert!(settings.name.starts_with("make-") && settings.name.len() == 13);
        let name = |words: &[&str]| match typed(words) {
            Ok(OnChange::Run(settings)) => settings.name,
            other => panic!("{other:?}"),
        };
        assert_eq!(name(&["a", "b", "--", "make", "x"]), settings.name);
        assert_ne!(name(&["a", "--", "make"]), settings.name);
        assert_eq!(name(&["--name", "n", "a", "--", "make"]), "n");
        assert_eq!((settings.trees.roots.len(), settings.arguments.len()), (2, 1));
        assert!(matches!(typed(&["--graph", "dot"]), Ok(OnChange::Graph(Picture::Dot))));
        assert!(matches!(typed(&["--status"]), Ok(OnChange::Status { name: None, json: false })));
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
