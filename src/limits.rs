//! Whether the system lets this process have what a command needs: open files, threads and processes. Tried
//! out before anything is begun, because runtimes panic where they can have neither.
//!
//! [`crate::commands`] asks for every command. What is used up later is an error of whatever meets it.

use std::io;
use std::sync::{OnceLock, mpsc};
use std::thread;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

use crate::exit::{ExitCode, Failure};

/// A thread that is tried out does nothing.
const STACK_BYTES: usize = 64 * 1024;

/// Threads of runtimes have stacks of that size, and overflow them where it is smaller than this.
const STACK_VARIABLE: &str = "RUST_MIN_STACK";
const STACK_BYTES_MIN: usize = 2 * 1024 * 1024;

/// The limit on open files that we were started with, if we raised it.
static INHERITED: OnceLock<Rlimit> = OnceLock::new();

/// What a command needs beyond what the process has already.
#[derive(Debug, Clone, Copy)]
pub struct Needs {
    /// Open files, sockets and the like.
    pub descriptors: usize,
    /// Threads, and processes that it starts itself.
    pub threads: usize,
}

impl Needs {
    /// Looks whether all of it can be had now.
    pub fn require(self) -> Result<(), Failure> {
        let stack = std::env::var(STACK_VARIABLE).ok().and_then(|bytes| bytes.parse().ok());
        if let Some(bytes) = stack.filter(|bytes: &usize| *bytes < STACK_BYTES_MIN) {
            let text = format!(
                "{STACK_VARIABLE}={bytes} is less than threads need: unset it, or give {STACK_BYTES_MIN} at the least"
            );
            return Err(Failure::new(ExitCode::Configuration, text));
        }
        self.try_descriptors().map_err(|(free, error)| {
            let needed = self.descriptors;
            refused(match error {
                Errno::MFILE => format!(
                    "the limit on open files (RLIMIT_NOFILE, `ulimit -n`) is {}, which leaves {free}, and \
                     {needed} are needed: raise it (LimitNOFILE= in a unit)",
                    shown(Resource::Nofile)
                ),
                Errno::NFILE => format!(
                    "the whole system's limit on open files (fs.file-max) is reached; {needed} are needed"
                ),
                error => format!("{needed} open files are needed, and cannot be had: {error}"),
            })
        })?;
        self.try_threads().map_err(|(free, error)| {
            refused(format!(
                "the limit on threads and processes (RLIMIT_NPROC, `ulimit -u`; TasksMax= in a unit) is {}, \
                 which leaves {free}, and {} are needed: raise it, or end others ({error})",
                shown(Resource::Nproc),
                self.threads
            ))
        })
    }

    /// How many could be had, if those are too few.
    fn try_descriptors(self) -> Result<(), (usize, Errno)> {
        let mut had = Vec::with_capacity(self.descriptors);
        while had.len() < self.descriptors {
            had.push(eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| (had.len(), error))?);
        }
        Ok(())
    }

    /// How many could be had, if those are too few.
    fn try_threads(self) -> Result<(), (usize, io::Error)> {
        thread::scope(|scope| {
            // When they go, the threads end.
            let mut held = Vec::with_capacity(self.threads);
            while held.len() < self.threads {
                let (hold, wait) = mpsc::channel::<()>();
                // The first one is as large as those that will be, whatever RUST_MIN_STACK says.
                let mut new = thread::Builder::new();
                if !held.is_empty() {
                    new = new.stack_size(STACK_BYTES);
                }
                new.spawn_scoped(scope, move || wait.recv())
                    .map_err(|error| (held.len(), error))?;
                held.push(hold);
            }
            Ok(())
        })
    }
}

/// It may be otherwise in a while, so a restart may help.
fn refused(text: String) -> Failure {
    Failure::new(ExitCode::Unavailable, text)
}

fn shown(resource: Resource) -> String {
    getrlimit(resource).current.map_or("unlimited".to_owned(), |limit| limit.to_string())
}

/// Raises the limit on open files to the highest that the system allows us.
pub fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let limit = INHERITED.get_or_init(|| limit);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!(%error, "The limit on open files could not be raised.");
    }
}

/// Gives the process that calls it, which is to be a command's, the limit on open files that we were started with:
/// programs that use select(), or close every possible descriptor, break or crawl with a high one. Between `fork` and
/// `exec`: it takes no lock and allocates nothing.
pub fn lower_descriptors() -> Result<(), Errno> {
    INHERITED.get().map_or(Ok(()), |limit| setrlimit(Resource::Nofile, *limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What can be had is no error, and what cannot be had is an error with the limit.
    #[test]
    fn what_cannot_be_had_is_told() {
        Needs { descriptors: 8, threads: 4 }.require().unwrap();
        let limit = getrlimit(Resource::Nofile).current.unwrap();
        let needs = Needs { descriptors: usize::try_from(limit).unwrap(), threads: 0 };
        let error = needs.require().unwrap_err();
        assert_eq!(error.code(), ExitCode::Unavailable);
        let text = error.to_string();
        let limit = format!("(RLIMIT_NOFILE, `ulimit -n`) is {limit}, which leaves ");
        assert!(text.contains(&limit), "{text}");
        Needs { descriptors: 8, threads: 4 }.require().unwrap();
    }
}
