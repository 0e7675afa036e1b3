//! The worker protocol (docs/protocol.md): the codec between bytes and lines, and the requests of its classic part (spec 3).
//! Those of protocol 2 are in [`verbs`](crate::verbs), what is done in one step in [`session`], and answers in [`answers`]. Pure;
//! the ConnectionActor reads and writes through it.

pub mod answers;
pub mod session;

use std::io;

use bytes::{Buf, BytesMut};
use thiserror::Error;

use crate::model::{Key, LeaseHolder};
use crate::verbs::Request;
use session::{ADD_LINE_MAX_BYTES, Refused, Step};

/// Longest request line in bytes, without its end.
pub const LINE_MAX_BYTES: usize = 64 * 1024;
/// Bytes that are read at once for an `ADD` and what follows it.
const ADD_READ_BYTES: usize = 64 * 1024;
/// A buffer that has grown beyond this is dropped when it is empty.
const BUFFER_KEPT_BYTES: usize = 4 * 1024;
/// Bytes of a faulty line that are shown in the log.
const SHOWN_BYTES: usize = 80;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClassicRequest {
    /// `READY`: requests a job.
    Ready,
    /// `DONE <key> <exit_code>`: reports an end, and requests the next job.
    Done { key: Key, exit_code: i64 },
}

/// Why a connection is closed. A classic peer never learns it (spec 3.4).
#[derive(Debug, Error)]
pub enum WireError {
    #[error("not a request: \"{0}\"")]
    NotARequest(String),
    /// A line without an end.
    #[error("a line of more than {LINE_MAX_BYTES} bytes")]
    TooLong,
    #[error(transparent)]
    Io(#[from] io::Error),
}

#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Classic(ClassicRequest),
    /// The connection opts in to protocol 2, or tried to.
    Hello(Result<LeaseHolder, Refused>),
    Session(Result<Step, Refused>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// The first line decides.
    First,
    Classic,
    Session,
    /// Protocol 2, in the middle of a line that is too long.
    Skipping,
}

/// Splits a connection's bytes into lines, and reads them.
#[derive(Debug)]
pub struct LineCodec {
    mode: Mode,
    /// Lines of `ADD` may be long.
    is_operator: bool,
    /// Bytes of the unfinished line that were already searched.
    searched: usize,
}

impl LineCodec {
    /// For a new connection. Without `may_opt_in`, `HELLO` is not a request; only an operator's `ADD` may be long.
    pub fn new(may_opt_in: bool, is_operator: bool) -> Self {
        let mode = if may_opt_in { Mode::First } else { Mode::Classic };
        Self { mode, is_operator, searched: 0 }
    }

    /// Whether an `ADD` or `ADD-ONCE` is next, or a part of one.
    fn is_adding(&self, bytes: &BytesMut) -> bool {
        let adds = bytes.starts_with(b"ADD ") || bytes.starts_with(b"ADD-ONCE ");
        adds && self.is_operator && self.mode == Mode::Session
    }

    /// Whether a begun line waits for its end, given what is left in the buffer.
    pub fn is_waiting(&self, bytes: &BytesMut) -> bool {
        !bytes.is_empty() || self.mode == Mode::Skipping
    }

    /// The next whole line, without its end; `TooLong` as soon as that is certain.
    fn next_line(&mut self, bytes: &mut BytesMut) -> Result<Option<BytesMut>, WireError> {
        let most = if self.is_adding(bytes) { ADD_LINE_MAX_BYTES } else { LINE_MAX_BYTES };
        let found = memchr::memchr(b'\n', &bytes[self.searched..]);
        let Some(end) = found.map(|at| at + self.searched) else {
            self.searched = bytes.len();
            return if bytes.len() > most { Err(WireError::TooLong) } else { Ok(None) };
        };
        self.searched = 0;
        if end > most {
            return Err(WireError::TooLong);
        }
        let line = bytes.split_to(end);
        bytes.advance(1);
        Ok(Some(line))
    }

    fn read(&mut self, line: &[u8]) -> Result<Line, WireError> {
        match self.mode {
            Mode::First if session::opts_in(line) => {
                self.mode = Mode::Session;
                Ok(Line::Hello(session::hello(line)))
            }
            Mode::First | Mode::Classic => {
                self.mode = Mode::Classic;
                classic(line, true).map(Line::Classic)
            }
            Mode::Session | Mode::Skipping => {
                Ok(Line::Session(Request::read(line).map(Step::from)))
            }
        }
    }

