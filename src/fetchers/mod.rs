//! Fetchers that the daemon runs itself, as its configuration file says: each has a schedule of [`crate::schedule`]
//! and fetches by [`crate::fetch`] (docs/spec/on-change.md, docs/configuration.md).
//!
//! [`Fetchers`] is a service of the supervision tree, started by `serve`. Here are the fetchers' supervision
//! ([`supervisor`]), what is around each of their runs ([`runs`]) and their memory over restarts ([`record`]). No SQL, no
//! socket.

mod record;
mod runs;
mod supervisor;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;

use actix::prelude::*;
use shiftboss_actors::clock::SystemClock;
use shiftboss_actors::exit_notifier::ExitNotifier;
use shiftboss_actors::service::{RunFetcher, Service, ServiceLinks};
use shiftboss_protocol::wire::session::Refused;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use supervisor::RUNS_MAX;

use crate::child::Guardian;
use crate::config::FetcherTable;
use supervisor::{Supervisor, SupervisorParts};

pub struct Fetchers {
    input: PathBuf,
    database: PathBuf,
    wanted: watch::Receiver<Vec<FetcherTable>>,
    running: Option<(Rc<Supervisor>, JoinHandle<()>)>,
}

impl Fetchers {
    /// Runs those that are wanted, whose lists go to `input`; what is sent later takes their place.
    /// The files for their commands are beside the database.
    pub fn new(
        input: PathBuf,
        database: PathBuf,
        wanted: watch::Receiver<Vec<FetcherTable>>,
    ) -> Self {
        Self { input, database, wanted, running: None }
    }
}

impl Service for Fetchers {
    fn name(&self) -> &'static str {
        "the FetchersActor"
    }

    fn start(&mut self, links: ServiceLinks, exit_notifier: ExitNotifier<String>) {
        let (input, database) = (self.input.clone(), self.database.clone());
        let guardian = Guardian::default();
        let parts = SupervisorParts {
            runs: Box::new(move |table| runs::of_table(table, &input, &database, &guardian)),
            wanted: self.wanted.clone(),
            links: links.fetchers,
            clock: Rc::new(SystemClock),
        };
        let supervisor = Rc::new(Supervisor::new(parts));
        let life = Rc::clone(&supervisor).run();
        let life = actix::spawn(async move {
            let _exit_notifier = exit_notifier;
            life.await;
        });
        self.running = Some((supervisor, life));
    }

    fn run_fetcher(&self) -> Option<Recipient<RunFetcher>> {
        let (supervisor, _) = self.running.as_ref()?;
        Some(FetchersActor(Rc::clone(supervisor)).start().recipient())
    }

    fn stop(&mut self) -> Pin<Box<dyn Future<Output = ()>>> {
        let running = self.running.take();
        Box::pin(async move {
            if let Some((supervisor, life)) = running {
                supervisor.stop();
                // The panic hook has reported a panic there.
                let _ = life.await;
            }
        })
    }
}

/// Answers operators' requests for runs.
struct FetchersActor(Rc<Supervisor>);

impl Actor for FetchersActor {
    type Context = Context<Self>;
}

impl Handler<RunFetcher> for FetchersActor {
    type Result = Result<String, Refused>;

    fn handle(&mut self, RunFetcher(name): RunFetcher, _: &mut Self::Context) -> Self::Result {
        self.0.run_now(&name)
    }
}
