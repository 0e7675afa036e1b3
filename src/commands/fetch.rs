//! `shiftboss fetch`: has [`crate::fetch`] fetch a list, once or every so often, until it is done or a
//! signal comes. Here is when, and with which exit code; what a run does is there.

mod show;

use std::io;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;
use tracing::{error, info};

use crate::child::{Guardian, look_for};
use crate::cli::FetchSettings;
use crate::exit::{ExitCode, Failure};
use crate::fetch::{Delivered, FetchError, Fetcher, Given, ListName};
use crate::signals::{SIGNAL_BASE, Signals};
use show::Show;

/// Fetches until all is done, or a signal says that it is enough.
///
/// # Errors
/// Why the list was not fetched. Stopped within a run by a signal, the process ends here, with 128 and
/// the signal's number.
pub fn run(settings: FetchSettings) -> Result<(), Failure> {
    look_for(&settings.list.program)
        .map_err(|error| Failure::new(ExitCode::Configuration, error.to_string()))?;
    let cannot = |error: io::Error| {
        let message =
            format!("cannot start the runtime: {error}; is there a limit on descriptors?");
        Failure::new(ExitCode::StoreIo, message)
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let name = settings.list.name.clone();
    let ended = runtime.block_on(async {
        let signals = Signals::new().map_err(cannot)?;
        let fetcher = Fetcher::new(settings.list, Guardian::new());
        Ok(Fetching { name, fetcher, signals }.fetch(settings.every).await)
    });
    // Whatever still runs is killed with it.
    drop(runtime);
    match ended? {
        Ended::Done => Ok(()),
        Ended::Failed(failure) => Err(failure),
        Ended::Signal(number) => std::process::exit(SIGNAL_BASE + number),
    }
}

/// How it came to the end.
enum Ended {
    Done,
    Failed(Failure),
    /// Within a run.
    Signal(i32),
}

struct Fetching {
    name: ListName,
    fetcher: Fetcher,
    signals: Signals,
}

impl Fetching {
    async fn fetch(mut self, every: Option<Duration>) -> Ended {
        if let Err(error) = self.fetcher.claim().await {
            return Ended::Failed(self.failure(&error));
        }
        let Some(every) = every else {
            return match self.once().await {
                Err(number) => Ended::Signal(number),
                Ok((Ok(delivered), _)) => self.done(&delivered),
                Ok((Err(error), _)) => Ended::Failed(self.failure(&error)),
            };
        };
        let mut times = tokio::time::interval(every);
        // A run that takes longer makes the next one wait for its turn, not come twice.
        times.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                _ = times.tick() => {}
                _ = self.signals.next() => return Ended::Done,
            }
            match self.once().await {
                Err(number) => return Ended::Signal(number),
                Ok((Ok(delivered), is_last)) => {
                    let done = self.done(&delivered);
                    if is_last {
                        return done;
                    }
                }
                Ok((Err(error), _)) => {
                    error!(name = self.name.as_str(), %error, "The list was not fetched; an older one stays, if there is one.");
                }
            }
        }
    }

    /// One run, and whether it is to be the last; or the signal that broke it off.
    async fn once(&mut self) -> Result<(Result<Delivered, FetchError>, bool), i32> {
        let (tell, told) = oneshot::channel::<()>();
        let stop = async {
            let _ = told.await;
        };
        let show = Box::new(Show::new(self.name.as_str()));
        let mut run = std::pin::pin!(self.fetcher.run(Given::default(), show, stop));
        let number = tokio::select! {
            outcome = &mut run => return Ok((outcome, false)),
            number = self.signals.next() => number,
        };
        let _ = tell.send(());
        // A second signal: what is dropped is killed and removed.
        tokio::select! {
            outcome = &mut run => match outcome {
                // It came too late to be broken off.
                Ok(delivered) => Ok((Ok(delivered), true)),
                Err(_) => Err(number),
            },
            number = self.signals.next() => Err(number),
        }
    }

    fn done(&self, delivered: &Delivered) -> Ended {
        let Delivered { file, accepted, faulty } = delivered;
        info!(name = self.name.as_str(), file, lines = accepted, faulty, "The list is in place.");
        Ended::Done
    }

    fn failure(&self, error: &FetchError) -> Failure {
        let code = match error {
            FetchError::Claimed { .. } => ExitCode::AlreadyRunning,
            FetchError::Input { .. } => ExitCode::Configuration,
            FetchError::Lock { .. } => ExitCode::CannotCreate,
            FetchError::NoStamp { .. } => ExitCode::BadData,
            _ => ExitCode::Unavailable,
        };
        let message = format!(
            "the list {:?} was not fetched: {error}; an older one stays, if there is one",
            self.name.as_str()
        );
        Failure::new(code, message)
    }
}
