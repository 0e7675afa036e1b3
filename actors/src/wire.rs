//! The worker protocol, classic part (spec 3): requests, answers, and the codec between lines and
//! requests. Pure; the ConnectionActor reads and writes through it.

use std::io;

use bytes::{Buf, BufMut, BytesMut};
use thiserror::Error;
use tokio_util::codec::Decoder;

use crate::model::{Job, Key};

/// Longest request line in bytes, without its end.
pub const LINE_MAX_BYTES: usize = 64 * 1024;
/// Bytes of a faulty line that are shown in the log.
const SHOWN_BYTES: usize = 80;

/// What a worker asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// `READY`: a job, please.
    Ready,
    /// `DONE <key> <exit_code>`: that one ended; the next one, please.
    Done {
        /// What was worked on.
        key: Key,
        /// How it ended.
        exit_code: i64,
    },
}

/// What a worker is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<'a> {
    /// `JOB <key> <payload>`.
    Job(&'a Job),
    /// `NOJOBS`.
    NoJobs,
}

impl Answer<'_> {
    /// Appends the answer's line.
    pub fn encode(&self, bytes: &mut BytesMut) {
        match self {
            Self::Job(job) => {
                let (key, payload) = (job.key.as_str(), &job.payload);
                bytes.reserve(key.len() + payload.len() + 6);
                for part in ["JOB ", key, " ", payload, "\n"] {
                    bytes.put_slice(part.as_bytes());
                }
            }
            Self::NoJobs => bytes.put_slice(b"NOJOBS\n"),
        }
    }
}

/// Why a connection is closed. A classic peer is never told (spec 3.4).
#[derive(Debug, Error)]
pub enum WireError {
    /// A line that is no request.
    #[error("not a request: \"{0}\"")]
    NotARequest(String),
    /// A line without an end.
    #[error("a line of more than {LINE_MAX_BYTES} bytes")]
    TooLong,
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Splits a connection's bytes into requests.
#[derive(Debug, Default)]
pub struct RequestCodec {
    /// Bytes of the unfinished line that were looked through already.
    searched: usize,
}

impl Decoder for RequestCodec {
    type Item = Request;
    type Error = WireError;

    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Option<Request>, WireError> {
        let found = memchr::memchr(b'\n', &bytes[self.searched..]);
        let Some(end) = found.map(|at| at + self.searched) else {
            self.searched = bytes.len();
            return if bytes.len() > LINE_MAX_BYTES { Err(WireError::TooLong) } else { Ok(None) };
        };
        self.searched = 0;
        if end > LINE_MAX_BYTES {
            return Err(WireError::TooLong);
        }
        let line = bytes.split_to(end);
        bytes.advance(1);
        request(&line, true).map(Some)
    }

    /// At the end of input `DONE` counts without its line end, `READY` does not (spec 3.3, 3.4).
    fn decode_eof(&mut self, bytes: &mut BytesMut) -> Result<Option<Request>, WireError> {
        if let Some(request) = self.decode(bytes)? {
            return Ok(Some(request));
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        self.searched = 0;
        request(&bytes.split(), false).map(Some)
    }
}

/// Reads one line, without its `\n`.
fn request(line: &[u8], ended: bool) -> Result<Request, WireError> {
    if line == b"READY" && ended {
        return Ok(Request::Ready);
    }
    done(line).ok_or_else(|| {
        let shown = &line[..line.len().min(SHOWN_BYTES)];
        WireError::NotARequest(shown.escape_ascii().to_string())
    })
}

/// `DONE <key> <exit_code>`, and anything behind a further space.
fn done(line: &[u8]) -> Option<Request> {
    let text = std::str::from_utf8(line).ok()?.strip_prefix("DONE ")?;
    let text = text.strip_suffix('\r').unwrap_or(text);
    let mut words = text.split(' ');
    // Not `Key::new`: any key may be named here, and one that is not in the queue changes nothing.
    let key = words.next().filter(|key| !key.is_empty()).map(Key::stored)?;
    let exit_code = integer(words.next()?)?;
    Some(Request::Done { key, exit_code })
}

/// A decimal integer of 64 bits with an optional sign.
fn integer(word: &str) -> Option<i64> {
    let digits = word.strip_prefix(['+', '-']).unwrap_or(word);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    word.parse().ok()
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
