//! Fetchers that the daemon runs itself, as its configuration file says: each has a schedule of [`crate::schedule`]
//! and fetches by [`crate::fetch`] (docs/spec/on-change.md, docs/configuration.md).
//!
//! [`Fetchers`] is a service of the supervision tree, started by `serve`. Here are the fetchers' wiring ([`fetcher`]),
//! their supervision ([`supervisor`]) and their memory over restarts ([`record`]). No SQL, no socket.

mod begin;
mod fetcher;
mod output;
mod record;
mod supervisor;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;

use actix::prelude::*;
use shiftboss_actors::clock::SystemClock;
use shiftboss_actors::exit_notifier::ExitNotifier;
use shiftboss_actors::service::{RunFetcher, Service, ServiceLinks};
use tokio::sync::watch;

pub use begin::RUNS_MAX;

use crate::child::Guardian;
use crate::config::FetcherTable;
use crate::fetch::{self, Fetcher, Settings};
use crate::schedule::scheduler::StartRun;
use output::ToLog;
use supervisor::{FetchersActor, StopAll, SupervisorParts};

pub struct Fetchers {
    input: PathBuf,
    database: PathBuf,
    wanted: watch::Receiver<Vec<FetcherTable>>,
    actor: Option<Addr<FetchersActor>>,
}

impl Fetchers {
    /// Runs those that are wanted, whose lists go to `input`; what is sent later takes their place.
    /// The files for their commands are beside the database.
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
        let runs = move |table: &FetcherTable| runs(table, &input, &database, &guardian);
        let parts = SupervisorParts {
            runs: Box::new(runs),
            wanted: self.wanted.clone(),
            links: links.fetchers,
            clock: Rc::new(SystemClock),
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

/// The runs of a fetcher whose lists go to `input`.
fn runs(table: &FetcherTable, input: &Path, database: &Path, guardian: &Guardian) -> StartRun {
    let name = table.name.shared();
    let observer = move || Box::new(ToLog(name.clone())) as _;
    let fetcher = Fetcher::new(settings(table, input, database), guardian.clone());
    fetch::runs(fetcher, observer, true)
}

fn settings(table: &FetcherTable, input: &Path, database: &Path) -> Settings {
    let mut words = table.command.iter().cloned();
    let variable = |(name, value): (&String, &String)| (name.into(), value.into());
    Settings {
        input: input.to_owned(),
        name: table.name.clone(),
        // A command has a program: the file was refused otherwise.
        program: words.next().unwrap_or_default(),
        arguments: words.collect(),
        environment: table.environment.iter().map(variable).collect(),
        directory: Some(table.directory.clone()),
        time_limit: table.timeout,
        grace: table.grace,
        min_lines: table.min_lines,
        min_share: table.min_share,
        live: table.live,
        changed_file: table.on_change.is_some().then(|| table.name.changed_file(database)),
    }
}
