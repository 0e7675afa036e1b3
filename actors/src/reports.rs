//! What operators can ask: the port between a connection and whoever reads the queue.
//!
//! The program implements it over a reader's connection to the database; the connections' tests
//! with fixed lines. It knows no actor.

use crate::live::Live;
use shiftboss_protocol::model::Key;
use shiftboss_protocol::wire::session::Question;

pub trait Reports: Send + Sync {
    /// The answer as one line of JSON, without a line end; to `STATUS` with what the daemon's memory
    /// knows. May take a while: it is called on a thread of its own.
    fn answer(&self, question: &Question, live: Option<Live>) -> Result<String, ReportError>;

    /// When single tasks of these keys are expected to be handed out; in their order. Called as `answer` is.
    fn turns(&self, keys: &[Key]) -> Result<Vec<Turn>, ReportError>;
}

/// When a single task is expected to be handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Keys that are handed out before its key; `None`: its key is in flight.
    pub keys_before: Option<u64>,
    /// False: there are more keys than that.
    pub exact: bool,
    /// Other single tasks of its key that wait or are in flight; up to a bound.
    pub tasks_before: u64,
}

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportError {
    /// What was asked for is not there.
    Unknown(String),
    Unavailable(String),
}
