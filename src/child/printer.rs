//! One output, shared by many commands: whole lines, each behind what its command is run for.
//!
//! A thread of its own writes, so that a reader that is slow, or stopped, holds up the commands (as it
//! would without us), but never whoever runs them. What waits is bounded: a command's pipe, one
//! piece a job, and a short queue.

use std::io;
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;

use tokio::sync::mpsc::{Receiver, Sender, channel};
use tracing::warn;

use super::pump::{Pump, pipe};
use super::{LinePrefixer, Output};
use crate::escape::shown_bytes;

/// Pieces that wait to be written.
const PIECES_MAX: usize = 8;
/// A longer key is cut off in front of its lines.
const PREFIX_CHARACTERS_MAX: usize = 100;

#[derive(Clone)]
pub struct Printer(Sender<Vec<u8>>);

impl Printer {
    /// Starts the thread that calls `write`, with whole lines; it ends when the last printer is dropped and all is written.
    pub fn start(
        write: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (pieces, queue) = channel(PIECES_MAX);
        let thread = std::thread::Builder::new()
            .name("printer".to_owned())
            .spawn(move || write_all(queue, write))?;
        Ok((Self(pieces), thread))
    }

    /// An output for the command of a job.
    pub fn print(&self, key: &[u8]) -> io::Result<(Output, Pump)> {
        let (mut lines, pieces) = (LinePrefixer::new(prefix(key)), self.0.clone());
        let (ours, theirs) = pipe()?;
        let pump = Pump::start(ours, move |piece| {
            let text = if piece.is_empty() { lines.finish() } else { lines.feed(piece) };
            let pieces = pieces.clone();
            async move {
                // The thread is there as long as a printer is, unless it panicked.
                let _ = pieces.send(text).await;
            }
        });
        Ok((Output::File(OwnedFd::from(theirs).into()), pump))
    }
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
