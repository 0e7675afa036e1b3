//! What operators are shown of a broker: the JSON objects of `shiftboss broker` are made of these (docs/json.md).
//!
//! Filled by [`check`](mod@super::check) and [`dead_letters`](mod@super::dead_letters). Builds without brokers have these types, too.

use serde::Serialize;

/// Bytes of a dead letter that are shown.
pub(crate) const EXCERPT_BYTES_MAX: usize = 160;

/// Whether a broker can be used, and how long its queues are.
#[derive(Debug, Serialize)]
pub(crate) struct BrokerCheck {
    /// False: it is short of memory or disk, and holds back all that is published.
    pub(crate) takes_messages: bool,
    /// The largest message that it takes, where that is less than what may be sent.
    pub(crate) max_message_bytes: Option<usize>,
    /// Queues first.
    pub(crate) parts: Vec<Part>,
}

/// A queue or an exchange.
#[derive(Debug, Serialize)]
pub(crate) struct Part {
    pub(crate) kind: PartKind,
    pub(crate) name: String,
    pub(crate) state: PartState,
    /// What the broker says of what differs.
    pub(crate) difference: Option<String>,
    /// Messages that wait; of a queue.
    pub(crate) messages: Option<u32>,
    /// Who takes them; of a queue.
    pub(crate) consumers: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PartKind {
    Queue,
    Exchange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PartState {
    AsDeclared,
    Missing,
    Differs,
}

/// What becomes of the dead letters that are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disposal {
    Keep,
    Requeue,
    Drop,
}

/// Messages that were refused, the oldest first.
#[derive(Debug, Serialize)]
pub(crate) struct DeadLetters {
    pub(crate) letters: Vec<DeadLetter>,
    /// How many there are beside them.
    pub(crate) more: u32,
}

/// A message that was refused.
#[derive(Debug, Serialize)]
pub(crate) struct DeadLetter {
    /// `None`: whoever made it did not say.
    pub(crate) reason: Option<String>,
    /// Where it came from; `None`: an older daemon did not say.
    pub(crate) queue: Option<String>,
    pub(crate) bytes: usize,
    /// How it begins; of what is no UTF-8, `U+FFFD` stands.
    pub(crate) excerpt: String,
    /// Whether it is in its queue again, and here no more.
    pub(crate) requeued: bool,
    /// Why it was to be, and is not.
    pub(crate) problem: Option<String>,
}
