//! Fetchers that the daemon runs itself, as its configuration file says: each has a schedule of [`crate::schedule`]
//! and fetches by [`crate::fetch`] (docs/spec/on-change.md, docs/configuration.md).
//!
//! [`Fetchers`] is a service of the supervision tree, started by `serve`. This module has what a run shows; the
//! fetchers' supervision is in [`supervisor`], their memory over restarts in [`record`]. No SQL, no socket.

mod record;
mod supervisor;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use shiftboss_actors::clock::SystemClock;
use shiftboss_actors::exit_notifier::ExitNotifier;
use shiftboss_actors::service::{RunFetcher, Service, ServiceLinks};
use shiftboss_protocol::fetcher_file::SkipReason;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{info, warn};

pub use supervisor::RUNS_MAX;

use crate::child::Guardian;
use crate::config::FetcherTable;
use crate::fetch::{self, Fetcher, Observer};
use supervisor::{Runs, Supervisor};

pub struct Fetchers {
    input: PathBuf,
    beside: PathBuf,
    wanted: watch::Receiver<Vec<FetcherTable>>,
    running: Option<(Rc<Supervisor>, JoinHandle<()>)>,
}

impl Fetchers {
    /// Runs the wanted fetchers, whose lists go to `input`; a later set replaces them. The files for their commands are
    /// `beside` a file of the daemon's own.
    pub fn new(
        input: PathBuf,
        beside: PathBuf,
        wanted: watch::Receiver<Vec<FetcherTable>>,
    ) -> Self {
        Self { input, beside, wanted, running: None }
    }

    fn runs(&self) -> Runs {
        let (input, beside) = (self.input.clone(), self.beside.clone());
        let guardian = Guardian::default();
        Box::new(move |table| {
            let name = table.list.name.shared();
            let observer = move || Box::new(ToLog(name.clone())) as _;
            let changed_file =
                table.on_change.is_some().then(|| table.list.name.changed_file(&beside));
            let list = table.list.clone();
            let fetcher = Fetcher::new(input.clone(), list, guardian.clone(), changed_file);
            fetch::runs(fetcher, observer, true)
        })
    }
}

impl Service for Fetchers {
    fn name(&self) -> &'static str {
        "the fetchers' supervisor"
    }

    fn start(&mut self, links: ServiceLinks, exit_notifier: ExitNotifier) {
        let (wanted, clock) = (self.wanted.clone(), Rc::new(SystemClock));
        let supervisor = Rc::new(Supervisor::new(self.runs(), wanted, links.fetchers, clock));
        let life = Rc::clone(&supervisor).run();
        let life = actix_rt::spawn(async move {
            let _exit_notifier = exit_notifier;
            life.await;
        });
        self.running = Some((supervisor, life));
    }

    fn run_fetcher(&self) -> Option<RunFetcher> {
        let supervisor = Rc::clone(&self.running.as_ref()?.0);
        Some(Rc::new(move |name| supervisor.run_now(name)))
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

/// Shows a run in the daemon's log, with the fetcher's name.
struct ToLog(Arc<str>);

impl Observer for ToLog {
    fn complaint(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        if !line.is_empty() {
            info!(name = &*self.0, "stderr: {}", String::from_utf8_lossy(line));
        }
    }

    fn faulty(&mut self, line: u64, reason: SkipReason) {
        warn!(name = &*self.0, line, %reason, "A faulty line: it is skipped.");
    }

    fn lines(&mut self, _: u64) {}
}
