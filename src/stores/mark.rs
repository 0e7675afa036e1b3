//! The marks of a move: on a queue that was moved away, and on one that is not all there. No daemon uses either.
//!
//! Kept in the database, as documents; looked at when a daemon opens it, and by the next move.

use std::time::SystemTime;

/// Which move it was, and the place at its other end. After the last `@` of its number it names the queue that was moved, for a place
/// may be called the same on two machines.
pub(super) use shiftboss_queue::documents::Move as Mark;

use crate::exit::{ExitCode, Failure};

/// Of a new move of the queue of this identity; none has the same number.
pub(super) fn new(identity: &str, place: String) -> Mark {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Mark { number: format!("{}-{}@{identity}", now.as_nanos(), std::process::id()), place }
}

/// Whether the queue of this [identity](super::transfer::Source::identity) was moved from this place. A copy of it elsewhere is
/// another one.
pub(super) fn is_of(mark: &Mark, identity: &str, place: &str) -> bool {
    let moved = mark.number.rsplit_once('@').map(|(_, moved)| moved);
    mark.place == place && moved == Some(identity)
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
        "a move into {name} was broken off: run the same `shiftboss move` again where {} is, which ends it or begins anew",
        begun.place
    );
    Failure::new(ExitCode::Configuration, text)
}
