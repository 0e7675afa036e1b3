//! Protocol 2 (docs/protocol.md): what a line of an opted-in connection asks. Pure; the codec in
//! [`wire`](super) finds the lines, and what they are answered is in [`answers`](super::answers).

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use self::SessionRequest as Ask;
use super::{LINE_MAX_BYTES, integer};
use crate::model::{Attempt, Key, LeaseHolder, Row};
use crate::task_line::single_task;

pub const VERSION: &str = "2";
/// Longest name of a worker in bytes.
pub const NAME_MAX_BYTES: usize = 255;
/// A job's lease, if the worker does not say.
pub const LEASE_SECONDS: u32 = 60;
pub const LEASE_SECONDS_MAX: u32 = 604_800;
/// Longest wait of a `READY`.
pub const WAIT_SECONDS_MAX: u32 = 86_400;
/// Longest hold that ends by itself: ten years.
pub const HOLD_SECONDS_MAX: u32 = 315_360_000;
/// Longest reason of a hold in bytes.
pub const REASON_MAX_BYTES: usize = 1_000;
/// Most entries of a `QUEUE` or a `LOG`.
pub const COUNT_MAX: u32 = 10_000;

/// Why a request is not done: what its `ERROR` says.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text}")]
pub struct Refused {
    /// For programs.
    pub code: ErrorCode,
    /// For people.
    pub text: Cow<'static, str>,
}

impl Refused {
    /// With a text that is always the same.
    pub const fn new(code: ErrorCode, text: &'static str) -> Self {
        Self { code, text: Cow::Borrowed(text) }
    }

    /// Not at present.
    pub fn busy(text: impl fmt::Display) -> Self {
        Self { code: ErrorCode::Busy, text: text.to_string().into() }
    }

    /// What was asked about is not there.
    pub fn unknown(text: impl Into<Cow<'static, str>>) -> Self {
        Self { code: ErrorCode::Unknown, text: text.into() }
    }

    pub(super) const fn usage(text: &'static str) -> Self {
        Self::new(ErrorCode::Usage, text)
    }
}

const OTHER_VERSION: Refused = Refused::new(ErrorCode::Version, "this daemon speaks protocol 2");
const UNSUPPORTED: Refused = Refused::new(
    ErrorCode::Unsupported,
    "this daemon has no such request; its HELLO lists those it has",
);

/// Longest line of an `ADD` or `ADD-ONCE` in bytes, without its end: a list's longest line, and the request's own words.
pub const ADD_LINE_MAX_BYTES: usize = 1024 * 1024 + 8 * 1024;
/// `ADD`s that came together and are done in one step.
const ADDS_MAX: usize = 256;
/// Longest `READY` with its end.
const READY_MAX_BYTES: usize = 16;

/// A single task that is to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addition {
    pub task: Row,
    /// Another one with this ID is not added.
    pub id: Option<Arc<str>>,
}

/// What an opted-in worker asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionRequest {
    /// A job, please, and wait so long for one.
    Ready {
        /// Zero: do not wait.
        wait: Duration,
    },
    Done {
        attempt: Attempt,
        exit_code: i64,
        /// The `READY` in the line behind it, done in the same step: how long it waits.
        then: Option<Duration>,
    },
    /// An attempt goes on.
    Beat(Attempt),
    /// An attempt is given back.
    Release(Attempt),
    Quit,
    /// Whether the daemon can reach its database.
    Health,
    /// What the daemon counts of itself.
    Metrics,
    /// For operators only: single tasks that are to be added, of as many lines.
    Add(Vec<Addition>),
    /// For operators only: how the queue stands.
    Status,
    /// For operators only: where a key is.
    Why(Key),
    /// For operators only: the next keys, so many.
    Queue(usize),
    /// For operators only: the attempts that ended last, so many.
    Log(usize),
    /// For operators only: put a key's dispatched rows back; of one fetcher only, if one is named.
    Retry(Key, Option<Arc<str>>),
    /// For operators only: put a key's job back that is in flight.
    Requeue(Key),
    /// For operators only: hand a key not out, so many seconds long or until the end of that; and why.
    Hold(Key, Option<u32>, String),
    /// For operators only: the same of all keys that begin so.
    HoldAll(Key, Option<u32>, String),
    /// For operators only: have a key run soon.
    Bump(Key),
    /// For operators only: the end of a key's hold.
    Unhold(Key),
    /// For operators only: the end of operators' holds of all keys that begin so.
    UnholdAll(Key),
    /// For operators only: forget all of a key that nothing lists.
    Forget(Key),
    /// For operators only: delete a key's single tasks.
    Cancel(Key),
    /// For operators only: hand nothing out, or hand out again.
    Pause {
        paused: bool,
        /// Stop when nothing is out.
        drains: bool,
    },
    /// For operators only: have a fetcher that the daemon runs itself run now.
    RunFetcher(Arc<str>),
    /// For operators only: take the directory at the input's path, whichever it is.
    AcceptInput,
}

