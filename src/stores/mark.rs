//! The marks of a move: on a queue that was moved away, and on one that is not all there. No daemon uses either.
//!
//! Kept by the stores, in the database; looked at when a daemon opens it, and by the next move.

use std::fmt;

use crate::exit::{ExitCode, Failure};

/// Which move it was, and the place at its other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    /// No other move has it. After the last `@` it names the queue that was moved, for a place may be called the same on
    /// two machines.
    pub(super) number: String,
    pub(super) place: String,
}

impl Mark {
    /// As [`fmt::Display`] writes it.
    pub(super) fn parse(text: &str) -> Self {
        let (number, place) = text.split_once(' ').unwrap_or((text, ""));
        Self { number: number.to_owned(), place: place.to_owned() }
    }

    /// Whether the queue of this [identity](super::transfer::Source::identity) was moved from this place. A copy of it elsewhere
    /// is another one.
    #[cfg(feature = "postgres")]
    pub(super) fn is_of(&self, identity: &str, place: &str) -> bool {
        self.place == place
            && self.number.rsplit_once('@').is_some_and(|(_, moved)| moved == identity)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number, self.place)
    }
}

/// What became of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) table: &'static str,
    pub(crate) rows: u64,
}

/// Why nobody uses a queue that was moved.
pub(super) fn gone(name: &str, left: &Mark) -> Failure {
    let text = format!("the queue of {name} was moved to {}: use that", left.place);
    Failure::new(ExitCode::Configuration, text)
}

/// Why nobody uses a queue whose move was broken off.
pub(super) fn unfinished(name: &str, begun: &Mark) -> Failure {
    let text = format!(
        "a move into {name} was broken off: run `shiftboss move {} {name}` again where that queue is, which ends it or begins anew",
        begun.place
    );
    Failure::new(ExitCode::Configuration, text)
}
