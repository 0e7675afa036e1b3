//! Relays: machines that reach a message broker (RabbitMQ) but not the database. A relay has fetchers and workers like
//! a daemon, and asks a daemon over the broker for everything that storage does.
//!
//! [`store`] is the relay's side: two `Store`s, so the tree is the daemon's own. [`server`] is the daemon's: a service of the tree
//! that has storage carry out what relays ask; what it refuses becomes one of the [`dead_letters`](mod@dead_letters).
//! [`check`](mod@check) looks at a broker. Both sides speak [`message`]s (docs/broker.md) over a [`link`], whose queues are named
//! and declared by [`topology`]; [`refusal`] reads a broker's refusals. The queue distinguishes what each relay owns
//! ([`shiftboss_queue::operation::Relayed`]).
//!
//! The program's commands call it. Nothing here knows SQL, the socket or the command line.

mod check;
mod dead_letters;
mod link;
mod message;
mod refusal;
mod server;
mod store;
mod topology;

pub use check::{BrokerCheck, Part, PartKind, PartState, check};
pub use dead_letters::{DeadLetter, DeadLetters, Disposal, Look};
pub use link::{BadUrl, Broker};
pub use message::MessageSize;
pub use server::Relays;
pub use store::{Opened, Settings, open};
pub use topology::{PREFIX, QueueKind};

/// The machine's.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
