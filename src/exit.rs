//! How a command ends: the documented exit codes, and the error that carries one to `main`.
//!
//! Commands return a [`Failure`]; only `main` prints it and ends the process.

use std::fmt;
use std::io;

use thiserror::Error;

/// The exit codes besides 0, after `sysexits.h` where that has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// The command line is wrong.
    Usage = 64,
    /// Input was read, and some of it is faulty.
    BadData = 65,
    /// Nobody answered.
    Unavailable = 69,
    /// A bug: a panic or a broken invariant.
    Internal = 70,
    /// A file or socket cannot be made.
    CannotCreate = 73,
    /// Reading or writing failed: the store's disk, or standard output.
    Io = 74,
    /// Another process holds the database or the socket.
    AlreadyRunning = 75,
    /// Something that must be there is not, or is not usable.
    Configuration = 78,
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}

/// Why a command did not end with 0, or ended early.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// The reader of standard output is gone (`shiftboss check DIR | head`). It has what it
    /// wanted, so the process ends quietly, with 0.
    #[error("standard output is closed")]
    OutputClosed,
    /// Anything else: told on standard error.
    #[error("{message}")]
    Error {
        /// The process's exit code.
        code: ExitCode,
        /// What was being done, to what, why it failed, and what to do.
        message: String,
    },
}

impl Failure {
    /// A failure with a message that says it all.
    pub fn new(code: ExitCode, message: impl Into<String>) -> Self {
        Self::Error {
            code,
            message: message.into(),
        }
    }

    /// A failure told as `doing: why; hint`.
    pub fn because(
        code: ExitCode,
        doing: impl fmt::Display,
        why: impl fmt::Display,
        hint: impl fmt::Display,
    ) -> Self {
        Self::new(code, format!("{doing}: {why}; {hint}"))
    }

    /// What a failed write to standard output means.
    #[must_use]
    pub fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::OutputClosed;
        }
        Self::new(
            ExitCode::Io,
            format!("cannot write to standard output: {error}"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A closed pipe is quiet; any other trouble with the output is an error.
    #[test]
    fn output_errors() {
        let closed = io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!(Failure::output(&closed), Failure::OutputClosed);
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let Failure::Error { code, message } = Failure::output(&full) else {
            panic!("a full disk is told");
        };
        assert_eq!(code, ExitCode::Io);
        assert_eq!(message, "cannot write to standard output: no storage space");
    }
}
