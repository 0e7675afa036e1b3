//! How a command ended, or why it did not start, and the exit code that a shell would show.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::WaitIdStatus;
use thiserror::Error;

/// The exit code for a time limit, as with `timeout(1)`.
const TIMED_OUT: u8 = 124;
/// A shell's exit code for a program that exists but cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// A shell's exit code for a program that does not exist.
const NOT_FOUND: u8 = 127;
/// What a shell adds to a signal's number.
const SIGNAL_BASE: u8 = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Code(u8),
    Signal(u8),
    /// Its time was over and it was terminated, whatever its exit code.
    TimedOut,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.shell_code();
        match self {
            Self::Code(_) => write!(f, "exit code {code}"),
            Self::Signal(number) => write!(f, "signal {number}, exit code {code}"),
            Self::TimedOut => write!(f, "its time was over, exit code {code}"),
        }
    }
}

impl End {
    /// The exit code as a shell and `timeout(1)` report it: 128 more than a signal's number.
    pub fn shell_code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(number) => SIGNAL_BASE.saturating_add(number),
            Self::TimedOut => TIMED_OUT,
        }
    }

    /// Why it is a failure; empty if it is not one. `limit` is how long it was allowed to run.
    pub fn failure(self, limit: Option<Duration>) -> String {
        match self {
            Self::Code(0) => String::new(),
            Self::Code(code) => format!("the command ended with exit code {code}"),
            Self::Signal(number) => format!("the command was ended by signal {number}"),
            Self::TimedOut => {
                let limit = humantime::format_duration(limit.unwrap_or_default());
                format!("the command did not end within {limit} (timeout)")
            }
        }
    }

    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }

    /// From what the kernel reports of a process that has ended.
    pub(super) fn of(status: &WaitIdStatus) -> Self {
        let number = |raw: Option<i32>| raw.and_then(|raw| u8::try_from(raw).ok());
        match number(status.terminating_signal()) {
            Some(signal) => Self::Signal(signal),
            None => Self::Code(number(status.exit_status()).unwrap_or(u8::MAX)),
        }
    }
}

/// A single word with blanks in it is probably a whole command.
fn quotes(program: &OsStr) -> &'static str {
    let has_blank = program.as_encoded_bytes().contains(&b' ');
    if has_blank { "; write the command without quotes around it, each word by itself" } else { "" }
}

fn advice(source: &io::Error) -> &'static str {
    if is_unfit(source) {
        "; what has a zero byte, or 128 KiB and more, cannot be passed to a command"
    } else {
        "; is it a program, and may this user execute it?"
    }
}

/// Whether the start failed because the job does not fit on a command line or into an environment.
fn is_unfit(source: &io::Error) -> bool {
    matches!(source.kind(), io::ErrorKind::ArgumentListTooLong | io::ErrorKind::InvalidInput)
}

#[derive(Debug, Error)]
pub enum StartError {
    #[error("cannot run {}: there is no such program, or its interpreter is missing{}", .0.display(), quotes(.0))]
    NotFound(OsString),
    #[error("cannot run {}: {source}{}", program.display(), advice(source))]
    NotExecutable { program: OsString, source: io::Error },
    #[error("cannot run a command in {}: there is no such directory", .0.display())]
    Directory(PathBuf),
    #[error(
        "cannot run a command: the directory in which this program was started was removed; start it again, in the one that took its place"
    )]
    WorkingDirectory,
    /// The system has no room for it (processes, descriptors, memory), or something that we make for a command could
    /// not be made.
    #[error(
        "cannot {doing} to run a command: {source}; is there room for it, and may this user write to TMPDIR?"
    )]
    System { doing: &'static str, source: io::Error },
}

impl StartError {
    /// The exit code that a shell would report: 127 if the program does not exist, else 126.
    pub fn shell_code(&self) -> u8 {
        match self {
            Self::NotFound(_) => NOT_FOUND,
            Self::NotExecutable { .. }
            | Self::Directory(_)
            | Self::WorkingDirectory
            | Self::System { .. } => NOT_EXECUTABLE,
        }
    }

    /// Whether the job itself is the reason. Any other reason may soon be gone: a program that is being replaced, or a
    /// system that has no room.
    pub fn is_of_job(&self) -> bool {
        matches!(self, Self::NotExecutable { source, .. } if is_unfit(source))
    }

    /// Why `program` was not executed. Faults of the program are distinguished from a system that has no room.
    pub(super) fn of(program: &OsStr, source: io::Error) -> Self {
        use rustix::io::Errno;
        match Errno::from_io_error(&source) {
            Some(Errno::NOENT | Errno::NOTDIR) => Self::NotFound(program.to_owned()),
            Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::PIPE) => {
                Self::System { doing: "make a process", source }
            }
            _ => Self::NotExecutable { program: program.to_owned(), source },
        }
    }

    pub fn system<E: Into<io::Error>>(doing: &'static str) -> impl Fn(E) -> Self {
        move |source| Self::System { doing, source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_as_a_shell_reports_them() {
        let codes = [End::Code(0), End::Code(255), End::Signal(9), End::TimedOut];
        assert_eq!(codes.map(End::shell_code), [0, 255, 137, 124]);
        let error = |errno: rustix::io::Errno| StartError::of("p".as_ref(), errno.into());
        assert_eq!(error(rustix::io::Errno::NOENT).shell_code(), 127);
        assert_eq!(error(rustix::io::Errno::ACCESS).shell_code(), 126);
        assert!(error(rustix::io::Errno::ACCESS).to_string().contains("cannot run p: "));
        assert!(matches!(error(rustix::io::Errno::AGAIN), StartError::System { .. }));
    }

    /// A job that cannot be passed to a command stays faulty; any other reason may soon be gone.
    #[test]
    fn what_cannot_be_given_is_the_jobs_fault() {
        let is_of_job = |source: io::Error| StartError::of("p".as_ref(), source).is_of_job();
        assert!(is_of_job(io::ErrorKind::InvalidInput.into()));
        assert!(is_of_job(rustix::io::Errno::TOOBIG.into()));
        for errno in [rustix::io::Errno::ACCESS, rustix::io::Errno::NOENT, rustix::io::Errno::NOMEM]
        {
            assert!(!is_of_job(errno.into()), "{errno}");
        }
    }
}
