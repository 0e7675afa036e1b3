//! A `[[fetcher]]` of the configuration file: what the daemon runs itself, and when.
//!
//! `shiftboss fetch` and `on-change` have their parts of it as arguments; [`crate::fetch`] and [`crate::schedule`] act on it. Two
//! tables that are equal need nothing to be done at a reload.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use shiftboss_console::arguments::TimeLimits;
use shiftboss_queue::policy::Retries;
use shiftboss_sqlite::beside;
use toml::Spanned;
use toml::de::DeString;

use super::Fault;
use super::failures::retries;
use super::keys::{Keys, Value, fault, of_value, several};
use super::list_name::ListName;
use super::values::{self, parse_bounded_time};
use crate::child::CommandSpec;
use crate::lock;
use crate::schedule::globs::{GlobError, Globs};
use crate::schedule::machine::Timing;
use crate::schedule::watch::Trees;

/// The ends of the names of a database's files.
const SUFFIXES: [&str; 3] = ["", "-wal", "-shm"];
/// A daemon runs no more than this.
const FETCHERS_MAX: usize = 1000;

/// A list, and what prints it: arguments of `shiftboss fetch`, and keys of a `[[fetcher]]`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct List {
    /// Run again so long after the start of the last run; until stopped
    #[arg(long, value_name = "TIME", value_parser = values::parse_interval)]
    pub every: Option<Duration>,
    /// Keep the old list if there are fewer good lines
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub min_lines: u64,
    /// Keep the old list if there are fewer good lines than this share of its own, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = values::parse_share)]
    pub min_share: f64,
    /// Write the lines to NAME.NUMBER.txt.part as they come: the daemon hands them out at once, also
    /// those of a list that fails in the end
    #[arg(long)]
    pub live: bool,
    /// The list's name; without a dot
    #[arg(value_parser = ListName::new)]
    pub name: ListName,
    #[command(flatten)]
    pub limits: TimeLimits,
    /// The program that prints the list, and its arguments
    #[arg(required = true, last = true, num_args = 1..)]
    pub command: Vec<OsString>,
    /// Where it runs: the configuration file's directory; `None`: where we do. No key.
    #[arg(skip)]
    pub directory: Option<PathBuf>,
    /// What the command's environment has beyond ours; in the file only.
    #[arg(skip)]
    pub environment: BTreeMap<String, String>,
}

/// A `[[fetcher]]`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct FetcherTable {
    #[command(flatten)]
    pub list: List,
    /// A failed run is tried again after 1 s, 2 s, 4 s, ... up to 1 h, instead of at its next time
    #[arg(long)]
    pub rerun_on_failure: bool,
    /// What it runs after a change of.
    #[arg(skip)]
    pub on_change: Option<OnChangeTable>,
    /// How often tasks of its list that fail are tried again; `None`: as those of all lists.
    #[arg(skip)]
    pub job_retry: Option<Retries>,
}

/// When a change has a run follow: flags of `shiftboss on-change`, and keys of `on_change`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct Watch {
    /// Run when nothing has changed for longer than this
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_bounded_time)]
    pub debounce: Duration,
    /// Run so long after the first change at the latest, quiet or not
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = parse_bounded_time)]
    pub max_wait: Duration,
    /// Let more than this pass between the end of a run and the start of the next
    #[arg(long, value_name = "TIME", default_value = "3m", value_parser = parse_bounded_time)]
    pub cooldown: Duration,
    /// Count only what matches this glob; may be given more than once
    #[arg(long = "glob", value_name = "GLOB", value_parser = values::parse_glob)]
    pub globs: Vec<String>,
    /// Leave out what matches this glob, directories with all in them; !GLOB takes back
    #[arg(long, value_name = "GLOB", value_parser = values::parse_glob)]
    pub ignore: Vec<String>,
    /// Leave out what .gitignore files leave out: the trees' own, and with one PATH also those above it in
    /// its repository
    #[arg(long)]
    pub gitignore: bool,
}

/// Trees that a fetcher watches.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct OnChangeTable {
    /// The directories to watch, with everything below them; one that is not there yet is watched when it comes
    #[arg(long, required = true)]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub watch: Watch,
}

impl Keys for OnChangeTable {}

impl Keys for FetcherTable {
    const TABLES: &'static [&'static str] = &["on_change", "job_retry", "environment"];

    fn take(&mut self, name: &str, value: &Value<'_>, directory: &Path) -> Result<(), Fault> {
        match name {
            "on_change" => self.on_change = Some(of_value(value, directory)?),
            "job_retry" => self.job_retry = Some(retries(value)?),
            _ => self.list.environment = environment(value)?,
        }
        Ok(())
    }

    /// It runs in the file's directory; its program is there, or in `PATH`.
    fn finish(&mut self, directory: &Path) -> Result<(), String> {
        let list = &mut self.list;
        list.directory = Some(directory.to_owned());
        if list.command.iter().any(|word| word.as_encoded_bytes().contains(&0)) {
            return Err("there is a NUL in the command".to_owned());
        }
        match list.command.first_mut() {
            Some(program) if program.as_encoded_bytes().contains(&b'/') => {
                *program = directory.join(&*program).components().collect::<PathBuf>().into();
            }
            Some(program) if !program.is_empty() => {}
            _ => {
                return Err("command names a program, and its arguments: [\"./list\", \"--all\"]"
                    .to_owned());
            }
        }
        if list.every.is_none() && self.on_change.is_none() {
            let name = list.name.as_str();
            return Err(format!(
                "the fetcher {name:?} would never run: give it every, on_change or both"
            ));
        }
        Ok(())
    }
}

