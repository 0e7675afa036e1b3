//! Services: actors of the program that the tree starts and stops beside its own. All that the tree knows of them is
//! what connections may ask. Called by [`tree`](crate::tree); the daemon's own fetchers are one, the relays' server is
//! another.
//!
//! A service is started once every run is registered, and stopped before storage. If it ends by itself, the process
//! ends, as with a central actor.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use actix::prelude::*;

use crate::exit_notifier::ExitNotifier;
use crate::file_watcher::{FileWatcherActor, WhyLost};
use crate::storage::StorageActor;
use crate::storage::messages::Perform;
use shiftboss_protocol::answers::live::BrokerLive;
use shiftboss_protocol::verbs::RunFetcherAnswer;
use shiftboss_protocol::wire::session::Refused;
use shiftboss_queue::operation::{FetcherRecords, ForgetFetcher, NoteFetcher};

/// Runs the managed fetcher of this name now.
pub type RunFetcher = Rc<dyn Fn(&str) -> Result<RunFetcherAnswer, Refused>>;

/// The last known state of the broker over which the daemon serves relays; sends no request. `None`: the service has
/// ended.
pub type LookAtBroker = Rc<dyn Fn() -> Option<BrokerLive>>;

/// What a service may say to storage and to the watcher.
#[derive(Clone)]
pub struct ServiceLinks {
    pub storage: Addr<StorageActor>,
    pub fetchers: FetcherLinks,
}

#[derive(Clone)]
pub struct FetcherLinks {
    pub note: Recipient<Perform<NoteFetcher>>,
    pub known: Recipient<Perform<FetcherRecords>>,
    pub forget: Recipient<Perform<ForgetFetcher>>,
    pub why_lost: Recipient<WhyLost>,
}

impl ServiceLinks {
    pub fn to(storage: &Addr<StorageActor>, watcher: &Addr<FileWatcherActor>) -> Self {
        let fetchers = FetcherLinks {
            note: storage.clone().recipient(),
            known: storage.clone().recipient(),
            forget: storage.clone().recipient(),
            why_lost: watcher.clone().recipient(),
        };
        Self { storage: storage.clone(), fetchers }
    }
}

/// An actor of the program that lives in the tree.
pub trait Service {
    /// Its name, for the report of a panic.
    fn name(&self) -> &'static str;

    /// Starts it on the caller's actix system. It keeps `exit_notifier` for its whole life.
    fn start(&mut self, links: ServiceLinks, exit_notifier: ExitNotifier);

    /// Runs fetchers for operators, if it has any; called once it is started.
    fn run_fetcher(&self) -> Option<RunFetcher> {
        None
    }

    /// How to look at the broker, if it serves relays; called once it is started.
    fn broker(&self) -> Option<LookAtBroker> {
        None
    }

    /// Stops it; resolves when it no longer holds anything.
    fn stop(&mut self) -> Pin<Box<dyn Future<Output = ()>>>;
}
