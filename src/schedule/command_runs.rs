//! Runs that are a command, and what changed as the command is given it: a file that names the paths, two
//! variables that name the file, and paths in place of arguments (spec 2.9).
//!
//! `on-change` has its runs from [`command_runs`]; [`crate::fetch`] runs its commands by [`run_command`]. When a run
//! is due is [`super::scheduler`]'s.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::process::{Resource, getrlimit};

use super::paths::Changed;
use super::scheduler::{Outcome, StartRun};
use crate::child::{CommandSpec, End, Guardian, LinePrefixer, Output, line_prefix};
use crate::{safe_file, standard_error};

const PATHS: &str = "{paths}";
/// Names the file with the changed paths, each ended by a NUL.
const CHANGED: &str = "SHIFTBOSS_CHANGED";
/// `1`: the file names everything that changed. `0`: more may have changed.
const CHANGED_WHOLE: &str = "SHIFTBOSS_CHANGED_WHOLE";
/// What Linux grants, at least, to arguments and environment together, whatever the stack's limit.
const ARGUMENTS_BYTES_MIN: u64 = 128 * 1024;
/// And what it grants at most.
const ARGUMENTS_BYTES_MAX: u64 = 6 * 1024 * 1024;
/// Left free, as POSIX advises, for additions of the command to its own children's environment.
const ARGUMENTS_BYTES_SPARE: usize = 4096;

/// A shell's code for what cannot be executed: a run without its file.
const NOT_EXECUTABLE: u8 = 126;

/// The runs of a user's command. Its standard output is ours; its standard error goes to ours, a line at a time, with
/// `name` in front unless that is a terminal.
pub fn command_runs(name: String, command: CommandSpec, changed_file: ChangedFile) -> StartRun {
    let (guardian, changed_file) = (Guardian::default(), Rc::new(changed_file));
    Rc::new(move |changed, stop| {
        let (guardian, file) = (guardian.clone(), Rc::clone(&changed_file));
        let (command, output) = (command.clone(), log_of(&name));
        Box::pin(async move {
            let (time_limit, stop) = (command.time_limit, async { _ = stop.await });
            match run_command(&guardian, command, Some((&file, changed)), output, stop).await {
                Ok(end) => Outcome::new(end.shell_code(), end.failure(time_limit)),
                Err(outcome) => outcome,
            }
        })
    })
}

/// Runs a command to its end, or until `stop` resolves. The error is the outcome of a run whose command did not start.
pub async fn run_command(
    guardian: &Guardian,
    mut command: CommandSpec,
    changed: Option<(&ChangedFile, Changed)>,
    output: Output,
    stop: impl Future<Output = ()>,
) -> Result<End, Outcome> {
    if let Some((file, changed)) = changed {
        let given = file.give(&mut command, changed).await;
        given.map_err(|error| Outcome::new(NOT_EXECUTABLE, error.to_string()))?;
    }
    let started = guardian.start(&command, None, output);
    let mut running = started.map_err(|error| Outcome::unstarted(&error))?;
    Ok(running.wait_or_stop(stop).await)
}

/// The command has our standard output, so that only it waits for the reader there; we write its standard error as
/// lines.
fn log_of(name: &str) -> Output {
    let mut log = Log(LinePrefixer::for_log(line_prefix(name)));
    Output::Stderr(Box::new(move |_, piece: &[u8]| standard_error::write(&log.0.feed(piece))))
}

struct Log(LinePrefixer);

impl Drop for Log {
    fn drop(&mut self) {
        standard_error::write(&self.0.finish());
    }
}

/// The file that names what changed before a run. Dropped, it is removed.
#[derive(Debug)]
pub struct ChangedFile(pub PathBuf);

impl ChangedFile {
    /// Writes the file, on another thread than the runtime's, and gives it and the paths to a command that is about to
    /// be started.
    async fn give(&self, command: &mut CommandSpec, changed: Changed) -> io::Result<()> {
        let file = self.0.clone();
        let written = tokio::task::spawn_blocking(move || write(&file, &changed).map(|()| changed));
        let written = written.await.unwrap_or_else(|_| Err(io::Error::other("it broke off")));
        let changed = written.map_err(|error| {
            let file = self.0.display();
            let text = format!("cannot write the changed paths to {file}: {error}");
            io::Error::new(error.kind(), text)
        })?;
        let whole = if changed.is_whole() { "1" } else { "0" };
        command.environment.push((CHANGED.into(), self.0.as_os_str().to_owned()));
        command.environment.push((CHANGED_WHOLE.into(), whole.into()));
        command.arguments = arguments(&command.arguments, &changed, argument_room(command));
        Ok(())
    }
}

impl Drop for ChangedFile {
    fn drop(&mut self) {
        // It may never have been written.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn write(file: &Path, changed: &Changed) -> io::Result<()> {
    safe_file::replace(file, |out| {
        for path in changed.paths() {
            out.write_all(path.as_os_str().as_bytes())?;
            out.write_all(b"\0")?;
        }
        Ok(())
    })
}

/// The arguments with the paths in place, as many as there is room for.
fn arguments(typed: &[OsString], changed: &Changed, room: usize) -> Vec<OsString> {
    let fits = |left: &mut usize, path: &Path| {
        *left = left.checked_sub(argument_bytes(path.as_os_str()))?;
        Some(path.as_os_str().to_owned())
    };
    let places = typed.iter().filter(|argument| *argument == PATHS).count().max(1);
    let paths: Vec<OsString> = changed.paths().scan(room / places, fits).collect();
    let words = |argument: &OsString| {
        if argument == PATHS { paths.clone() } else { vec![argument.clone()] }
    };
    typed.iter().flat_map(words).collect()
}

/// What an argument takes: its bytes, their end, and a pointer.
fn argument_bytes(argument: &OsStr) -> usize {
    argument.len() + 1 + size_of::<usize>()
}

/// Bytes that are left for paths, of those that the kernel grants to arguments and environment.
fn argument_room(command: &CommandSpec) -> usize {
    let stack = getrlimit(Resource::Stack).current.unwrap_or(u64::MAX);
    let all = (stack / 4).clamp(ARGUMENTS_BYTES_MIN, ARGUMENTS_BYTES_MAX);
    let environment = std::env::vars_os()
        .chain(command.environment.iter().cloned())
        .map(|(name, value)| argument_bytes(&name) + value.len() + 1);
    let words = command.arguments.iter().chain([&command.program]);
    let taken = environment.chain(words.map(|word| argument_bytes(word))).sum::<usize>();
    usize::try_from(all).unwrap_or(usize::MAX).saturating_sub(taken + ARGUMENTS_BYTES_SPARE)
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
