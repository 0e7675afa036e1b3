//! Protocol 2 (docs/protocol.md): how a connection opts in, which of its lines are one step, and why a request is
//! refused. Pure; the codec in [`wire`](super) finds the lines, [`verbs`](crate::verbs) says what they ask, and what
//! they are answered is in [`answers`](super::answers).

use std::borrow::Cow;
use std::fmt;

use thiserror::Error;

use super::LINE_MAX_BYTES;
use crate::model::{LeaseHolder, Row};
use crate::verbs::{
    Add, AddAnswer, AddOnce, Argument, Done, Lease, Name, Ready, Request, Verb, Who, Words, number,
};

pub const VERSION: &str = "2";

/// Why a request is refused: the content of its `ERROR`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text}")]
pub struct Refused {
    pub code: ErrorCode,
    pub text: Cow<'static, str>,
}

impl Refused {
    pub const fn new(code: ErrorCode, text: &'static str) -> Self {
        Self { code, text: Cow::Borrowed(text) }
    }

    /// Not at present.
    pub fn busy(text: impl fmt::Display) -> Self {
        Self { code: ErrorCode::Busy, text: text.to_string().into() }
    }

    pub fn unknown(text: impl Into<Cow<'static, str>>) -> Self {
        Self { code: ErrorCode::Unknown, text: text.into() }
    }

    pub(crate) fn usage(text: impl Into<Cow<'static, str>>) -> Self {
        Self { code: ErrorCode::Usage, text: text.into() }
    }
}

/// The word of an error that is for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    Usage,
    Version,
    Unsupported,
    Held,
    Listed,
    /// A classic worker has the job.
    Classic,
    /// Another worker has it by now.
    Stale,
    Unknown,
    Denied,
    /// Not at present.
    Busy,
    Full,
}

impl fmt::Display for ErrorCode {
    /// The word is the name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

/// The first line of a connection that opts in, as the client writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    pub worker: Name,
    pub lease: Lease,
}

impl fmt::Display for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HELLO {VERSION} {} {}", self.worker, self.lease)
    }
}

/// Whether a first line opts in, well or badly.
pub(super) fn opts_in(line: &[u8]) -> bool {
    line == b"HELLO" || line.starts_with(b"HELLO ")
}

/// Reads that line.
pub(super) fn hello(line: &[u8]) -> Result<LeaseHolder, Refused> {
    let usage = || {
        let limits = Lease::LIMITS;
        Refused::usage(format!("HELLO {VERSION} <worker name> [lease seconds, {limits}]"))
    };
    let text = std::str::from_utf8(line).map_err(|_| usage())?;
    let mut words = Words(text.split_once(' ').map(|(_, rest)| rest));
    match words.word() {
        Some(VERSION) => {}
        Some(other) if number::<u32>(other).is_some() => {
            return Err(Refused::new(ErrorCode::Version, "this daemon speaks protocol 2"));
        }
        _ => return Err(usage()),
    }
    let worker: Name = words.take().ok_or_else(usage)?;
    let lease: Lease = words.take().filter(|_| words.is_empty()).ok_or_else(usage)?;
    Ok(LeaseHolder { worker: worker.0, lease_seconds: lease.seconds() })
}

/// Longest line of an `ADD` or `ADD-ONCE` in bytes, without its end: a list's longest line, and the request's own words.
pub const ADD_LINE_MAX_BYTES: usize = 1024 * 1024 + 8 * 1024;
/// `ADD`s that came together and are done in one step.
const ADDS_MAX: usize = 256;
/// Longest `READY` with its end that may belong to a `DONE`; a longer one is a step of its own.
const READY_MAX_BYTES: usize = 4_096;

/// One step: a request, or several that came together and share a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    One(Request),
    /// The end of a job, and the request for the next one.
    DoneReady(Done, Ready),
    Adds(Vec<Addition>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addition {
    pub task: Row,
    /// Another one with this ID is not added.
    pub id: Option<Name>,
}

impl Addition {
    /// What a request adds, if it is an `ADD` or an `ADD-ONCE`.
    pub fn of(request: Request) -> Result<Self, Request> {
        match request {
            Request::Add(Add { task }) => Ok(Self { task, id: None }),
            Request::AddOnce(AddOnce { id, task }) => Ok(Self { task, id: Some(id) }),
            other => Err(other),
        }
    }
}

impl From<Addition> for Request {
    fn from(Addition { task, id }: Addition) -> Self {
        match id {
            None => Self::Add(Add { task }),
            Some(id) => Self::AddOnce(AddOnce { id, task }),
        }
    }
}

impl fmt::Display for Addition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Request::from(self.clone()).fmt(f)
    }
}

impl Verb for Addition {
    const NAME: &'static str = Add::NAME;
    type Answer = AddAnswer;
}

impl From<Request> for Step {
    fn from(request: Request) -> Self {
        Addition::of(request).map_or_else(Self::One, |addition| Self::Adds(vec![addition]))
    }
}

impl Step {
    /// The verbs of its lines, and how many lines have them.
    pub fn verbs(&self) -> [Option<(&'static str, u64)>; 2] {
        match self {
            Self::One(request) => [Some((request.name(), 1)), None],
            Self::DoneReady(..) => [Some((Done::NAME, 1)), Some((Ready::NAME, 1))],
            Self::Adds(adds) => {
                let once = adds.iter().filter(|addition| addition.id.is_some()).count();
                let counted = |name, count: usize| (count > 0).then_some((name, count as u64));
                [counted(Add::NAME, adds.len() - once), counted(AddOnce::NAME, once)]
            }
        }
    }

    pub fn who(&self) -> Who {
        match self {
            Self::One(request) => request.who(),
            Self::DoneReady(..) => Who::Worker,
            Self::Adds(_) => Who::Operator,
        }
    }

    /// Length, with its end, of the longest next line that may belong to this step.
    pub(super) fn joins(&self) -> usize {
        match self {
            Self::One(Request::Done(_)) => READY_MAX_BYTES,
            Self::Adds(adds) if adds.len() < ADDS_MAX => LINE_MAX_BYTES,
            _ => 0,
        }
    }

    /// Takes the next line in, if both belong to one step; returns whether it did.
    pub(super) fn join(&mut self, line: &[u8]) -> bool {
        match (&mut *self, Request::read(line)) {
            (Self::One(Request::Done(done)), Ok(Request::Ready(ready))) => {
                *self = Self::DoneReady(done.clone(), ready);
            }
            (Self::Adds(adds), Ok(request)) => match Addition::of(request) {
                Ok(addition) => adds.push(addition),
                Err(_) => return false,
            },
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
