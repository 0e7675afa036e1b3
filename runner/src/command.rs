//! Starts the commands of jobs, and directs their output: into files, one for each key and day, or all to one output,
//! as whole lines with the key in front. Does not know where jobs come from.
//!
//! A thread of its own writes the printed output, so that a slow or stopped reader holds up the commands (as it would
//! without us), but never us. What waits is bounded: a command's pipe, one piece a job, and a short queue. At the end
//! we do not wait for a reader that has stopped.

use std::ffi::OsString;
use std::io::{self, Write};
use std::mem::take;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tracing::warn;

use super::log_directory::{CommandLog, LogDirectory};
use super::payload::{self, PAYLOAD_FILE, Payload};
use crate::child::{
    CommandSpec, End, Guardian, LinePrefixer, Output, Pump, Running, StartError, Template, pipe,
};
use crate::escape::shown_bytes;

/// A longer value is left out of environments: the kernel takes 128 KiB a variable, its name included.
pub const VARIABLE_BYTES_MAX: usize = 120 * 1024;
/// Pieces that wait to be written.
const PIECES_MAX: usize = 8;
/// How long the reader may take for a piece once we are ending.
pub(super) const UNREAD_MAX: Duration = Duration::from_secs(1);
/// A longer key is cut off in the prefix of its lines.
const PREFIX_CHARACTERS_MAX: usize = 100;

#[derive(Debug, Clone)]
pub struct RunnerSettings {
    pub template: Template,
    pub time_limit: Option<Duration>,
    pub grace: Duration,
    /// The logs' directory, and how long logs are kept; `None`: output is printed.
    pub logs: Option<(PathBuf, Duration)>,
}

pub struct CommandRunner {
    guardian: Guardian,
    pub settings: RunnerSettings,
    outputs: Outputs,
    pub(super) printing: watch::Sender<Printing>,
    /// Resolves when everything is printed; `None`: nothing is printed.
    pub(super) printed: Option<oneshot::Receiver<()>>,
}

enum Outputs {
    /// To a file for each key and day.
    Log(LogDirectory),
    Print(Printer),
}

/// How long to wait for the reader of printed output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Printing {
    ForEver,
    /// We are ending: no longer than [`UNREAD_MAX`].
    Ending,
    /// That was too short for a piece, and the rest is dropped.
    Unread,
}

/// Gives pieces to the thread that prints. The thread ends with the last clone, once everything is written.
#[derive(Clone)]
struct Printer {
    pieces: Sender<Vec<u8>>,
    printing: watch::Sender<Printing>,
}

impl Printer {
    async fn print(self, text: Vec<u8>) {
        let mut printing = self.printing.subscribe();
        let is_unread = async {
            // We have a sender ourselves.
            let _ = printing.wait_for(|printing| *printing > Printing::ForEver).await;
            let is_unread = printing.wait_for(|printing| *printing == Printing::Unread);
            let _ = timeout(UNREAD_MAX, is_unread).await;
        };
        tokio::select! {
            biased;
            // The thread is there as long as a sender is, unless it panicked.
            _ = self.pieces.send(text) => {}
            () = is_unread => drop(self.printing.send_replace(Printing::Unread)),
        }
    }
}

/// What is printed, on standard output.
pub fn print(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text).and_then(|()| out.flush())
}

pub struct JobCommand {
    /// The name of its log, or the prefix of its lines.
    pub key: Vec<u8>,
    /// The key for people.
    pub shown: String,
    pub attempt: Option<i64>,
    pub arguments: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    pub payload: Payload,
}

impl CommandRunner {
    /// Without a directory for logs, `write` prints output, from a thread of its own.
    ///
    /// # Errors
    /// If the directory or the thread cannot be made; a text for the user.
    pub fn new(
        settings: RunnerSettings,
        write: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let thread = |name: &str| thread::Builder::new().name(name.to_owned());
        let cannot = |what: &str, error: io::Error| {
            io::Error::new(error.kind(), format!("cannot {what}: {error}"))
        };
        let (printing, _) = watch::channel(Printing::ForEver);
        let (outputs, printed) = if let Some((path, keep)) = settings.logs.clone() {
            let what = format!("make the directory {}", path.display());
            let logs = LogDirectory::new(path, keep).map_err(|error| cannot(&what, error))?;
            let sweeping = logs.clone();
            // If no thread can be made, old logs stay.
            let _ = thread("log-sweep").spawn(move || sweeping.sweep_for_ever());
            (Outputs::Log(logs), None)
        } else {
            let ((pieces, queue), (end, printed)) = (channel(PIECES_MAX), oneshot::channel());
            let print = move || {
                write_all(queue, write);
                drop(end);
            };
            thread("printer").spawn(print).map_err(|error| cannot("start a thread", error))?;
            let printing = printing.clone();
            (Outputs::Print(Printer { pieces, printing }), Some(printed))
        };
        if settings.template.has_place(PAYLOAD_FILE) {
            payload::sweep();
        }
        Ok(Self { guardian: Guardian::default(), settings, outputs, printing, printed })
    }

