//! Runs that are a command: the user's, with what changed in a file and in its arguments.
//!
//! [`super::runs::Runs`] over [`crate::child`]. Both outputs go to standard error, a line at a time.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::sync::oneshot;

use super::paths::Changed;
use super::runs::{Outcome, Run, Runs};
use crate::child::{End, Guardian, LinePrefixer, Order, Output, Stream};

/// An argument that stands for the changed paths.
const PATHS: &str = "{paths}";
/// Names the file with the changed paths, each ended by a NUL.
const CHANGED: &str = "SHIFTBOSS_CHANGED";
/// `1`: the file names all that changed. `0`: anything else may have changed, too.
const CHANGED_WHOLE: &str = "SHIFTBOSS_CHANGED_WHOLE";
/// A longer line of the command's is passed on in pieces.
const LINE_BYTES_MAX: usize = 8 * 1024;
/// What Linux grants to arguments and environment together, whatever the stack's limit.
const ARGUMENTS_BYTES_MIN: u64 = 128 * 1024;
/// And what it grants at the most.
const ARGUMENTS_BYTES_MAX: u64 = 6 * 1024 * 1024;
/// Left free, as POSIX advises, for what the command adds to its own children's environment.
const ARGUMENTS_BYTES_SPARE: usize = 4096;

/// What is run.
#[derive(Debug, Clone)]
pub struct CommandSettings {
    /// Put before each line of output, unless that goes to a terminal.
    pub name: String,
    /// The program; looked for in `PATH` unless it has a slash.
    pub program: OsString,
    /// What it is called with; `{paths}` stands for the changed paths.
    pub arguments: Vec<OsString>,
    /// How long it may run.
    pub time_limit: Option<Duration>,
    /// From TERM to KILL.
    pub grace: Duration,
    /// The file that is written with the changed paths before each run.
    pub changed_file: PathBuf,
}

/// Starts commands.
pub struct CommandRuns {
    settings: CommandSettings,
    guardian: Guardian,
}

impl CommandRuns {
    /// Commands that `guardian` starts.
    #[must_use]
    pub fn new(settings: CommandSettings, guardian: Guardian) -> Self {
        Self { settings, guardian }
    }
}

impl Runs for CommandRuns {
    fn start(&mut self, changed: Changed, stop: oneshot::Receiver<()>) -> Run {
        let (settings, guardian) = (self.settings.clone(), self.guardian.clone());
        Box::pin(async move { run(settings, guardian, changed, stop).await })
    }
}

async fn run(
    settings: CommandSettings,
    guardian: Guardian,
    changed: Changed,
    mut stop: oneshot::Receiver<()>,
) -> Outcome {
    let limit = settings.time_limit;
    let prepared = tokio::task::spawn_blocking(move || prepare(&settings, &changed)).await;
    let order = match prepared {
        Ok(Ok(order)) => order,
        Ok(Err(outcome)) => return outcome,
        Err(_) => return not_started("preparing it broke off".to_owned()),
    };
    let mut running = match guardian.start(order) {
        Ok(running) => running,
        Err(error) => return Outcome { exit_code: error.shell_code(), told: error.to_string() },
    };
    let end = tokio::select! {
        end = running.wait() => end,
        _ = &mut stop => {
            running.terminate();
            running.wait().await
        }
    };
    Outcome { exit_code: end.shell_code(), told: told(end, limit) }
}

/// A shell's code for what cannot be executed.
fn not_started(told: String) -> Outcome {
    Outcome { exit_code: 126, told }
}

fn told(end: End, limit: Option<Duration>) -> String {
    match end {
        End::Code(0) => String::new(),
        End::Code(code) => format!("the command ended with exit code {code}"),
        End::Signal(number) => format!("the command was ended by signal {number}"),
        End::TimedOut => {
            let limit = humantime::format_duration(limit.unwrap_or_default());
            format!("the command did not end within {limit} (--timeout)")
        }
    }
}

fn prepare(settings: &CommandSettings, changed: &Changed) -> Result<Order, Outcome> {
    let file = &settings.changed_file;
    write_changed(file, changed).map_err(|error| {
        not_started(format!("cannot write the changed paths to {}: {error}", file.display()))
    })?;
    let whole = if changed.is_whole() { "1" } else { "0" };
    let room = argument_room(settings);
    Ok(Order {
        arguments: arguments(&settings.arguments, changed, room),
        environment: vec![(CHANGED.into(), file.into()), (CHANGED_WHOLE.into(), whole.into())],
        time_limit: settings.time_limit,
        grace: settings.grace,
        ..Order::new(&settings.program, log_of(&settings.name))
    })
}

