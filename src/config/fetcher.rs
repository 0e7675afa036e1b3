//! A `[[fetcher]]` of the configuration file: what the daemon runs itself, and when.
//!
//! [`super::read`] fills it in, and `shiftboss fetch` and `on-change` their parts of it; [`crate::fetch`] and
//! [`crate::schedule`] act on it. Two tables that are equal need nothing to be done at a reload.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use toml::Spanned;

use super::Fault;
use super::failures::RetryRule;
use super::list_name::ListName;
use super::values::{self, parse_bounded_time};
use crate::child::{CommandSpec, GRACE};
use crate::lock;
use crate::schedule::globs::{GlobError, Globs};
use crate::schedule::machine::Timing;
use crate::schedule::watch::Trees;

/// The ends of the names of a database's files.
const SUFFIXES: [&str; 3] = ["", "-wal", "-shm"];
/// A daemon runs no more than this.
const FETCHERS_MAX: usize = 1000;

/// A list, and what prints it when: keys of a `[[fetcher]]`, and arguments of `shiftboss fetch`.
#[derive(Debug, Clone, PartialEq, Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FetcherTable {
    /// Run again so long after the start of the last run; until stopped
    #[arg(long, value_name = "TIME", value_parser = values::parse_interval)]
    #[serde(default, deserialize_with = "values::interval")]
    pub every: Option<Duration>,
    /// Keep the old list if there are fewer good lines
    #[arg(long, value_name = "N", default_value_t = min_lines())]
    #[serde(default = "min_lines")]
    pub min_lines: u64,
    /// Keep the old list if there are fewer good lines than this share of its own, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = min_share(), value_parser = values::parse_share)]
    #[serde(default = "min_share", deserialize_with = "values::share")]
    pub min_share: f64,
    /// Write the lines to NAME.NUMBER.txt.part as they come: the daemon hands them out at once, also
    /// those of a list that fails in the end
    #[arg(long)]
    #[serde(default)]
    pub live: bool,
    /// The list's name; without a dot
    #[arg(value_parser = ListName::new)]
    pub name: ListName,
    /// The program that prints the list, and its arguments
    #[arg(required = true, last = true, num_args = 1..)]
    #[serde(deserialize_with = "values::command")]
    pub command: Vec<OsString>,
    /// Where it runs: the configuration file's directory; `None`: where we do. No key.
    #[arg(skip)]
    #[serde(skip)]
    pub directory: Option<PathBuf>,
    /// What it runs after a change of.
    #[arg(skip)]
    #[serde(default)]
    pub on_change: Option<OnChangeTable>,
    /// On the command line it is one of those of every command that is run, as the next one.
    #[arg(skip)]
    #[serde(default, deserialize_with = "values::some_time")]
    pub timeout: Option<Duration>,
    #[arg(skip)]
    #[serde(default = "grace", deserialize_with = "values::time")]
    pub grace: Duration,
    /// Whether a failed run is tried again, after a growing time.
    #[arg(skip)]
    #[serde(default, rename = "rerun_on_failure")]
    pub retry: bool,
    /// How often tasks of its list that fail are tried again; `None`: as those of all lists.
    #[arg(skip)]
    #[serde(default)]
    pub job_retry: Option<RetryRule>,
    /// What the command's environment has beyond the daemon's.
    #[arg(skip)]
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
}

/// Trees, and when a change in them has a run follow: keys of `on_change`, and flags of `shiftboss on-change`.
#[derive(Debug, Clone, PartialEq, Args, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table, as in on_change = { paths = [\"notes\"] }")]
pub struct OnChangeTable {
    /// Run when nothing has changed for longer than this
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_bounded_time)]
    #[serde(default = "debounce", deserialize_with = "values::time")]
    pub debounce: Duration,
    /// Run so long after the first change at the latest, quiet or not
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = parse_bounded_time)]
    #[serde(default = "max_wait", deserialize_with = "values::time")]
    pub max_wait: Duration,
    /// Let more than this pass between the end of a run and the start of the next
    #[arg(long, value_name = "TIME", default_value = "3m", value_parser = parse_bounded_time)]
    #[serde(default = "cooldown", deserialize_with = "values::time")]
    pub cooldown: Duration,
    /// Count only what matches this glob; may be given more than once
    #[arg(long = "glob", value_name = "GLOB")]
    #[serde(default, deserialize_with = "values::globs")]
    pub globs: Vec<String>,
    /// Leave out what matches this glob, directories with all in them; !GLOB takes back
    #[arg(long, value_name = "GLOB")]
    #[serde(default, deserialize_with = "values::globs")]
    pub ignore: Vec<String>,
    /// Leave out what .gitignore files leave out: the trees' own, and with one PATH also those above it in
    /// its repository
    #[arg(long)]
    #[serde(default)]
    pub gitignore: bool,
    /// The directories; on the command line also files of one directory, behind all flags.
    #[arg(skip)]
    #[serde(deserialize_with = "values::directories")]
    pub paths: Vec<PathBuf>,
}

