//! The actors that connections ask, and what connections share. Made by the tree; one set for all connections.

use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use tokio::sync::Semaphore;

use super::workers::Workers;
use crate::file_watcher::{AcceptInput, CatchUpBarrier};
use crate::metrics::Metrics;
use crate::service::{LookAtBroker, RunFetcher};
use crate::storage::StorageActor;
use crate::storage::messages::TakeJob;
use shiftboss_protocol::answers::live::{Daemon, ProcessUsage};
use shiftboss_queue::operation::Complete;
use shiftboss_queue::reader::Reader;

/// Operators' questions that are being answered at once.
const QUESTIONS_AT_ONCE: usize = 4;

#[derive(Clone)]
pub struct WorkLinks {
    pub dispatch: Recipient<TakeJob<()>>,
    pub finish: Recipient<TakeJob<Complete>>,
    pub barrier: Recipient<CatchUpBarrier>,
    pub metrics: Arc<Metrics>,
    /// For connections that opt in to protocol 2; `None`: none may.
    pub session: Option<Rc<SessionLinks>>,
}

/// Who the operators are, and what their requests are answered from. Without it no connection may opt in to protocol 2.
#[derive(Clone)]
pub struct Operators {
    /// Answers their questions about the queue; `None`: this is a relay, which has no queue.
    pub reader: Option<Arc<dyn Reader>>,
    /// This daemon: every answer begins with it.
    pub daemon: Arc<Daemon>,
    /// The group whose members are operators, as the daemon's user and root are.
    pub group: Option<u32>,
    /// Resources that the daemon's process uses; `None`: they cannot be read.
    pub usage: fn() -> Option<ProcessUsage>,
    /// Lines of its log that were dropped since its start.
    pub dropped_log_lines: fn() -> u64,
}

/// What a connection that speaks protocol 2 asks beyond what every connection does.
pub struct SessionLinks {
    pub storage: Addr<StorageActor>,
    /// Accepts the input directory as it is.
    pub accept_input: Recipient<AcceptInput>,
    /// Runs of the daemon's own fetchers; `None`: it has none.
    pub run_fetcher: Option<RunFetcher>,
    /// `None`: the daemon serves no relays.
    pub broker: Option<LookAtBroker>,
    pub operators: Operators,
    pub(super) room: Arc<Semaphore>,
    pub(super) workers: Workers,
}

impl SessionLinks {
    pub fn new(
        storage: Addr<StorageActor>,
        accept_input: Recipient<AcceptInput>,
        run_fetcher: Option<RunFetcher>,
        broker: Option<LookAtBroker>,
        operators: Operators,
    ) -> Self {
        let (room, workers) = (Arc::new(Semaphore::new(QUESTIONS_AT_ONCE)), Workers::default());
        Self { storage, accept_input, run_fetcher, broker, operators, room, workers }
    }
}
