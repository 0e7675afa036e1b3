//! Relays: machines that reach a message broker (RabbitMQ) but not the database. A relay has fetchers and workers as a daemon
//! has, and asks a daemon for all that storage does, over the broker.
//!
//! [`relay`] is the relay's side: a `Store`, so the tree is the daemon's own. [`server`] is the daemon's: a service of the
//! tree that has storage carry out what relays ask; what it refuses becomes one of the [`dead_letters`](mod@dead_letters).
//! [`check`](mod@check) looks at a broker, and [`report`] is what operators are shown. Both speak [`message`]s (docs/broker.md) over a [`link`], whose queues are named and declared by [`topology`]; what a
//! broker refuses is read by [`refusal`]. What a relay has is told apart by the store ([`shiftboss_queue::operation::Relayed`]).
//! Nothing here knows SQL, files or the socket.

mod alarm;
mod check;
mod dead_letters;
mod link;
mod liveness;
mod message;
mod queue_kind;
mod range;
mod refusal;
mod relay;
mod report;
mod rpc_client;
mod server;
mod topology;

use std::path::PathBuf;

use shiftboss_actors::service::Service;
use shiftboss_actors::store::Store;
use shiftboss_queue::operation::JoinedRelay;
use tokio::runtime::{Builder, Runtime};

use crate::exit::{ExitCode, Failure};
use crate::stores::start_failure;
use dead_letters::Look;
pub use link::Broker;
pub use queue_kind::QueueKind;
pub use relay::MessageSize;
pub use relay::Settings as RelayLink;
pub(crate) use report::{
    BrokerCheck, DeadLetter, DeadLetters, Disposal, Part, PartKind, PartState,
};

/// What the names on the broker begin with, unless another installation shares it.
pub(crate) const BROKER_PREFIX: &str = "shiftboss.";

/// A relay that has joined.
pub(crate) struct Opened {
    /// For workers and operators.
    pub(crate) store: Box<dyn Store + Send>,
    /// For files.
    pub(crate) list_store: Box<dyn Store + Send>,
    pub(crate) found: JoinedRelay,
}

/// What has a daemon serve relays; operators' orders are taken from those that are named.
/// `file`: what the queue is in; `None`: several daemons have it.
pub(crate) fn service(
    broker: Broker,
    operators: Vec<String>,
    file: Option<PathBuf>,
) -> Result<Box<dyn Service>, Failure> {
    Ok(Box::new(server::Relays::new(broker, operators, file)))
}

/// Looks at a broker.
pub(crate) fn check(broker: &Broker) -> Result<BrokerCheck, Failure> {
    runtime()?.block_on(check::check(broker)).map_err(start_failure)
}

/// Has `show` show dead letters, at most `count`, and does with them what is asked. Those of which nobody was told that they are
/// deleted stay.
pub(crate) fn dead_letters(
    broker: &Broker,
    count: u16,
    disposal: Disposal,
    show: impl FnOnce(&DeadLetters) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    runtime()?.block_on(async {
        let look = Look::take(broker, count, disposal).await.map_err(start_failure)?;
        let is_told = show(&look.found)?;
        look.settle(is_told && disposal == Disposal::Drop).await.map_err(start_failure)
    })
}

/// Begins a relay, once a daemon answers; `waits` is called while none does.
pub(crate) async fn open(settings: RelayLink, waits: impl Fn()) -> Result<Opened, Failure> {
    let (store, lists, found) = relay::open(settings, waits).await.map_err(start_failure)?;
    let (store, list_store) = (Box::new(store), Box::new(lists));
    Ok(Opened { store, list_store, found })
}

fn runtime() -> Result<Runtime, Failure> {
    Builder::new_current_thread().enable_all().build().map_err(Failure::of(ExitCode::Internal))
}