impl SessionRequest {
    /// Whether a worker asks it, and so is alive.
    pub fn is_of_a_worker(&self) -> bool {
        matches!(self, Ask::Ready { .. } | Ask::Done { .. } | Ask::Beat(_) | Ask::Release(_))
    }

    /// The first words of its lines, as [`REQUESTS`] has them, and how many lines have them.
    pub fn words(&self) -> [Option<(&'static str, u64)>; 2] {
        let (word, count, then) = match self {
            Ask::Ready { .. } => ("READY", 1, false),
            Ask::Done { then, .. } => ("DONE", 1, then.is_some()),
            Ask::Beat(_) => ("BEAT", 1, false),
            Ask::Release(_) => ("RELEASE", 1, false),
            Ask::Quit => ("QUIT", 1, false),
            Ask::Health => ("HEALTH", 1, false),
            Ask::Metrics => ("METRICS", 1, false),
            Ask::Add(tasks) => ("ADD", tasks.len() as u64, false),
            Ask::Status => ("STATUS", 1, false),
            Ask::Why(_) => ("WHY", 1, false),
            Ask::Queue(_) => ("QUEUE", 1, false),
            Ask::Log(_) => ("LOG", 1, false),
            Ask::Retry(_, None) => ("RETRY", 1, false),
            Ask::Retry(_, Some(_)) => ("RETRY-OF", 1, false),
            Ask::Requeue(_) => ("REQUEUE", 1, false),
            Ask::Hold(..) => ("HOLD", 1, false),
            Ask::HoldAll(..) => ("HOLD-ALL", 1, false),
            Ask::Bump(_) => ("BUMP", 1, false),
            Ask::Unhold(_) => ("UNHOLD", 1, false),
            Ask::UnholdAll(_) => ("UNHOLD-ALL", 1, false),
            Ask::Forget(_) => ("FORGET", 1, false),
            Ask::Cancel(_) => ("CANCEL", 1, false),
            Ask::Pause { drains: true, .. } => ("DRAIN", 1, false),
            Ask::Pause { paused: true, .. } => ("PAUSE", 1, false),
            Ask::Pause { .. } => ("RESUME", 1, false),
            Ask::RunFetcher(_) => ("RUN-FETCHER", 1, false),
            Ask::AcceptInput => ("ACCEPT-INPUT", 1, false),
        };
        [Some((word, count)), then.then_some(("READY", 1))]
    }

    /// Length of the longest line behind it, with its end, that may belong to it.
    pub(super) fn joins(&self) -> usize {
        match self {
            Ask::Done { then: None, .. } => READY_MAX_BYTES,
            Ask::Add(tasks) if tasks.len() < ADDS_MAX => LINE_MAX_BYTES,
            _ => 0,
        }
    }

    /// Takes the line behind it, if both are asked in one step; whether it did.
    pub(super) fn join(&mut self, line: &[u8]) -> bool {
        match (self, request(line)) {
            (Ask::Done { then, .. }, Ok(Ask::Ready { wait })) => *then = Some(wait),
            (Ask::Add(tasks), Ok(Ask::Add(more))) => tasks.extend(more),
            _ => return false,
        }
        true
    }

    /// Whether only operators may ask it.
    pub fn is_of_an_operator(&self) -> bool {
        !(self.is_of_a_worker() || matches!(self, Self::Quit | Self::Health | Self::Metrics))
    }
}

/// The word of an error that is for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    /// The line is no request.
    Usage,
    Version,
    Unsupported,
    /// The key is held.
    Held,
    /// The key is listed.
    Listed,
    /// Somebody else's by now.
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

/// Whether a first line opts in, well or badly.
pub(super) fn opts_in(line: &[u8]) -> bool {
    line == b"HELLO" || line.starts_with(b"HELLO ")
}

pub(super) fn hello(line: &[u8]) -> Result<LeaseHolder, Refused> {
    const USAGE: Refused = Refused::usage("HELLO 2 <worker name> [lease seconds, 1 to 604800]");
    let text = std::str::from_utf8(line).map_err(|_| USAGE)?;
    let mut words = text.split(' ').skip(1);
    match words.next() {
        Some(VERSION) => {}
        Some(other) if number::<u32>(other).is_some() => return Err(OTHER_VERSION),
        _ => return Err(USAGE),
    }
    let worker = words.next().filter(|name| is_name(name)).ok_or(USAGE)?;
    let lease_seconds = match words.next() {
        Some(word) => within(word, 1, LEASE_SECONDS_MAX).ok_or(USAGE)?,
        None => LEASE_SECONDS,
    };
    match words.next() {
        None => Ok(LeaseHolder { worker: worker.into(), lease_seconds }),
        Some(_) => Err(USAGE),
    }
}

/// Whether it may stand for a single task that is added once.
pub fn is_id(text: &str) -> bool {
    is_name(text) && !text.contains(' ')
}

fn is_name(text: &str) -> bool {
    (1..=NAME_MAX_BYTES).contains(&text.len()) && !text.contains(char::is_control)
}

/// Reads one line of an opted-in connection, without its end.
pub(super) fn request(line: &[u8]) -> Result<SessionRequest, Refused> {
    let text = std::str::from_utf8(line).map_err(|_| Refused::usage("lines are UTF-8"))?;
    let (verb, rest) = match text.split_once(' ') {
        Some((verb, rest)) => (verb, Some(rest)),
        None => (text, None),
    };
    if verb == "HELLO" {
        return Err(Refused::usage("HELLO is the first line of a connection"));
    }
    let known = REQUESTS.iter().find(|(request, ..)| *request == verb);
    let (_, usage, read) = known.ok_or(UNSUPPORTED)?;
    read(rest).ok_or(Refused::usage(usage))
}

/// Reads what stands behind a verb and its space; `None`: it is not as it must be.
type Read = fn(Option<&str>) -> Option<SessionRequest>;

/// Every request: its verb, with which `HELLO` is answered, its grammar, for a faulty line, and how it is read.
pub(super) const REQUESTS: &[(&str, &str, Read)] = &[
    ("READY", "READY [seconds, 0 to 86400]", |rest| {
        let seconds = rest.map_or(Some(0), |rest| within(rest, 0, WAIT_SECONDS_MAX))?;
        Some(Ask::Ready { wait: Duration::from_secs(seconds.into()) })
    }),
    ("DONE", "DONE <attempt> <exit code>", |rest| {
        let (number, code) = rest?.split_once(' ')?;
        Some(Ask::Done { attempt: attempt(number)?, exit_code: integer(code)?, then: None })
    }),
    ("BEAT", "BEAT <attempt>", |rest| Some(Ask::Beat(attempt(rest?)?))),
    ("RELEASE", "RELEASE <attempt>", |rest| Some(Ask::Release(attempt(rest?)?))),
    ("QUIT", ALONE, |rest| alone(rest, Ask::Quit)),
    ("HEALTH", ALONE, |rest| alone(rest, Ask::Health)),
    ("METRICS", ALONE, |rest| alone(rest, Ask::Metrics)),
    ("STATUS", ALONE, |rest| alone(rest, Ask::Status)),
    ("WHY", "WHY <key>", |rest| Some(Ask::Why(key(rest?)?))),
    ("QUEUE", "QUEUE <count, 1 to 10000>", |rest| Some(Ask::Queue(count(rest?)?))),
    ("LOG", "LOG <count, 1 to 10000>", |rest| Some(Ask::Log(count(rest?)?))),
    ("RETRY", "RETRY <key>", |rest| Some(Ask::Retry(key(rest?)?, None))),
    ("RETRY-OF", "RETRY-OF <key> <fetcher>", |rest| {
        // A fetcher's name may have spaces, a key has none.
        let (key, fetcher) = rest?.split_once(' ').filter(|(_, name)| is_name(name))?;
        Some(Ask::Retry(Key::new(key).ok()?, Some(fetcher.into())))
    }),
    ("REQUEUE", "REQUEUE <key>", |rest| Some(Ask::Requeue(key(rest?)?))),
    ("PAUSE", ALONE, |rest| alone(rest, Ask::Pause { paused: true, drains: false })),
    ("RESUME", ALONE, |rest| alone(rest, Ask::Pause { paused: false, drains: false })),
    ("DRAIN", ALONE, |rest| alone(rest, Ask::Pause { paused: true, drains: true })),
    ("ACCEPT-INPUT", ALONE, |rest| alone(rest, Ask::AcceptInput)),
    ("RUN-FETCHER", "RUN-FETCHER <fetcher>", |rest| {
        rest.filter(|name| is_name(name)).map(|name| Ask::RunFetcher(name.into()))
    }),
    (
        "ADD",
        "ADD <key> <payload>, a line of at most 1048576 bytes without white space at its ends",
        |rest| {
            Some(Ask::Add(vec![Addition { task: single_task(rest?.as_bytes()).ok()?, id: None }]))
        },
    ),
    (
        "ADD-ONCE",
        "ADD-ONCE <ID, a word of at most 255 bytes> <key> <payload>, the latter two as of ADD",
        |rest| {
            let (id, task) = rest?.split_once(' ').filter(|(id, _)| is_id(id))?;
            let task = single_task(task.as_bytes()).ok()?;
            Some(Ask::Add(vec![Addition { task, id: Some(id.into()) }]))
        },
    ),
    ("HOLD", "HOLD <key> <seconds, 0 to 315360000, or -> [reason, at most 1000 bytes]", |rest| {
        let (key, seconds, reason) = hold(rest)?;
        Some(Ask::Hold(key, seconds, reason))
    }),
    (
        "HOLD-ALL",
        "HOLD-ALL <how keys begin> <seconds, 0 to 315360000, or -> [reason, at most 1000 bytes]",
        |rest| {
            let (prefix, seconds, reason) = hold(rest)?;
            Some(Ask::HoldAll(prefix, seconds, reason))
        },
    ),
    ("BUMP", "BUMP <key>", |rest| Some(Ask::Bump(key(rest?)?))),
    ("FORGET", "FORGET <key>", |rest| Some(Ask::Forget(key(rest?)?))),
    ("UNHOLD", "UNHOLD <key>", |rest| Some(Ask::Unhold(key(rest?)?))),
    ("UNHOLD-ALL", "UNHOLD-ALL <how keys begin>", |rest| Some(Ask::UnholdAll(key(rest?)?))),
    ("CANCEL", "CANCEL <key>", |rest| Some(Ask::Cancel(key(rest?)?))),
];
const ALONE: &str = "this request stands alone";

fn alone(rest: Option<&str>, request: SessionRequest) -> Option<SessionRequest> {
    rest.is_none().then_some(request)
}

/// Of what, how long, and why.
fn hold(rest: Option<&str>) -> Option<(Key, Option<u32>, String)> {
    let (key_word, rest) = rest?.split_once(' ')?;
    let (time, reason) = rest.split_once(' ').unwrap_or((rest, ""));
    let seconds = match time {
        "-" => None,
        time => Some(within(time, 0, HOLD_SECONDS_MAX)?),
    };
    let fits = reason.len() <= REASON_MAX_BYTES && !reason.contains(char::is_control);
    fits.then_some((key(key_word)?, seconds, reason.to_owned()))
}

fn attempt(word: &str) -> Option<Attempt> {
    number(word).map(Attempt)
}

fn key(word: &str) -> Option<Key> {
    Key::new(word).ok()
}

fn count(word: &str) -> Option<usize> {
    within(word, 1, COUNT_MAX)?.try_into().ok()
}

/// A number of digits alone.
fn number<T: std::str::FromStr>(word: &str) -> Option<T> {
    let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    if digits { word.parse().ok() } else { None }
}

fn within(word: &str, least: u32, most: u32) -> Option<u32> {
    number(word).filter(|value| (least..=most).contains(value))
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
