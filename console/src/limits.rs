//! Whether the system lets this process have what a command needs: open files, threads and processes. Limits are read
//! before anything is begun, because runtimes panic where they can have neither.
//!
//! Each program checks this for every command. If resources are used up later, or by others at the same time, the
//! operation that needs them fails.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, getuid};

use crate::exit::{ExitCode, Failure};

/// Sets the size of the stacks of runtimes' threads: they overflow smaller ones, and cannot be started with much larger
/// ones.
const STACK_VARIABLE: &str = "RUST_MIN_STACK";
const STACK_BYTES_MIN: usize = 2 * 1024 * 1024;
const STACK_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// What a command needs beyond what the process already has.
#[derive(Debug, Clone, Copy)]
pub struct Needs {
    /// Open files, sockets and the like.
    pub descriptors: usize,
    /// Threads, and processes that it starts itself.
    pub threads: usize,
}

impl Needs {
    pub fn require(self) -> Result<(), Failure> {
        let stack =
            std::env::var(STACK_VARIABLE).ok().and_then(|bytes| bytes.parse::<usize>().ok());
        if let Some(bytes) =
            stack.filter(|bytes| !(STACK_BYTES_MIN..=STACK_BYTES_MAX).contains(bytes))
        {
            let text = format!(
                "{STACK_VARIABLE}={bytes} is no size for a thread's stack: unset it, or give {STACK_BYTES_MIN} to {STACK_BYTES_MAX}"
            );
            return Err(Failure::new(ExitCode::Configuration, text));
        }
        let Self { descriptors, threads } = self;
        room(Resource::Nofile, open_files, descriptors).map_err(|left| {
            refused(format!(
                "the limit on open files (RLIMIT_NOFILE, `ulimit -n`) is {left}, and {descriptors} are needed: raise it \
                 (LimitNOFILE= in a unit)"
            ))
        })?;
        // The limit does not hold for root.
        if threads == 0 || getuid().is_root() {
            return Ok(());
        }
        room(Resource::Nproc, threads_of_user, threads).map_err(|left| {
            refused(format!(
                "the limit on threads and processes (RLIMIT_NPROC, `ulimit -u`) is {left}, and {threads} are needed: raise \
                 it, or end others"
            ))
        })
    }
}

/// Whether a limit leaves as much as is needed; an error has the limit and what it leaves. What cannot be counted
/// passes.
fn room(
    resource: Resource,
    used: impl FnOnce() -> io::Result<usize>,
    needed: usize,
) -> Result<(), String> {
    let Some(limit) = getrlimit(resource).current else { return Ok(()) };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let left = match used() {
        Ok(used) => limit.saturating_sub(used),
        Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => 0,
        Err(_) => return Ok(()),
    };
    if left < needed { Err(format!("{limit}, which leaves {left}")) } else { Ok(()) }
}

/// Open files of this process, without the one opened to count them.
fn open_files() -> io::Result<usize> {
    Ok(fs::read_dir("/proc/self/fd")?.count().saturating_sub(1))
}

/// Threads of all processes of this user, as far as they are visible here.
fn threads_of_user() -> io::Result<usize> {
    let user = getuid().as_raw();
    let threads = |process: fs::DirEntry| {
        let is_ours = process.metadata().is_ok_and(|found| found.uid() == user);
        let tasks = is_ours.then(|| fs::read_dir(process.path().join("task")).ok()).flatten();
        tasks.map_or(0, Iterator::count)
    };
    Ok(fs::read_dir("/proc")?.flatten().map(threads).sum())
}

/// This may change in a while, so a restart may help.
fn refused(text: String) -> Failure {
    Failure::new(ExitCode::Unavailable, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A need within the limits is no error; one beyond them is an error that names the limit.
    #[test]
    fn what_cannot_be_had_is_told() {
        Needs { descriptors: 8, threads: 4 }.require().unwrap();
        let limit = getrlimit(Resource::Nofile).current.unwrap();
        let needs = Needs { descriptors: usize::try_from(limit).unwrap(), threads: 0 };
        let error = needs.require().unwrap_err();
        assert_eq!(error.code(), ExitCode::Unavailable);
        let limit = format!("(RLIMIT_NOFILE, `ulimit -n`) is {limit}, which leaves ");
        assert!(error.to_string().contains(&limit), "{error}");
        assert!(threads_of_user().unwrap() > 0);
    }
}
