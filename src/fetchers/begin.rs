//! Runs that begin when there is a place for them, and when it is on disk that they do: one that is broken
//! off by a death is then known to be still to be done.
//!
//! [`super::supervisor`] puts it around each fetcher's runs, and answers [`Begin`].

use std::sync::Arc;

use actix::prelude::*;
use tokio::sync::{Semaphore, oneshot};

use crate::change::paths::Changed;
use crate::change::runs::{Outcome, Run, Runs};
use crate::exit::ExitCode;
use crate::fetch::ListName;

/// Runs of all fetchers at once; others wait for their turn.
pub const RUNS_MAX: usize = 64;

/// A run of this fetcher is about to begin; answered when that is noted, or cannot be.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Begin(pub ListName);

/// See the module. The runs within start nothing before they are waited for.
pub(super) struct NotedRuns {
    pub name: ListName,
    pub runs: Box<dyn Runs>,
    pub begin: Recipient<Begin>,
    pub places: Arc<Semaphore>,
}

impl Runs for NotedRuns {
    fn start(&mut self, changed: Changed, mut stop: oneshot::Receiver<()>) -> Run {
        let (tell, told) = oneshot::channel();
        let mut run = self.runs.start(changed, told);
        let (begin, name) = (self.begin.clone(), self.name.clone());
        let places = Arc::clone(&self.places);
        Box::pin(async move {
            let _place = tokio::select! {
                place = places.acquire_owned() => place,
                _ = &mut stop => return stopped(),
            };
            // The machine has told of the run by now. One that cannot be noted is done all the same.
            let _ = begin.send(Begin(name)).await;
            tokio::select! {
                outcome = &mut run => outcome,
                _ = &mut stop => {
                    let _ = tell.send(());
                    run.await
                }
            }
        })
    }
}

fn stopped() -> Outcome {
    let told = "stopped while it waited for its turn".to_owned();
    Outcome { exit_code: ExitCode::Unavailable as u8, told }
}
