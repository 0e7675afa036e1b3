//! Runs that are a command: the user's, with what changed in a file and in its arguments.
//!
//! [`Runs`] over [`crate::child`]. Its standard output is ours, byte by byte; its standard
//! error goes to ours, a line at a time.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::oneshot;

use super::handover::hand_over;
use super::paths::Changed;
use super::schedule::{Outcome, Run, Runs};
use crate::child::{CommandSpec, Guardian, LinePrefixer, Output, Stream};

#[derive(Debug, Clone)]
pub struct CommandSettings {
    /// Put before each line of standard error, unless that goes to a terminal.
    pub name: String,
    /// The program; looked for in `PATH` unless it has a slash.
    pub program: OsString,
    /// What it is called with; `{paths}` stands for the changed paths.
    pub arguments: Vec<OsString>,
    pub time_limit: Option<Duration>,
    pub grace: Duration,
    /// The file that is written with the changed paths before each run.
    pub changed_file: PathBuf,
}

pub struct CommandRuns {
    settings: CommandSettings,
    guardian: Guardian,
}

impl CommandRuns {
    pub fn new(settings: CommandSettings, guardian: Guardian) -> Self {
        Self { settings, guardian }
    }
}

impl Runs for CommandRuns {
    fn start(&mut self, changed: Changed, stop: oneshot::Receiver<()>) -> Run {
        let (settings, guardian) = (self.settings.clone(), self.guardian.clone());
        Box::pin(async move { run(settings, guardian, changed, stop).await })
    }
}

async fn run(
    settings: CommandSettings,
    guardian: Guardian,
    changed: Changed,
    mut stop: oneshot::Receiver<()>,
) -> Outcome {
    let limit = settings.time_limit;
    let prepared = tokio::task::spawn_blocking(move || prepare(&settings, &changed)).await;
    let spec = match prepared {
        Ok(Ok(spec)) => spec,
        Ok(Err(outcome)) => return outcome,
        Err(_) => return not_started("preparing it broke off".to_owned()),
    };
    let mut running = match guardian.start(spec) {
        Ok(running) => running,
        Err(error) => return Outcome { exit_code: error.shell_code(), message: error.to_string() },
    };
    let end = tokio::select! {
        end = running.wait() => end,
        _ = &mut stop => {
            running.terminate();
            running.wait().await
        }
    };
    Outcome { exit_code: end.shell_code(), message: end.failure(limit) }
}

/// A shell's code for what cannot be executed.
fn not_started(message: String) -> Outcome {
    Outcome { exit_code: 126, message }
}

fn prepare(settings: &CommandSettings, changed: &Changed) -> Result<CommandSpec, Outcome> {
    let CommandSettings { program, arguments, changed_file, .. } = settings;
    let given = hand_over(program, arguments, &[], changed_file, changed)
        .map_err(|error| not_started(error.to_string()))?;
    Ok(CommandSpec {
        arguments: given.arguments,
        environment: given.environment,
        time_limit: settings.time_limit,
        grace: settings.grace,
        ..CommandSpec::new(program, log_of(&settings.name))
    })
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
