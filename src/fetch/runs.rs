//! Runs that fetch a list: [`Runs`] over a [`Fetcher`].

use std::sync::Arc;

use tokio::sync::{Mutex, oneshot};

use super::{Delivered, FetchError, Fetcher, Observer};
use crate::exit::ExitCode;
use crate::schedule::handover::NOT_EXECUTABLE;
use crate::schedule::paths::Changed;
use crate::schedule::scheduler::{Outcome, Run, Runs};

/// The runs of one fetcher.
pub struct FetchRuns {
    /// Locked by the one run that is on.
    fetcher: Arc<Mutex<Fetcher>>,
    /// Makes what shows a run.
    observer: Box<dyn Fn() -> Box<dyn Observer>>,
    /// Between two runs somebody may fetch the list by hand.
    is_shared: bool,
}

impl FetchRuns {
    pub fn new(
        fetcher: Fetcher,
        observer: Box<dyn Fn() -> Box<dyn Observer>>,
        is_shared: bool,
    ) -> Self {
        Self { fetcher: Arc::new(Mutex::new(fetcher)), observer, is_shared }
    }
}

impl Runs for FetchRuns {
    fn start(&mut self, changed: Changed, stop: oneshot::Receiver<()>) -> Run {
        let fetcher = Arc::clone(&self.fetcher);
        let (observer, is_shared) = ((self.observer)(), self.is_shared);
        Box::pin(async move {
            let stopped = async { _ = stop.await };
            let mut fetcher = fetcher.lock().await;
            let fetched = fetcher.run(changed, observer, stopped).await;
            if is_shared {
                fetcher.release();
            }
            outcome(fetched)
        })
    }
}

fn outcome(fetched: Result<Delivered, FetchError>) -> Outcome {
    match fetched {
        Ok(Delivered { file, accepted, faulty }) => {
            Outcome { exit_code: 0, message: format!("{accepted} lines, {faulty} faulty: {file}") }
        }
        Err(error) => {
            let exit_code = match &error {
                FetchError::Command { end, .. } => end.shell_code(),
                FetchError::Start(error) => error.shell_code(),
                FetchError::Changed(_) => NOT_EXECUTABLE,
                _ => ExitCode::Unavailable as u8,
            };
            Outcome { exit_code, message: error.to_string() }
        }
    }
}
