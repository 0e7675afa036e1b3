//! What is to blame for a command that did not start, as whoever runs many of them has to know.

use std::io;

use thiserror::Error;

use super::end::StartError;

#[derive(Debug, Error)]
pub enum Fault {
    /// What it was to be given cannot be put on a command line, or into an environment.
    #[error("{0}; what has a zero byte, or 128 KiB and more, cannot be passed to a command")]
    Job(#[source] StartError),
    /// The program cannot be run, for anything.
    #[error(transparent)]
    Program(StartError),
    /// The system has no room at present.
    #[error(transparent)]
    System(StartError),
}

impl From<StartError> for Fault {
    fn from(error: StartError) -> Self {
        use io::ErrorKind::{ArgumentListTooLong, InvalidInput};
        match &error {
            StartError::NotExecutable { source, .. }
                if matches!(source.kind(), ArgumentListTooLong | InvalidInput) =>
            {
                Self::Job(error)
            }
            StartError::System { .. } => Self::System(error),
            _ => Self::Program(error),
        }
    }
}

impl Fault {
    /// There is no room for a pipe that takes its output.
    pub(crate) fn no_pipe(source: io::Error) -> Self {
        Self::System(StartError::System { doing: "make a pipe for its output", source })
    }
}
