//! Relays: machines that reach a message broker (RabbitMQ) but not the database. A relay has fetchers and workers as a daemon
//! has, and asks a daemon for all that storage does, over the broker.
//!
//! [`relay`] is the relay's side: a `Store`, so the tree is the daemon's own. [`server`] is the daemon's: a service of the
//! tree that has storage carry out what relays ask. [`reader`] stands where a database would be looked at. Both speak [`message`]s (docs/broker.md) over a [`link`], whose queues are
//! named and declared by [`topology`]. What a relay has is told apart by the store ([`shiftboss_actors::store::Relayed`]).
//! Nothing here knows SQL, files or the socket.

mod link;
mod liveness;
mod message;
mod reader;
mod relay;
mod rpc_client;
mod server;
mod topology;

use std::sync::Arc;

use shiftboss_actors::service::Service;
use shiftboss_actors::store::{JoinedRelay, Reader, Store};
use tokio::runtime::Builder;

use crate::exit::{ExitCode, Failure};
use crate::stores::start_failure;
pub use link::Broker;

/// What the names on the broker begin with, unless another installation shares it.
pub(crate) const BROKER_PREFIX: &str = "shiftboss.";

/// A relay's store, what it found, and what answers operators who ask about the queue.
pub(crate) type Opened = (Box<dyn Store + Send>, JoinedRelay, Arc<dyn Reader>);

/// What has a daemon serve relays; operators' orders are taken from those that are named.
pub(crate) fn service(broker: Broker, operators: Vec<String>) -> Result<Box<dyn Service>, Failure> {
    Ok(Box::new(server::Relays::new(broker, operators)))
}

/// Begins a relay of that name.
pub(crate) fn open(broker: Broker, name: &str) -> Result<Opened, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Failure::of(ExitCode::Internal))?;
    let settings = relay::Settings { broker, name: name.to_owned() };
    let store = runtime.block_on(relay::RelayStore::open(settings)).map_err(start_failure)?;
    let found = store.found().clone();
    Ok((Box::new(store), found, Arc::new(reader::RelayReader)))
}
