//! What operators can be told: the port between a connection and whoever reads the queue.
//!
//! The program implements it over a reader's connection to the database; the connections' tests
//! with fixed lines. It knows no actor.

use crate::live::Live;
use crate::wire::session::Question;

/// Answers operators' questions.
pub trait Reports: Send + Sync {
    /// The answer as one line of JSON, without a line end; to `STATUS` with what the daemon's memory
    /// knows. May take a while: it is called on a thread of its own.
    ///
    /// # Errors
    /// Why there is none, for the operator.
    fn answer(&self, question: &Question, live: Option<Live>) -> Result<String, ReportError>;
}

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportError {
    /// What was asked for is not there.
    Unknown(String),
    /// Not at present.
    Unavailable(String),
}
