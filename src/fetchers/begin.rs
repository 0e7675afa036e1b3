//! Runs that begin when not too many others run, the input directory is there, and it is on disk that they begin: so
//! one that a crash breaks off is known to be still to be done.
//!
//! [`super::supervisor`] puts it around each fetcher's runs, and answers [`Begin`].

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use shiftboss_actors::file_watcher::WhyLost;
use tokio::sync::Semaphore;
use tracing::warn;

use crate::exit::ExitCode;
use crate::fetch::ListName;
use crate::schedule::scheduler::{Outcome, StartRun};

/// How often a run that waits looks for the input directory.
const LOST_PAUSE: Duration = Duration::from_secs(1);
/// Runs of all fetchers at once; others wait for their turn.
pub const RUNS_MAX: usize = 64;

/// A run of this fetcher is about to begin; answered when that is noted, or cannot be.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Begin(pub ListName);

pub(super) struct NotedRuns {
    pub name: ListName,
    pub start: StartRun,
    pub begin: Recipient<Begin>,
    pub why_lost: Recipient<WhyLost>,
    pub running: Arc<Semaphore>,
}

pub(super) fn noted(runs: NotedRuns) -> StartRun {
    let runs = Rc::new(runs);
    Rc::new(move |changed, mut stop| {
        let runs = Rc::clone(&runs);
        Box::pin(async move {
            let ready = async {
                input_is_there(&runs.why_lost, &runs.name).await;
                runs.running.acquire().await
            };
            let _permit = tokio::select! {
                permit = ready => permit,
                _ = &mut stop => return stopped(),
            };
            // The schedule has noted the run by now. One that cannot be stored is done all the same.
            let _ = runs.begin.send(Begin(runs.name.clone())).await;
            (runs.start)(changed, stop).await
        })
    })
}

/// Waits while the input directory is lost: a list that is put into another one would be taken for what the
/// input holds, and nobody else's list is there.
async fn input_is_there(why_lost: &Recipient<WhyLost>, name: &ListName) {
    let mut is_warned = false;
    // Who is not answered is stopped in a moment.
    while let Ok(Some(reason)) = why_lost.send(WhyLost).await {
        if !is_warned {
            warn!(
                name = name.as_str(),
                reason, "The run waits for the input directory, which is lost."
            );
            is_warned = true;
        }
        tokio::time::sleep(LOST_PAUSE).await;
    }
}

fn stopped() -> Outcome {
    let message = "stopped while it waited for its turn".to_owned();
    Outcome { exit_code: ExitCode::Unavailable as u8, message }
}
