//! Exit codes and the error that carries one, with the message for the user. Used by every command of both programs;
//! [`crate::program`] ends the process with them.

use std::fmt;

use shiftboss_runner::escape::shown;

/// What the program's exit code says (docs/exit-codes.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// The checked thing is or was not in order, or the command that was run failed.
    Found = 1,
    /// The command line is wrong.
    Usage = 64,
    /// Input or database content is wrong.
    BadData = 65,
    Unavailable = 69,
    Internal = 70,
    /// A file, directory or socket cannot be made.
    CannotCreate = 73,
    /// The database can no longer be used, or the output cannot be written.
    StoreIo = 74,
    /// Another daemon holds the database, the socket or the input directory, or a worker holds the task, or there is no
    /// room at present: try again later.
    AlreadyRunning = 75,
    /// Only for the daemon's own user and root, or for users who may read its files.
    Denied = 77,
    /// A setting or the surroundings are wrong.
    Configuration = 78,
}

/// Why a command ended: a code for scripts, a text for people.
#[derive(Debug)]
pub struct Failure {
    code: ExitCode,
    /// What was done, to what, why it failed, and what to do. Empty: it was all reported already.
    message: String,
    /// Exit code of the job, which becomes the command's own.
    job: Option<u8>,
}

impl Failure {
    pub fn new(code: ExitCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), job: None }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ExitCode::Usage, message)
    }

    /// For `map_err`: an error whose own text says everything.
    pub fn of<E: fmt::Display>(code: ExitCode) -> impl Fn(E) -> Self {
        move |error| Self::new(code, error.to_string())
    }

    /// A failure whose message is the command's own output.
    pub fn silent(code: ExitCode) -> Self {
        Self::new(code, "")
    }

    /// A job that ended with this code, which becomes the command's.
    pub fn of_job(exit_code: u8) -> Self {
        Self { job: Some(exit_code), ..Self::silent(ExitCode::Found) }
    }

    pub fn code(&self) -> ExitCode {
        self.code
    }

    pub fn number(&self) -> u8 {
        self.job.unwrap_or(self.code as u8)
    }

    pub fn is_silent(&self) -> bool {
        self.message.is_empty()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may contain paths and words from outside.
        f.write_str(&shown(&self.message))
    }
}
