//! Runs that begin when there is a place for them and for their list, and when it is on disk that they do: one that is broken
//! off by a death is then known to be still to be done.
//!
//! [`super::supervisor`] puts it around each fetcher's runs, and answers [`Begin`].

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use shiftboss_actors::file_watcher::WhyLost;
use tokio::sync::{Semaphore, oneshot};
use tracing::warn;

use crate::change::paths::Changed;
use crate::change::runs::{Outcome, Run, Runs};
use crate::exit::ExitCode;
use crate::fetch::ListName;

/// How often a run that waits looks for the input directory.
const LOST_PAUSE: Duration = Duration::from_secs(1);
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
    pub why_lost: Recipient<WhyLost>,
    pub places: Arc<Semaphore>,
}

impl Runs for NotedRuns {
    fn start(&mut self, changed: Changed, mut stop: oneshot::Receiver<()>) -> Run {
        let (tell, message) = oneshot::channel();
        let mut run = self.runs.start(changed, message);
        let (begin, name) = (self.begin.clone(), self.name.clone());
        let (places, why_lost) = (Arc::clone(&self.places), self.why_lost.clone());
        Box::pin(async move {
            let ready = async {
                input_is_there(&why_lost, &name).await;
                places.acquire_owned().await
            };
            let _place = tokio::select! {
                place = ready => place,
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

/// Waits while the input directory is lost: a list that is put into another one would be taken for what the
/// input holds, and nobody else's list is there.
async fn input_is_there(why_lost: &Recipient<WhyLost>, name: &ListName) {
    let mut is_told = false;
    // Who is not answered is stopped in a moment.
    while let Ok(Some(reason)) = why_lost.send(WhyLost).await {
        if !is_told {
            warn!(
                name = name.as_str(),
                reason, "The run waits for the input directory, which is lost."
            );
            is_told = true;
        }
        tokio::time::sleep(LOST_PAUSE).await;
    }
}

fn stopped() -> Outcome {
    let message = "stopped while it waited for its turn".to_owned();
    Outcome { exit_code: ExitCode::Unavailable as u8, message }
}
