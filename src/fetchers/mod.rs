//! Fetchers that the daemon runs itself, as its configuration file says: each is one RunActor, with a
//! ChangeActor where it watches trees (docs/spec/on-change.md, docs/configuration.md).
//!
//! [`Fetchers`] is a service of the supervision tree, started by `serve`. When a run is due is decided in
//! [`crate::change`], what a run does in [`crate::fetch`]; here are their wiring ([`child`]), their
//! supervision ([`supervisor`]) and their memory over restarts ([`record`]). No SQL, no socket.

mod begin;
mod child;
mod fetch_runs;
mod output;
mod record;
mod supervisor;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use actix::prelude::*;
use shiftboss_actors::clock::SystemClock;
use shiftboss_actors::exit_notifier::ExitNotifier;
use shiftboss_actors::service::{RunFetcher, Service, ServiceLinks};
use tokio::sync::watch;

pub use begin::RUNS_MAX;

use crate::child::Guardian;
use crate::config::FetcherTable;
use supervisor::{FetchersActor, StopAll, SupervisorParts};

/// The service that runs fetchers.
pub struct Fetchers {
    input: PathBuf,
    database: PathBuf,
    wanted: watch::Receiver<Vec<FetcherTable>>,
    actor: Option<Addr<FetchersActor>>,
}

impl Fetchers {
    /// Runs those that are wanted, whose lists go to `input`; what is sent later takes their place.
    /// What their commands are told stands beside the database.
    #[must_use]
    pub fn new(
        input: PathBuf,
        database: PathBuf,
        wanted: watch::Receiver<Vec<FetcherTable>>,
    ) -> Self {
        Self { input, database, wanted, actor: None }
    }
}

impl Service for Fetchers {
    fn name(&self) -> &'static str {
        "the FetchersActor"
    }

    fn start(&mut self, links: ServiceLinks, exit_notifier: ExitNotifier<String>) {
        let (input, database) = (self.input.clone(), self.database.clone());
        let guardian = Guardian::new();
        let runs = move |table: &FetcherTable| fetch_runs::of(table, &input, &database, &guardian);
        let parts = SupervisorParts {
            runs: Box::new(runs),
            wanted: self.wanted.clone(),
            memory: links.into(),
            clock: Box::new(SystemClock),
            _exit_notifier: exit_notifier,
        };
        self.actor = Some(FetchersActor::new(parts).start());
    }

    fn run_fetcher(&self) -> Option<Recipient<RunFetcher>> {
        self.actor.clone().map(Addr::recipient)
    }

    fn stop(&mut self) -> Pin<Box<dyn Future<Output = ()>>> {
        let actor = self.actor.take();
        Box::pin(async move {
            if let Some(actor) = actor {
                // An actor that is gone has nothing to stop.
                let _ = actor.send(StopAll).await;
            }
        })
    }
}
