//! Runs that fetch a list: [`Runs`] over a [`Fetcher`]. The command of one that watches is given what changed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{Mutex, oneshot};

use super::{Delivered, FetchError, Fetcher, Given, Observer};
use crate::change::handover::hand_over;
use crate::change::paths::Changed;
use crate::change::schedule::{Outcome, Run, Runs};
use crate::exit::ExitCode;

/// A shell's code for what cannot be executed.
const NOT_EXECUTABLE: u8 = 126;

/// The runs of one fetcher.
pub struct FetchRuns {
    /// Locked by the one run that is on.
    fetcher: Arc<Mutex<Fetcher>>,
    /// Makes what shows a run.
    observer: Box<dyn Fn() -> Box<dyn Observer>>,
    /// `None`: it watches nothing.
    changes: Option<Arc<Changes>>,
    /// Between two runs somebody may fetch the list by hand.
    is_shared: bool,
}

impl FetchRuns {
    pub fn new(fetcher: Fetcher, observer: Box<dyn Fn() -> Box<dyn Observer>>) -> Self {
        let fetcher = Arc::new(Mutex::new(fetcher));
        Self { fetcher, observer, changes: None, is_shared: false }
    }

    /// The same, but the list is given up between two runs, and the command is given the file of `changes`.
    pub fn shared(self, changes: Option<Changes>) -> Self {
        Self { changes: changes.map(Arc::new), is_shared: true, ..self }
    }
}

impl Runs for FetchRuns {
    fn start(&mut self, changed: Changed, stop: oneshot::Receiver<()>) -> Run {
        let (fetcher, changes) = (Arc::clone(&self.fetcher), self.changes.clone());
        let (observer, is_shared) = ((self.observer)(), self.is_shared);
        Box::pin(async move {
            let given = match given(changes, changed).await {
                Ok(given) => given,
                Err(message) => return Outcome { exit_code: NOT_EXECUTABLE, message },
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

/// What a command is called with, and the file that names what changed.
pub struct Changes {
    pub program: OsString,
    pub arguments: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    pub file: PathBuf,
}

impl Drop for Changes {
    fn drop(&mut self) {
        // It may never have been written.
        let _ = std::fs::remove_file(&self.file);
    }
}

/// What this run's command is given beyond the settings; else why it cannot be.
async fn given(changes: Option<Arc<Changes>>, changed: Changed) -> Result<Given, String> {
    let Some(changes) = changes else {
        return Ok(Given::default());
    };
    let handed = tokio::task::spawn_blocking(move || {
        let Changes { program, arguments, environment, file } = &*changes;
        hand_over(program, arguments, environment, file, &changed)
    });
    match handed.await {
        Ok(Ok(handed)) => {
            Ok(Given { arguments: Some(handed.arguments), environment: handed.environment })
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the changed paths could not be handed over".to_owned()),
    }
}
