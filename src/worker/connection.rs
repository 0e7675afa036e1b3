//! One connection to the daemon: lines out, lines in, each within a time and of bounded length. What
//! the lines say is known to [`super::client`].

use std::io;
use std::path::Path;
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::wire::Answer;

/// The daemon answers within 4 seconds or closes; who waits for 5 never hangs up too early.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest line that is taken: twice what a fetcher's line may have.
pub const LINE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// What is kept of the buffer between two answers.
const BUFFER_BYTES: usize = 16 * 1024;

#[derive(Debug, Error)]
pub enum Silence {
    #[error(
        "cannot connect to the socket: {0}; does a daemon run, and may this user write to its socket?"
    )]
    Unreachable(#[source] io::Error),
    #[error("the connection broke: {0}")]
    Broken(#[source] io::Error),
    #[error("the daemon closed the connection without an answer")]
    Closed,
    /// The same, after a `HELLO`: by a daemon that stops, or a classic one.
    #[error("the daemon closed the connection after HELLO")]
    ClosedHello,
    #[error("the daemon does not answer")]
    Timeout,
    #[error("the daemon's answer is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    #[error("not an answer: {0:?}")]
    Garbled(String),
    #[error("the daemon says: {0}")]
    Refused(String),
}

impl Silence {
    /// A line that is no answer; its beginning is shown.
    pub fn garbled(line: &[u8]) -> Self {
        let shown = &line[..line.len().min(60)];
        Self::Garbled(String::from_utf8_lossy(shown).into_owned())
    }
}

pub struct Connection {
    stream: UnixStream,
    /// What was read and is no whole line yet, or further lines.
    unread: Vec<u8>,
    /// Bytes of `unread` that are known to have no line end.
    searched: usize,
    /// Requests whose answers were not read: whoever asked was cancelled.
    owed: usize,
    /// A request was written in part, or something failed: there is no telling what comes.
    is_broken: bool,
}

impl Connection {
    pub async fn open(path: &Path) -> Result<Self, Silence> {
        let connected = timeout(ANSWER_TIMEOUT, UnixStream::connect(path)).await;
        let stream = connected.map_err(|_| Silence::Timeout)?.map_err(Silence::Unreachable)?;
        Ok(Self { stream, unread: Vec::new(), searched: 0, owed: 0, is_broken: false })
    }

    /// Whether requests can be sent over it.
    pub fn is_sound(&self) -> bool {
        !self.is_broken
    }

    /// Writes `lines`, which have `count` answers, in one write. Answers that are still owed to
    /// requests of cancelled callers are passed over first.
    pub async fn send(&mut self, lines: &[u8], count: usize) -> Result<(), Silence> {
        while self.owed > 0 {
            self.line(ANSWER_TIMEOUT).await?;
        }
        self.write(lines, count).await
    }

    /// Writes `line` behind a request whose answer is still to come.
    pub async fn write(&mut self, lines: &[u8], count: usize) -> Result<(), Silence> {
        // Cancelled half-way it stays broken.
        self.is_broken = true;
        let written = timeout(ANSWER_TIMEOUT, self.stream.write_all(lines)).await;
        written.map_err(|_| Silence::Timeout)?.map_err(closed_or_broken)?;
        self.is_broken = false;
        self.owed += count;
        Ok(())
    }

    /// Says that nothing more will be sent.
    pub async fn finish(&mut self) -> Result<(), Silence> {
        self.stream.shutdown().await.map_err(closed_or_broken)
    }

    /// The next line, without its end. May be cancelled: nothing is lost.
    pub async fn line(&mut self, patience: Duration) -> Result<Vec<u8>, Silence> {
        let read = timeout(patience, self.read_line()).await.unwrap_or(Err(Silence::Timeout));
        match &read {
            Ok(_) => self.owed = self.owed.saturating_sub(1),
            Err(_) => self.is_broken = true,
        }
        read
    }

    async fn read_line(&mut self) -> Result<Vec<u8>, Silence> {
        loop {
            let new = &self.unread[self.searched..];
            if let Some(end) = new.iter().position(|byte| *byte == b'\n') {
                let end = self.searched + end;
                let line = self.unread[..end].to_vec();
                self.unread.drain(..=end);
                self.unread.shrink_to(BUFFER_BYTES);
                self.searched = 0;
                return Ok(line);
            }
            self.searched = self.unread.len();
            if self.unread.len() > LINE_BYTES_MAX {
                return Err(Silence::TooLong);
            }
            self.unread.reserve(BUFFER_BYTES);
            match self.stream.read_buf(&mut self.unread).await.map_err(closed_or_broken)? {
                0 => return Err(Silence::Closed),
                _ => continue,
            }
        }
    }

    /// Whether anything was read that was no line.
    pub fn has_part(&self) -> bool {
        !self.unread.is_empty()
    }
}

/// A daemon that closes with bytes of ours unread shows as an error.
fn closed_or_broken(error: io::Error) -> Silence {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Silence::Closed,
        _ => Silence::Broken(error),
    }
}

/// An answer, or what is none.
pub(super) fn read(line: &[u8]) -> Result<Answer, Silence> {
    Answer::read(line).ok_or_else(|| Silence::garbled(line))
}

/// An answer that does not belong to what was asked.
pub(super) fn unexpected(answer: Answer) -> Silence {
    match answer {
        Answer::Error { code, text } => Silence::Refused(format!("{code} {text}")),
        other => Silence::Garbled(format!("{other:.60?}")),
    }
}
