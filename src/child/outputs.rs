//! Where the output of many commands goes: into files, one for each key and day, or all to one output,
//! each line behind its key. Used by those who run a command for each of many things.

use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use tracing::warn;

use super::log_directory::{CommandLog, LogDirectory};
use super::printer::Printer;
use super::pump::Pump;
use super::{End, Output, StartError};

/// Between two looks whether logs have become too old; they do once a day.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

pub enum Outputs {
    /// To a file for each key and day.
    Log(Arc<LogDirectory>),
    /// To one output, each line with its key.
    Print(Printer),
}

impl Outputs {
    /// To files in this directory, which are kept so long; or, without one, to `write`, with the thread
    /// that calls it, which ends when this is dropped and all is written.
    pub fn new(
        logs: Option<(PathBuf, Duration)>,
        write: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> io::Result<(Self, Option<JoinHandle<()>>)> {
        if let Some((path, keep)) = logs {
            return Ok((Self::Log(Arc::new(LogDirectory::new(path, keep)?)), None));
        }
        let (printer, thread) = Printer::start(write)?;
        Ok((Self::Print(printer), Some(thread)))
    }

    /// An output for a command that is about to be run for this key. A log that cannot be made costs the
    /// log, not the run.
    pub fn open(
        &self,
        key: &[u8],
        attempt: Option<i64>,
        program: &OsString,
        arguments: &[OsString],
    ) -> Result<(Output, Kept), StartError> {
        let directory = match self {
            Self::Print(printer) => {
                let no_pipe = StartError::system("make a pipe for its output");
                let (output, pump) = printer.print(key).map_err(no_pipe)?;
                return Ok((output, Kept::Printed(pump)));
            }
            Self::Log(directory) => directory,
        };
        let command = std::iter::once(program).chain(arguments);
        match directory.open(key, attempt, command, SystemTime::now()) {
            Ok((output, log)) => Ok((output, Kept::Logged(log))),
            Err(error) => {
                warn!(key = &*String::from_utf8_lossy(key), %error, "A job runs without a log.");
                Ok((Output::Sink(Box::new(|_, _: &[u8]| {})), Kept::Nowhere))
            }
        }
    }

    /// Removes old logs now and then. Never resolves.
    pub fn sweep(&self) -> impl Future<Output = ()> + use<> {
        let directory = match self {
            Self::Log(directory) => Some(Arc::clone(directory)),
            Self::Print(_) => None,
        };
        async move {
            let Some(directory) = directory else {
                return std::future::pending().await;
            };
            loop {
                let directory = Arc::clone(&directory);
                let _ =
                    tokio::task::spawn_blocking(move || directory.sweep(SystemTime::now())).await;
                tokio::time::sleep(SWEEP_EVERY).await;
            }
        }
    }
}

/// What is to be done about a command's output at its end.
pub enum Kept {
    Printed(Pump),
    /// It is in a log.
    Logged(CommandLog),
    /// It is dropped, or was taken care of.
    Nowhere,
}

impl Kept {
    /// Waits until all that the command printed is passed on, and writes how it ended. May be cancelled
    /// and called again.
    pub async fn end(&mut self, end: End) {
        if let Self::Printed(pump) = self {
            pump.end().await;
        }
        self.close(&end.to_string());
    }

    /// The log, if it is in one.
    pub fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Logged(log) => Some(log.path().to_owned()),
            Self::Printed(_) | Self::Nowhere => None,
        }
    }

    /// Writes how the command ended, and waits for nobody.
    pub fn close(&mut self, ending: &str) {
        if let Self::Logged(log) = std::mem::replace(self, Self::Nowhere) {
            log.end(ending, SystemTime::now());
        }
    }
}
