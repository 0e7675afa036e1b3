//! One output, shared by many commands: whole lines, each behind what its command is run for.
//!
//! A thread of its own writes, so that a reader that is slow, or stopped, holds up the commands (as it
//! would without us), but never whoever runs them. What waits is bounded: a command's pipe, one
//! piece a job, and a short queue.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver as Pieces, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle as Task;
use tracing::warn;

use super::{LinePrefixer, Output};
use crate::escape::shown_bytes;

/// What is read from a pipe at a time.
const PIECE_BYTES: usize = 32 * 1024;
/// Pieces that wait to be written.
const PIECES_MAX: usize = 8;
/// A longer key is cut off in front of its lines.
const PREFIX_CHARACTERS_MAX: usize = 100;
/// How long a pipe may be silent that stays open after its command's end: somebody who left its group
/// has it.
const DRAIN: Duration = Duration::from_millis(500);
/// What is read after that: no pipe holds more.
const LATE_BYTES_MAX: usize = 2 * 1024 * 1024;

#[derive(Clone)]
pub struct Printer {
    pieces: SyncSender<Vec<u8>>,
    /// Room in the queue, so that nobody blocks who puts something into it.
    room: std::sync::Arc<Semaphore>,
}

/// One command's output on its way.
pub struct Printing {
    task: Task<()>,
    ended: Option<oneshot::Sender<()>>,
}

impl Printer {
    /// Starts the thread that calls `write`, with whole lines; it ends when the last printer is dropped and all is written.
    pub fn start(
        write: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (pieces, queue) = sync_channel(PIECES_MAX);
        let room = std::sync::Arc::new(Semaphore::new(PIECES_MAX));
        let freed = std::sync::Arc::clone(&room);
        let thread = std::thread::Builder::new()
            .name("printer".to_owned())
            .spawn(move || write_all(&queue, &freed, write))?;
        Ok((Self { pieces, room }, thread))
    }

    /// An output for the command of a job.
    pub fn print(&self, key: &[u8]) -> io::Result<(Output, Printing)> {
        let (ours, theirs) = io::pipe()?;
        let pipe = Receiver::from_owned_fd(ours.into())?;
        let (tell, ended) = oneshot::channel();
        let lines = LinePrefixer::new(prefix(key));
        let task = tokio::spawn(self.clone().pump(pipe, lines, ended));
        let output = Output::File(OwnedFd::from(theirs).into());
        Ok((output, Printing { task, ended: Some(tell) }))
    }

    async fn pump(
        self,
        mut pipe: Receiver,
        mut lines: LinePrefixer,
        mut ended: oneshot::Receiver<()>,
    ) {
        let mut piece = vec![0; PIECE_BYTES];
        let (mut is_running, mut late) = (true, 0);
        while late < LATE_BYTES_MAX {
            let length = tokio::select! {
                biased;
                length = pipe.read(&mut piece) => length.unwrap_or(0),
                _ = &mut ended, if is_running => { is_running = false; continue }
                () = tokio::time::sleep(DRAIN), if !is_running => break,
            };
            if length == 0 {
                break;
            }
            late += if is_running { 0 } else { length };
            self.put(lines.feed(&piece[..length])).await;
        }
        self.put(lines.finish()).await;
    }

    async fn put(&self, text: Vec<u8>) {
        if text.is_empty() {
            return;
        }
        if let Ok(permit) = self.room.acquire().await {
            // The thread gives it back.
            permit.forget();
            let _ = self.pieces.send(text);
        }
    }
}

impl Printing {
    /// The command has ended: waits until all it wrote is passed on. May be cancelled and called again.
    pub async fn end(&mut self) {
        if let Some(ended) = self.ended.take() {
            let _ = ended.send(());
        }
        if !self.task.is_finished() {
            let _ = (&mut self.task).await;
        }
    }
}

/// Writes all pieces. When nobody reads any more they are dropped: that is no reason to do no jobs.
fn write_all(
    queue: &Pieces<Vec<u8>>,
    room: &Semaphore,
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
) {
    let mut is_open = true;
    for text in queue {
        if is_open && let Err(error) = write(&text) {
            warn!(%error, "Standard output cannot be written; what commands print is dropped.");
            is_open = false;
        }
        room.add_permits(1);
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
