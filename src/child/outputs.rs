//! Where the output of many commands goes: into files, one for each key and day, or all to one output, whole
//! lines, each behind its key. Used by the runner, which runs a command for each of many things.
//!
//! What is printed is written by a thread of its own, so that a reader that is slow, or stopped, holds up the
//! commands (as it would without us), but never whoever runs them. What waits is bounded: a command's pipe, one
//! piece a job, and a short queue.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc::{Receiver, Sender, channel};
use tracing::warn;

use super::log_directory::{CommandLog, LogDirectory};
use super::pump::{Pump, pipe};
use super::{End, LinePrefixer, Output, StartError};
use crate::escape::shown_bytes;

/// Pieces that wait to be written.
const PIECES_MAX: usize = 8;
/// A longer key is cut off in front of its lines.
const PREFIX_CHARACTERS_MAX: usize = 100;

pub enum Outputs {
    /// To a file for each key and day.
    Log(LogDirectory),
    /// To the thread that prints.
    Print(Sender<Vec<u8>>),
}

impl Outputs {
    /// To files in this directory, which are kept so long; or, without one, to `write`, with the thread
    /// that calls it, which ends when this is dropped and all is written.
    pub fn new(
        logs: Option<(PathBuf, Duration)>,
        write: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> io::Result<(Self, Option<JoinHandle<()>>)> {
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        if let Some((path, keep)) = logs {
            let directory = LogDirectory::new(path, keep)?;
            let sweeping = directory.clone();
            // Without room for a thread old logs stay.
            let _ = thread("log-sweep").spawn(move || sweeping.sweep_for_ever());
            return Ok((Self::Log(directory), None));
        }
        let (pieces, queue) = channel(PIECES_MAX);
        let printer = thread("printer").spawn(move || write_all(queue, write))?;
        Ok((Self::Print(pieces), Some(printer)))
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
            Self::Log(directory) => directory,
            Self::Print(pieces) => {
                let no_pipe = StartError::system("make a pipe for its output");
                let (output, pump) = printed(pieces.clone(), key).map_err(no_pipe)?;
                return Ok((output, Kept { pump: Some(pump), log: None }));
            }
        };
        let command = std::iter::once(program).chain(arguments);
        match directory.open(key, attempt, command, SystemTime::now()) {
            Ok((output, log)) => Ok((output, Kept { pump: None, log: Some(log) })),
            Err(error) => {
                warn!(key = &*String::from_utf8_lossy(key), %error, "A job runs without a log.");
                let dropped = Output::Sink(Box::new(|_, _: &[u8]| {}));
                Ok((dropped, Kept { pump: None, log: None }))
            }
        }
    }
}

/// An output that is printed, and what passes it on.
fn printed(pieces: Sender<Vec<u8>>, key: &[u8]) -> io::Result<(Output, Pump)> {
    let mut lines = LinePrefixer::new(prefix(key));
    let (ours, theirs) = pipe()?;
    let pump = Pump::start(ours, move |piece| {
        let text = if piece.is_empty() { lines.finish() } else { lines.feed(piece) };
        let pieces = pieces.clone();
        async move {
            // The thread is there as long as a sender is, unless it panicked.
            let _ = pieces.send(text).await;
        }
    });
    Ok((Output::File(OwnedFd::from(theirs).into()), pump))
}

/// Writes all pieces. When nobody reads any more they are dropped: that is no reason to do no jobs.
fn write_all(mut queue: Receiver<Vec<u8>>, mut write: impl FnMut(&[u8]) -> io::Result<()>) {
    let mut is_open = true;
    while let Some(text) = queue.blocking_recv() {
        if is_open
            && !text.is_empty()
            && let Err(error) = write(&text)
        {
            warn!(%error, "Standard output cannot be written; what commands print is dropped.");
            is_open = false;
        }
    }
}

/// The key as it stands in front of lines.
fn prefix(key: &[u8]) -> String {
    let key = shown_bytes(key);
    let (shown, dots) = match key.char_indices().nth(PREFIX_CHARACTERS_MAX) {
        Some((end, _)) => (&key[..end], "..."),
        None => (&*key, ""),
    };
    format!("{shown}{dots}: ")
}

/// What is to be done about a command's output at its end; nothing, if it is dropped.
pub struct Kept {
    pump: Option<Pump>,
    log: Option<CommandLog>,
}

impl Kept {
    /// Waits until all that the command printed is passed on, and writes how it ended. May be cancelled
    /// and called again.
    pub async fn end(&mut self, end: End) {
        if let Some(pump) = &mut self.pump {
            pump.end().await;
        }
        self.close(&end.to_string());
    }

    /// The log, if it is in one.
    pub fn path(&self) -> Option<&Path> {
        self.log.as_ref().map(CommandLog::path)
    }

    /// Writes how the command ended, and waits for nobody.
    pub fn close(&mut self, ending: &str) {
        if let Some(log) = &mut self.log {
            log.end(ending, SystemTime::now());
        }
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
