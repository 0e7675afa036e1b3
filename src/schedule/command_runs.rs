//! Runs that are a command: the user's, with what changed in a file and in its arguments.
//!
//! Made of [`crate::child`]. Its standard output is ours, byte by byte; its standard
//! error goes to ours, a line at a time.

use std::ffi::OsString;
use std::io::{self, Write};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::handover::{ChangedFile, NOT_EXECUTABLE};
use super::paths::Changed;
use super::scheduler::{Outcome, Run};
use crate::child::{CommandSpec, Guardian, LinePrefixer, Output, Stream};

/// Starts a command for each run.
pub struct CommandRuns {
    pub guardian: Guardian,
    /// Put before each line of standard error, unless that goes to a terminal.
    pub name: String,
    pub program: OsString,
    /// What it is called with; `{paths}` stands for the changed paths.
    pub arguments: Vec<OsString>,
    pub changed_file: Rc<ChangedFile>,
    pub time_limit: Option<Duration>,
    /// From TERM to KILL.
    pub grace: Duration,
}

impl CommandRuns {
    pub fn start(&self, changed: Changed, mut stop: oneshot::Receiver<()>) -> Run {
        let (guardian, changed_file) = (self.guardian.clone(), Rc::clone(&self.changed_file));
        let time_limit = self.time_limit;
        let mut command = CommandSpec {
            arguments: self.arguments.clone(),
            time_limit,
            grace: self.grace,
            ..CommandSpec::new(&self.program, log_of(&self.name))
        };
        Box::pin(async move {
            if let Err(error) = changed_file.give(&mut command, changed).await {
                return Outcome { exit_code: NOT_EXECUTABLE, message: error.to_string() };
            }
            let mut running = match guardian.start(command) {
                Ok(running) => running,
                Err(error) => {
                    return Outcome { exit_code: error.shell_code(), message: error.to_string() };
                }
            };
            tokio::select! {
                _ = running.wait() => {}
                _ = &mut stop => running.terminate(),
            }
            let end = running.wait().await;
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