fn environment(value: &Value<'_>) -> Result<BTreeMap<String, String>, Fault> {
    let wrong = || fault(value, "a table of texts is needed here, as in { NAME = \"text\" }");
    let variables = value.get_ref().as_table().ok_or_else(wrong)?.iter();
    let variable = |(name, value): (&Spanned<DeString<'_>>, &Value<'_>)| {
        let text = value.get_ref().as_str().ok_or_else(wrong)?;
        let name = name.get_ref().to_string();
        if name.is_empty() || name.contains(['=', '\0']) || text.contains('\0') {
            return Err(fault(value, format!("{name:?} cannot be a variable with this value")));
        }
        Ok((name, text.to_owned()))
    };
    variables.map(variable).collect()
}

impl List {
    /// What is run. A command has a program: the file was refused otherwise.
    pub fn spec(&self) -> CommandSpec {
        let mut words = self.command.iter().cloned();
        let variable = |(name, value): (&String, &String)| (name.into(), value.into());
        CommandSpec {
            program: words.next().unwrap_or_default(),
            arguments: words.collect(),
            environment: self.environment.iter().map(variable).collect(),
            directory: self.directory.clone(),
            time_limit: self.limits.timeout,
            grace: self.limits.grace.into(),
        }
    }
}

impl FetcherTable {
    /// One that watches nothing has nothing to wait for.
    pub fn timing(&self) -> Timing {
        let retry = self.rerun_on_failure;
        let nothing = Timing { retry, ..Timing::default() };
        self.on_change.as_ref().map_or(nothing, |on_change| on_change.watch.timing(retry))
    }

    /// Whether a change of this file would have it run, and the tree that the file is in.
    fn counts(&self, file: &Path) -> Option<&Path> {
        let on_change = self.on_change.as_ref()?;
        let globs = on_change.watch.filter().ok()?;
        let counts = |root: &Path| {
            let Ok(relative) = file.strip_prefix(root) else { return false };
            let mut above =
                relative.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty());
            let is_out = above.any(|path| globs.leaves_out(root, path, true))
                || globs.leaves_out(root, relative, false);
            !is_out && globs.takes(relative, false)
        };
        on_change.paths.iter().map(PathBuf::as_path).find(|root| counts(root))
    }
}

impl Watch {
    fn filter(&self) -> Result<Globs, GlobError> {
        Globs::new(&self.globs, &self.ignore, self.gitignore)
    }

    pub fn trees(&self, paths: &[PathBuf]) -> Result<Trees, GlobError> {
        Ok(Trees::new(paths.to_owned(), self.filter()?))
    }

    pub fn timing(&self, retry: bool) -> Timing {
        let Self { debounce, max_wait, cooldown, .. } = *self;
        Timing { debounce, max_wait, cooldown, retry }
    }
}

/// Looks for fetchers that watch what the daemon itself writes: each run would cause the next one, for ever.
pub fn check_own_files(tables: &[FetcherTable], own: &DaemonFiles<'_>) -> Result<(), String> {
    for table in tables {
        let mut left_out = BTreeSet::new();
        for (file, all) in own.all(&table.list.name) {
            if let Some(root) = table.counts(&file) {
                left_out
                    .insert(format!("\"/{}\"", all.strip_prefix(root).unwrap_or(&all).display()));
            }
        }
        if !left_out.is_empty() {
            let globs = left_out.into_iter().collect::<Vec<_>>().join(", ");
            return Err(format!(
                "the fetcher {:?} watches what the daemon itself writes, and would run for ever: watch other directories, or leave that out (ignore = [{globs}])",
                table.list.name.as_str()
            ));
        }
    }
    Ok(())
}

/// What a daemon works on, as far as it is said.
#[derive(Debug)]
pub struct DaemonFiles<'a> {
    /// `None`, too: it is on a server.
    pub database: Option<&'a Path>,
    pub input: Option<&'a Path>,
    pub socket: Option<&'a Path>,
}

impl DaemonFiles<'_> {
    /// What it writes when the fetcher of that name runs, and the glob that leaves all of the kind out.
    fn all(&self, name: &ListName) -> Vec<(PathBuf, PathBuf)> {
        let stamp = 1_700_000_000;
        let lists =
            [name.file(stamp, true), name.file(stamp, false), name.draft_file(), name.lock_file()];
        let of_input = |input: &Path| lists.map(|file| (input.join(file), input.to_owned()));
        let of_file = |file: &Path| {
            let plain = SUFFIXES.map(|suffix| (beside(file, suffix), beside(file, "*")));
            let locks = ["shiftboss-lock", "shiftboss-daemon"];
            plain
                .into_iter()
                .chain(locks.map(|purpose| (lock::hidden(file, purpose), lock::hidden(file, "*"))))
        };
        let changed_of = |file| (name.changed_file(file), lock::hidden(file, "*"));
        let files = self.database.into_iter().chain(self.socket).flat_map(of_file);
        let all = self.input.map(of_input).into_iter().flatten().chain(files);
        all.chain(self.database.or(self.socket).map(changed_of)).collect()
    }
}

/// All fetchers of a file.
pub fn fetchers(value: &Value<'_>, directory: &Path) -> Result<Vec<FetcherTable>, Fault> {
    let mut names = HashSet::new();
    let one = |value: &Value<'_>| {
        let table: FetcherTable = of_value(value, directory)?;
        let name = table.list.name.clone();
        if !names.insert(name.shared()) {
            let name = name.as_str();
            let what = format!("there is a fetcher {name:?} already: give each a name of its own");
            return Err(fault(value, what));
        }
        Ok(table)
    };
    several(value, "fetcher", FETCHERS_MAX)?.iter().map(one).collect()
}
