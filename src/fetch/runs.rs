//! Runs that fetch a list: [`Runs`] over a [`Fetcher`]. The command of one that watches is given what changed.

use std::sync::Arc;

use tokio::sync::{Mutex, oneshot};

use super::{Delivered, FetchError, Fetcher, Observer};
use crate::exit::ExitCode;
use crate::schedule::handover::{Given, Handover};
use crate::schedule::paths::Changed;
use crate::schedule::scheduler::{Outcome, Run, Runs};

/// The runs of one fetcher.
pub struct FetchRuns {
    /// Locked by the one run that is on.
    fetcher: Arc<Mutex<Fetcher>>,
    /// Makes what shows a run.
    observer: Box<dyn Fn() -> Box<dyn Observer>>,
    /// `None`: it watches nothing.
    handover: Option<Arc<Handover>>,
    /// Between two runs somebody may fetch the list by hand.
    is_shared: bool,
}

impl FetchRuns {
    pub fn new(fetcher: Fetcher, observer: Box<dyn Fn() -> Box<dyn Observer>>) -> Self {
        let fetcher = Arc::new(Mutex::new(fetcher));
        Self { fetcher, observer, handover: None, is_shared: false }
    }

    /// The same, but the list is given up between two runs, and the command is given the file of `handover`.
    pub fn shared(self, handover: Option<Handover>) -> Self {
        Self { handover: handover.map(Arc::new), is_shared: true, ..self }
    }
}

impl Runs for FetchRuns {
    fn start(&mut self, changed: Changed, stop: oneshot::Receiver<()>) -> Run {
        let (fetcher, handover) = (Arc::clone(&self.fetcher), self.handover.clone());
        let (observer, is_shared) = ((self.observer)(), self.is_shared);
        Box::pin(async move {
            let given = match handover {
                None => Given::default(),
                Some(handover) => match handover.give(changed).await {
                    Ok(given) => given,
                    Err(outcome) => return outcome,
                },
            };
            let stopped = async { _ = stop.await };
            let mut fetcher = fetcher.lock().await;
            let fetched = fetcher.run(given, observer, stopped).await;
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
                _ => ExitCode::Unavailable as u8,
            };
            Outcome { exit_code, message: error.to_string() }
        }
    }
}
