//! Why a list was not fetched: said by each step of a fetch, shown by `fetch` and by the daemon.

use crate::exit::ExitCode;
use crate::schedule::scheduler::Outcome;

/// Why a list was not fetched. The former list is untouched, or stands beside the new one.
#[derive(Debug)]
pub struct FetchError {
    /// What `fetch` exits with.
    pub code: ExitCode,
    /// How the run ended, as a shell would report it, and why.
    pub outcome: Outcome,
}

impl FetchError {
    pub(super) fn new(code: ExitCode, message: impl Into<String>) -> Self {
        Self { code, outcome: Outcome::new(ExitCode::Unavailable as u8, message) }
    }

    /// Nothing is wrong with us or our directory.
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ExitCode::Unavailable, message)
    }
}

impl From<Outcome> for FetchError {
    fn from(outcome: Outcome) -> Self {
        Self { code: ExitCode::Unavailable, outcome }
    }
}