fn grace() -> Duration {
    GRACE
}

fn min_lines() -> u64 {
    1
}

fn min_share() -> f64 {
    0.5
}

fn debounce() -> Duration {
    Duration::from_secs(5)
}

fn max_wait() -> Duration {
    Duration::from_secs(60)
}

fn cooldown() -> Duration {
    Duration::from_secs(180)
}

impl FetcherTable {
    /// The same with its paths, and where it runs, below `directory` unless they are absolute. A program without a slash
    /// is looked for in `PATH`.
    pub fn below(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        if let Some(program) = self.command.first_mut().filter(|program| has_slash(program)) {
            *program = under(directory, Path::new(&*program)).into();
        }
        let trees = self.on_change.iter_mut().flat_map(|on_change| &mut on_change.paths);
        trees.for_each(|path| *path = under(directory, path));
        self
    }

    /// What is run. A command has a program: the file was refused otherwise.
    pub fn spec(&self) -> CommandSpec {
        let mut words = self.command.iter().cloned();
        let variable = |(name, value): (&String, &String)| (name.into(), value.into());
        CommandSpec {
            program: words.next().unwrap_or_default(),
            arguments: words.collect(),
            environment: self.environment.iter().map(variable).collect(),
            directory: self.directory.clone(),
            time_limit: self.timeout,
            grace: self.grace,
        }
    }

    /// One that watches nothing has nothing to wait for.
    pub fn timing(&self) -> Timing {
        let nothing = Timing { retry: self.retry, ..Timing::default() };
        self.on_change.as_ref().map_or(nothing, |on_change| on_change.timing(self.retry))
    }

    /// Whether a change of this file would have it run, and the tree that the file is in.
    fn counts(&self, file: &Path) -> Option<&Path> {
        let on_change = self.on_change.as_ref()?;
        let globs = on_change.filter().ok()?;
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

    fn check(&self) -> Result<(), String> {
        let name = self.name.as_str();
        if self.every.is_none() && self.on_change.is_none() {
            return Err(format!(
                "the fetcher {name:?} would never run: give it every, on_change or both"
            ));
        }
        let is_name = |name: &String| !name.is_empty() && !name.contains(['=', '\0']);
        if let Some(wrong) = self.environment.keys().find(|name| !is_name(name)) {
            return Err(format!(
                "the fetcher {name:?}: {wrong:?} is no name of an environment variable"
            ));
        }
        if let Some((variable, _)) = self.environment.iter().find(|(_, value)| value.contains('\0'))
        {
            return Err(format!("the fetcher {name:?}: there is a NUL in the variable {variable}"));
        }
        Ok(())
    }
}

impl OnChangeTable {
    pub fn filter(&self) -> Result<Globs, GlobError> {
        Globs::new(&self.globs, &self.ignore, self.gitignore)
    }

    pub fn trees(&self) -> Result<Trees, GlobError> {
        Ok(Trees::new(self.paths.clone(), self.filter()?))
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
        for (file, all) in own.all(&table.name) {
            if let Some(root) = table.counts(&file) {
                left_out
                    .insert(format!("\"/{}\"", all.strip_prefix(root).unwrap_or(&all).display()));
            }
        }
        if !left_out.is_empty() {
            let globs = left_out.into_iter().collect::<Vec<_>>().join(", ");
            return Err(format!(
                "the fetcher {:?} watches what the daemon itself writes, and would run for ever: watch other directories, or leave that out (ignore = [{globs}])",
                table.name.as_str()
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
            let plain = SUFFIXES.map(|suffix| (with(file, suffix), with(file, "*")));
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

/// The path with this behind its name.
fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// A path of the file's, without `.` in it.
fn under(directory: &Path, path: &Path) -> PathBuf {
    directory.join(path).components().collect()
}

fn has_slash(program: &OsString) -> bool {
    program.as_encoded_bytes().contains(&b'/')
}

/// Looks at all fetchers of a file together.
pub fn check_fetchers(tables: &[Spanned<FetcherTable>]) -> Result<(), Fault> {
    if let Some(table) = tables.get(FETCHERS_MAX) {
        let what = format!(
            "there are more than {FETCHERS_MAX} fetchers: have some of them fetch more, or run another daemon"
        );
        return Err(Fault { place: table.span(), what });
    }
    let mut names = HashSet::new();
    for table in tables {
        let fault = |what| Fault { place: table.span(), what };
        let fetcher = table.get_ref();
        fetcher.check().map_err(fault)?;
        let name = fetcher.name.as_str();
        if !names.insert(name) {
            return Err(fault(format!(
                "there is a fetcher {name:?} already: give each a name of its own"
            )));
        }
    }
    Ok(())
}