    /// Starts a command. In a runtime, on a thread that stays.
    pub(super) fn start(&self, mut command: JobCommand) -> Result<Execution, StartError> {
        let (output, pump, mut log) = self.output(&command)?;
        let RunnerSettings { template, time_limit, grace, .. } = &self.settings;
        let spec = CommandSpec {
            arguments: take(&mut command.arguments),
            environment: take(&mut command.environment),
            time_limit: *time_limit,
            grace: *grace,
            ..CommandSpec::new(&template.program)
        };
        let running = self.guardian.start(&spec, command.payload.input.take(), output);
        let running = running.inspect_err(|error| close(&mut log, &error.to_string(), None))?;
        Ok(Execution { running, pump, log, command, started: Instant::now() })
    }

    /// An output for a command that is about to run, and its log or the pump that passes the output on. If the log
    /// cannot be made, the command still runs.
    fn output(
        &self,
        JobCommand { key, attempt, arguments, .. }: &JobCommand,
    ) -> Result<(Output, Option<Pump>, Option<CommandLog>), StartError> {
        let logs = match &self.outputs {
            Outputs::Log(logs) => logs,
            Outputs::Print(printer) => {
                let no_pipe = StartError::system("make a pipe for its output");
                let (output, pump) = printed(printer.clone(), key).map_err(no_pipe)?;
                return Ok((output, Some(pump), None));
            }
        };
        let command = std::iter::once(&self.settings.template.program).chain(arguments);
        match logs.open(key, *attempt, command, SystemTime::now()) {
            Ok((output, log)) => Ok((output, None, Some(log))),
            Err(error) => {
                warn!(key = &*String::from_utf8_lossy(key), %error, "A job runs without a log.");
                Ok((Output::Sink(Box::new(|_, _: &[u8]| {})), None, None))
            }
        }
    }
}

/// An output that is printed, and the pump that passes it on.
fn printed(printer: Printer, key: &[u8]) -> io::Result<(Output, Pump)> {
    let mut lines = LinePrefixer::new(prefix(key));
    let (ours, theirs) = pipe()?;
    let pump = Pump::start(ours, move |piece| {
        let text = if piece.is_empty() { lines.finish() } else { lines.feed(piece) };
        let printer = printer.clone();
        async move {
            // Most commands print nothing: the thread is not woken up for them.
            if !text.is_empty() {
                printer.print(text).await;
            }
        }
    });
    Ok((Output::File(OwnedFd::from(theirs).into()), pump))
}

/// Writes all pieces. Once the reader is gone they are dropped: that is no reason to stop doing jobs.
fn write_all(mut queue: Receiver<Vec<u8>>, mut write: impl FnMut(&[u8]) -> io::Result<()>) {
    let mut is_open = true;
    while let Some(text) = queue.blocking_recv() {
        if is_open && let Err(error) = write(&text) {
            warn!(%error, "Standard output cannot be written; what commands print is dropped.");
            is_open = false;
        }
    }
}

/// The key as it stands in front of lines.
fn prefix(key: &[u8]) -> String {
    let key = shown_bytes(key);
    match key.char_indices().nth(PREFIX_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...: ", &key[..end]),
        None => format!("{key}: "),
    }
}

/// A command that runs. Dropped, it is killed.
pub(super) struct Execution {
    running: Running,
    /// Passes on what it prints.
    pump: Option<Pump>,
    log: Option<CommandLog>,
    /// Its payload is removed with this.
    pub command: JobCommand,
    pub started: Instant,
}

impl Execution {
    /// Waits for the end of the command and of its output. May be cancelled and called again.
    pub async fn wait(&mut self) -> End {
        let end = self.running.wait().await;
        if let Some(pump) = &mut self.pump {
            pump.end().await;
        }
        close(&mut self.log, &end.to_string(), Some(end.shell_code()));
        end
    }

    /// Asks the command to end, kills it when its grace is over, and waits as [`wait`](Self::wait) does.
    pub async fn stop(&mut self) -> End {
        self.running.terminate();
        self.wait().await
    }

    /// Kills the command and waits until it is gone; returns how it had ended, if it already had. Does not wait for the
    /// readers of its output.
    pub async fn kill(&mut self) -> Option<End> {
        let end = self.running.end();
        self.running.kill();
        self.running.wait().await;
        let ending = end.map_or("killed by the worker".to_owned(), |end| end.to_string());
        close(&mut self.log, &ending, end.map(End::shell_code));
        end
    }

    pub fn log(&self) -> Option<&Path> {
        self.log.as_ref().map(CommandLog::path)
    }
}

/// Writes into a log how its command ended.
fn close(log: &mut Option<CommandLog>, ending: &str, exit_code: Option<u8>) {
    if let Some(log) = log {
        log.end(ending, exit_code, SystemTime::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key neither steers a terminal nor fills its line.
    #[test]
    fn prefixes_are_short_and_harmless() {
        assert_eq!(prefix(b"alpha"), "alpha: ");
        assert_eq!(prefix("\u{1b}[2Jé".as_bytes()), "\\u{1b}[2Jé: ");
        assert_eq!(prefix(b"a\xff\xe2\x80\xae"), "a\\xff\\u{202e}: ");
        let long = prefix("é".repeat(3_000).as_bytes());
        assert_eq!(long, format!("{}...: ", "é".repeat(100)));
    }
}
