//! Services: actors of the program that the tree starts and stops beside its own. It knows of them only what
//! connections may ask. Called by [`tree`](crate::tree); the daemon's own fetchers are one, the relays' server is another.
//!
//! A service is started once every run is registered and stopped before storage. Its end by itself ends
//! the process, as that of a central actor does.

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

/// Has a fetcher of this name, which the daemon runs itself, run now.
pub type RunFetcher = Rc<dyn Fn(&str) -> Result<RunFetcherAnswer, Refused>>;

/// Tells how the broker is over which the daemon serves relays. Asks nobody. `None`: the service has ended.
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

/// An actor of the program's that lives in the tree.
pub trait Service {
    /// As it is called when it panicked.
    fn name(&self) -> &'static str;

    /// Starts it, on the caller's actix system. It keeps `exit_notifier` for its whole life.
    fn start(&mut self, links: ServiceLinks, exit_notifier: ExitNotifier);

    /// Has fetchers run for operators, if it has any; asked once it is started.
    fn run_fetcher(&self) -> Option<RunFetcher> {
        None
    }

    /// How to look at the broker, if it serves relays; asked once it is started.
    fn broker(&self) -> Option<LookAtBroker> {
        None
    }

    /// Stops it; resolves when it holds nothing any more.
    fn stop(&mut self) -> Pin<Box<dyn Future<Output = ()>>>;
}
