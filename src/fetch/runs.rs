//! Runs that fetch a list, for a schedule.

use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Mutex;

use super::{Delivered, FetchError, Fetcher, Observer};
use crate::exit::ExitCode;
use crate::schedule::handover::NOT_EXECUTABLE;
use crate::schedule::scheduler::{Outcome, StartRun};

/// The runs of one fetcher, each shown by an observer of its own. If they are shared, somebody may fetch the list by
/// hand between two of them.
pub fn runs(
    fetcher: Fetcher,
    observer: impl Fn() -> Box<dyn Observer> + 'static,
    is_shared: bool,
) -> StartRun {
    // Locked by the one run that is on.
    let fetcher = Arc::new(Mutex::new(fetcher));
    Rc::new(move |changed, stop| {
        let (fetcher, observer) = (Arc::clone(&fetcher), observer());
        Box::pin(async move {
            let stopped = async { _ = stop.await };
            let mut fetcher = fetcher.lock().await;
            let fetched = fetcher.run(changed, observer, stopped).await;
            if is_shared {
                fetcher.release();
            }
            outcome(fetched)
        })
    })
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