    /// A request together with the lines after it that have arrived and belong to it.
    fn join(line: Line, bytes: &mut BytesMut) -> Line {
        let Line::Session(Ok(mut step)) = line else {
            return line;
        };
        while let Some(end) = memchr::memchr(b'\n', &bytes[..bytes.len().min(step.joins())])
            && step.join(&bytes[..end])
        {
            bytes.advance(end + 1);
        }
        Line::Session(Ok(step))
    }

    /// Makes room for the next read: many tasks come in few pieces, and their room is freed afterwards.
    fn make_room(&self, bytes: &mut BytesMut) {
        if self.is_adding(bytes) {
            bytes.reserve(ADD_READ_BYTES);
        } else if bytes.is_empty() && bytes.capacity() > BUFFER_KEPT_BYTES {
            *bytes = BytesMut::with_capacity(BUFFER_KEPT_BYTES);
        }
    }

    /// Drops what has arrived of the line that is too long, and reports that once.
    fn skip(&mut self, bytes: &mut BytesMut) -> Option<Line> {
        let was_reported = self.mode == Mode::Skipping;
        self.searched = 0;
        match memchr::memchr(b'\n', bytes) {
            Some(end) => {
                bytes.advance(end + 1);
                self.mode = Mode::Session;
            }
            None => {
                bytes.clear();
                self.mode = Mode::Skipping;
            }
        }
        (!was_reported).then_some(Line::Session(Err(Refused::usage(
            "a line has at most 65536 bytes, or 1056768 if an operator adds a task",
        ))))
    }

    /// Takes the next line out of `bytes`; `None`: more bytes are needed.
    ///
    /// # Errors
    /// If the connection must be closed.
    pub fn decode(&mut self, bytes: &mut BytesMut) -> Result<Option<Line>, WireError> {
        if self.mode == Mode::Skipping {
            self.skip(bytes);
            if self.mode == Mode::Skipping {
                return Ok(None);
            }
        }
        match self.next_line(bytes) {
            Ok(Some(line)) => self.read(&line).map(|line| Some(Self::join(line, bytes))),
            Ok(None) => {
                self.make_room(bytes);
                Ok(None)
            }
            Err(WireError::TooLong) if self.mode == Mode::Session => Ok(self.skip(bytes)),
            Err(error) => Err(error),
        }
    }

    /// At the end of input a classic `DONE` counts without its line end, but not `READY` (spec 3.3, 3.4), nor any line
    /// of protocol 2.
    pub fn decode_eof(&mut self, bytes: &mut BytesMut) -> Result<Option<Line>, WireError> {
        if let Some(line) = self.decode(bytes)? {
            return Ok(Some(line));
        }
        self.searched = 0;
        let rest = bytes.split();
        match self.mode {
            _ if rest.is_empty() => Ok(None),
            Mode::First if session::opts_in(&rest) => Ok(None),
            Mode::First | Mode::Classic => classic(&rest, false).map(Line::Classic).map(Some),
            Mode::Session | Mode::Skipping => Ok(None),
        }
    }
}

/// Reads one line, without its `\n`.
fn classic(line: &[u8], ended: bool) -> Result<ClassicRequest, WireError> {
    if line == b"READY" && ended {
        return Ok(ClassicRequest::Ready);
    }
    done(line).ok_or_else(|| {
        let shown = &line[..line.len().min(SHOWN_BYTES)];
        WireError::NotARequest(shown.escape_ascii().to_string())
    })
}

/// `DONE <key> <exit_code>`, and anything after a further space.
fn done(line: &[u8]) -> Option<ClassicRequest> {
    let text = std::str::from_utf8(line).ok()?.strip_prefix("DONE ")?;
    let text = text.strip_suffix('\r').unwrap_or(text);
    let mut words = text.split(' ');
    // Not `Key::new`: any key may be named here, and one that is not in the queue changes nothing.
    let key = words.next().filter(|key| !key.is_empty()).map(Key::stored)?;
    let exit_code = integer(words.next()?)?;
    Some(ClassicRequest::Done { key, exit_code })
}

/// A decimal integer of 64 bits with an optional sign.
pub(crate) fn integer(word: &str) -> Option<i64> {
    let digits = word.strip_prefix(['+', '-']).unwrap_or(word);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    word.parse().ok()
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
