//! What operators are shown of a broker: the JSON objects of `shiftboss broker` are made of these (docs/json.md).
//!
//! Filled by [`check`](mod@crate::check) and [`dead_letters`](mod@crate::dead_letters).

use serde::Serialize;

/// Bytes of a dead letter that are shown.
pub const EXCERPT_BYTES_MAX: usize = 160;

/// Whether a broker can be used, and how long its queues are.
#[derive(Debug, Serialize)]
pub struct BrokerCheck {
    /// False: it is short of memory or disk, and holds back all that is published.
    pub takes_messages: bool,
    /// The largest message that it takes, where that is less than what may be sent.
    pub max_message_bytes: Option<usize>,
    /// Queues first.
    pub parts: Vec<Part>,
}

/// A queue or an exchange.
#[derive(Debug, Serialize)]
pub struct Part {
    pub kind: PartKind,
    pub name: String,
    pub state: PartState,
    /// What the broker says of what differs.
    pub difference: Option<String>,
    /// Messages that wait; of a queue.
    pub messages: Option<u32>,
    /// Who takes them; of a queue.
    pub consumers: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    Queue,
    Exchange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartState {
    AsDeclared,
    Missing,
    Differs,
}

/// What becomes of the dead letters that are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposal {
    Keep,
    Requeue,
    Drop,
}

/// Messages that were refused, the oldest first.
#[derive(Debug, Serialize)]
pub struct DeadLetters {
    pub letters: Vec<DeadLetter>,
    /// How many there are beside them.
    pub more: u32,
}

/// A message that was refused.
#[derive(Debug, Serialize)]
pub struct DeadLetter {
    /// `None`: whoever made it did not say.
    pub reason: Option<String>,
    /// Where it came from; `None`: an older daemon did not say.
    pub queue: Option<String>,
    pub bytes: usize,
    /// How it begins; of what is no UTF-8, `U+FFFD` stands.
    pub excerpt: String,
    /// Whether it is in its queue again, and here no more.
    pub requeued: bool,
    /// Why it was to be, and is not.
    pub problem: Option<String>,
}