fn write_changed(file: &Path, changed: &Changed) -> io::Result<()> {
    let mut out = io::BufWriter::new(std::fs::File::create(file)?);
    for path in changed.paths() {
        out.write_all(path.as_os_str().as_bytes())?;
        out.write_all(b"\0")?;
    }
    out.flush()
}

/// The arguments with the paths in place, as many as there is room for.
fn arguments(typed: &[OsString], changed: &Changed, room: usize) -> Vec<OsString> {
    let fits = |left: &mut usize, path: &Path| {
        *left = left.checked_sub(argument_bytes(path.as_os_str()))?;
        Some(path.as_os_str().to_owned())
    };
    let places = typed.iter().filter(|argument| *argument == PATHS).count().max(1);
    let paths: Vec<OsString> = changed.paths().scan(room / places, fits).collect();
    let mut all = Vec::with_capacity(typed.len() + paths.len());
    for argument in typed {
        if argument == PATHS {
            all.extend(paths.iter().cloned());
        } else {
            all.push(argument.clone());
        }
    }
    all
}

/// What an argument takes: its bytes, their end, and a pointer.
fn argument_bytes(argument: &OsStr) -> usize {
    argument.len() + 1 + size_of::<usize>()
}

/// Bytes that are left for paths, of those that the kernel grants to arguments and environment.
fn argument_room(settings: &CommandSettings) -> usize {
    let stack = getrlimit(Resource::Stack).current.unwrap_or(u64::MAX);
    let all = (stack / 4).clamp(ARGUMENTS_BYTES_MIN, ARGUMENTS_BYTES_MAX);
    let environment =
        std::env::vars_os().map(|(name, value)| argument_bytes(&name) + value.len() + 1);
    let typed = settings.arguments.iter().chain([&settings.program]);
    let taken = environment.chain(typed.map(|argument| argument_bytes(argument))).sum::<usize>();
    let ours =
        argument_bytes(settings.changed_file.as_os_str()) + CHANGED.len() + CHANGED_WHOLE.len();
    usize::try_from(all)
        .unwrap_or(usize::MAX)
        .saturating_sub(taken)
        .saturating_sub(ours)
        .saturating_sub(ARGUMENTS_BYTES_SPARE)
}

/// Both streams, as lines on standard error.
fn log_of(name: &str) -> Output {
    let prefix = if io::stderr().is_terminal() { String::new() } else { format!("{name}: ") };
    let line = || LinePrefixer::new(prefix.clone(), LINE_BYTES_MAX);
    let mut log = Log([line(), line()]);
    Output::Sink(Box::new(move |stream, piece: &[u8]| log.take(stream, piece)))
}

struct Log([LinePrefixer; 2]);

impl Log {
    /// Nobody may be reading.
    fn take(&mut self, stream: Stream, piece: &[u8]) {
        let mut lines = Vec::new();
        let _ = self.0[usize::from(stream == Stream::Err)].feed(piece, &mut lines);
        let _ = io::stderr().lock().write_all(&lines);
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let mut lines = Vec::new();
        for stream in &mut self.0 {
            let _ = stream.finish(&mut lines);
        }
        let _ = io::stderr().lock().write_all(&lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each path is an argument of its own, and as many are given as there is room for.
    #[test]
    fn paths_are_arguments() {
        let changed = Changed::of(["a b", "c", "d"].map(PathBuf::from));
        let typed = ["-x", "{paths}", "--", "in {paths}"].map(OsString::from);
        assert_eq!(arguments(&typed, &changed, 1000), ["-x", "a b", "c", "d", "--", "in {paths}"]);
        assert_eq!(arguments(&typed, &changed, 12 + 10), ["-x", "a b", "c", "--", "in {paths}"]);
        assert_eq!(arguments(&typed, &Changed::unknown(), 1000), ["-x", "--", "in {paths}"]);
        assert_eq!(arguments(&["{paths}".into(), "{paths}".into()], &changed, 24), ["a b", "a b"]);
    }
}
