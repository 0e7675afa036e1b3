//! What changed, as a command is given it: a file that names the paths, two variables that name the
//! file, and paths in place of arguments (spec 2.9).
//!
//! [`super::command_runs`] and the daemon's fetchers call it before each run, beside the runtime's thread.
//! It starts nothing.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::{Resource, getrlimit};

use super::paths::Changed;
use super::scheduler::Outcome;
use crate::safe_file;

/// An argument that stands for the changed paths.
const PATHS: &str = "{paths}";
/// Names the file with the changed paths, each ended by a NUL.
const CHANGED: &str = "SHIFTBOSS_CHANGED";
/// `1`: the file names all that changed. `0`: anything else may have changed, too.
const CHANGED_WHOLE: &str = "SHIFTBOSS_CHANGED_WHOLE";
/// What Linux grants to arguments and environment together, whatever the stack's limit.
const ARGUMENTS_BYTES_MIN: u64 = 128 * 1024;
/// And what it grants at the most.
const ARGUMENTS_BYTES_MAX: u64 = 6 * 1024 * 1024;
/// Left free, as POSIX advises, for what the command adds to its own children's environment.
const ARGUMENTS_BYTES_SPARE: usize = 4096;

/// A shell's code for what cannot be executed.
const NOT_EXECUTABLE: u8 = 126;

/// What a command is called with, and the file that names what changed. Dropped, it removes the file.
pub struct Handover {
    pub program: OsString,
    pub arguments: Vec<OsString>,
    /// What its environment has beyond ours.
    pub environment: Vec<(OsString, OsString)>,
    pub file: PathBuf,
}

/// What one run's command is given, where that differs from run to run.
#[derive(Debug, Default)]
pub struct Given {
    /// Its arguments, the paths in place; `None`: the usual ones.
    pub arguments: Option<Vec<OsString>>,
    /// What its environment has beyond the usual one: the variables that name the file.
    pub environment: Vec<(OsString, OsString)>,
}

impl Handover {
    /// Writes the file, beside the runtime's thread, and says what the command is to be given; else how the run
    /// failed.
    pub async fn give(self: Arc<Self>, changed: Changed) -> Result<Given, Outcome> {
        let shown = self.file.display().to_string();
        let given = tokio::task::spawn_blocking(move || self.write(&changed)).await;
        given.unwrap_or_else(|_| Err(io::Error::other("it broke off"))).map_err(|error| Outcome {
            exit_code: NOT_EXECUTABLE,
            message: format!("cannot write the changed paths to {shown}: {error}"),
        })
    }

    fn write(&self, changed: &Changed) -> io::Result<Given> {
        write_changed(&self.file, changed)?;
        let whole = if changed.is_whole() { "1" } else { "0" };
        let room = argument_room(&self.program, &self.arguments, &self.environment, &self.file);
        let file = self.file.as_os_str().to_owned();
        Ok(Given {
            arguments: Some(arguments(&self.arguments, changed, room)),
            environment: vec![(CHANGED.into(), file), (CHANGED_WHOLE.into(), whole.into())],
        })
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        // It may never have been written.
        let _ = std::fs::remove_file(&self.file);
    }
}

fn write_changed(file: &Path, changed: &Changed) -> io::Result<()> {
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
fn argument_room(
    program: &OsStr,
    typed: &[OsString],
    environment: &[(OsString, OsString)],
    file: &Path,
) -> usize {
    let stack = getrlimit(Resource::Stack).current.unwrap_or(u64::MAX);
    let all = (stack / 4).clamp(ARGUMENTS_BYTES_MIN, ARGUMENTS_BYTES_MAX);
    let environment = std::env::vars_os()
        .chain(environment.iter().cloned())
        .map(|(name, value)| argument_bytes(&name) + value.len() + 1);
    let typed = typed.iter().map(OsString::as_os_str).chain([program]).map(argument_bytes);
    let taken = environment.chain(typed).sum::<usize>();
    let ours = argument_bytes(file.as_os_str()) + CHANGED.len() + CHANGED_WHOLE.len();
    usize::try_from(all)
        .unwrap_or(usize::MAX)
        .saturating_sub(taken)
        .saturating_sub(ours)
        .saturating_sub(ARGUMENTS_BYTES_SPARE)
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
