//! Runs that are a command: the user's, with what changed in a file and in its arguments.
//!
//! [`Runs`] over [`crate::child`]. Its standard output is ours, byte by byte; its standard
//! error goes to ours, a line at a time.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::handover::Handover;
use super::paths::Changed;
use super::scheduler::{Outcome, Run, Runs};
use crate::child::{CommandSpec, Guardian, LinePrefixer, Output, Stream};

/// Starts a command for each run.
pub struct CommandRuns {
    pub guardian: Guardian,
    /// Put before each line of standard error, unless that goes to a terminal.
    pub name: String,
    /// The command; `{paths}` in its arguments stands for the changed paths.
    pub handover: Arc<Handover>,
    pub time_limit: Option<Duration>,
    /// From TERM to KILL.
    pub grace: Duration,
}

impl Runs for CommandRuns {
    fn start(&mut self, changed: Changed, mut stop: oneshot::Receiver<()>) -> Run {
        let (guardian, handover) = (self.guardian.clone(), Arc::clone(&self.handover));
        let (time_limit, grace) = (self.time_limit, self.grace);
        let spec = CommandSpec::new(&handover.program, log_of(&self.name));
        Box::pin(async move {
            let given = match handover.give(changed).await {
                Ok(given) => given,
                Err(outcome) => return outcome,
            };
            let (arguments, environment) = (given.arguments.unwrap_or_default(), given.environment);
            let spec = CommandSpec { arguments, environment, time_limit, grace, ..spec };
            let mut running = match guardian.start(spec) {
                Ok(running) => running,
                Err(error) => {
                    return Outcome { exit_code: error.shell_code(), message: error.to_string() };
                }
            };
            let end = tokio::select! {
                end = running.wait() => end,
                _ = &mut stop => {
                    running.terminate();
                    running.wait().await
                }
            };
            Outcome { exit_code: end.shell_code(), message: end.failure(time_limit) }
        })
    }
}

/// Standard output as it is, standard error as lines.
fn log_of(name: &str) -> Output {
    let mut log = Log(LinePrefixer::for_stderr(name));
    Output::Sink(Box::new(move |stream, piece: &[u8]| log.take(stream, piece)))
}

struct Log(LinePrefixer);

impl Log {
    /// Nobody may be reading.
    fn take(&mut self, stream: Stream, piece: &[u8]) {
        if stream == Stream::Out {
            let mut out = io::stdout().lock();
            let _ = out.write_all(piece).and_then(|()| out.flush());
        } else {
            let _ = io::stderr().lock().write_all(&self.0.feed(piece));
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = io::stderr().lock().write_all(&self.0.finish());
    }
}
