//! Protocol 2 (docs/protocol.md): what a line of an opted-in connection asks, and what it is
//! answered; a classic connection is answered with some of the same lines. Pure; the codec in
//! [`wire`](super) finds the lines.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, BytesMut};

use self::SessionRequest::Control as Change;
use super::integer;
use crate::model::{Attempt, Idle, Key, Row};
use crate::task_line::single_task;

/// The version that this program speaks.
pub const VERSION: &str = "2";
/// Longest name of a worker in bytes.
pub const NAME_MAX_BYTES: usize = 255;
/// A job's lease, if the worker does not say.
pub const LEASE_SECONDS: u32 = 60;
/// Longest lease.
pub const LEASE_SECONDS_MAX: u32 = 604_800;
/// Longest wait of a `READY`.
pub const WAIT_SECONDS_MAX: u32 = 86_400;
/// Most entries of a `QUEUE` or a `LOG`.
pub const COUNT_MAX: u32 = 10_000;

/// The first line of a connection that opts in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// As the worker names itself.
    pub worker: Arc<str>,
    /// The lease of its jobs.
    pub lease_seconds: u32,
}

/// What is wrong with a line: the error that it is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// For programs.
    pub code: ErrorCode,
    /// For people.
    pub text: &'static str,
}

impl Fault {
    pub(super) const fn usage(text: &'static str) -> Self {
        Self { code: ErrorCode::Usage, text }
    }
}

/// A `HELLO` for another version.
const OTHER_VERSION: Fault =
    Fault { code: ErrorCode::Version, text: "this daemon speaks protocol 2" };
/// A request that this version does not have.
const UNSUPPORTED: Fault = Fault {
    code: ErrorCode::Unsupported,
    text: "this daemon has no such request; its HELLO lists those it has",
};

/// Longest line of an `ADD` in bytes, without its end: a list's longest line, and the request's own words.
pub const ADD_LINE_MAX_BYTES: usize = 1024 * 1024 + 8 * 1024;
/// `ADD`s that came together and are done in one step.
pub(super) const ADDS_MAX: usize = 256;

/// What an opted-in worker asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionRequest {
    /// A job, please, and wait so long for one.
    Ready {
        /// Zero: do not wait.
        wait: Duration,
    },
    /// Something about an attempt.
    Attempt(Attempt, Word),
    /// The end of an attempt and, in the line behind, the next job: done in one step.
    Next {
        /// Which attempt ended.
        attempt: Attempt,
        /// How.
        exit_code: i64,
        /// As of [`SessionRequest::Ready`].
        wait: Duration,
    },
    /// The end of the connection.
    Quit,
    /// Whether the daemon can reach its database.
    Health,
    /// For operators only: single tasks that are to be added, of as many lines.
    Add(Vec<Row>),
    /// For operators only: how the queue stands.
    Status,
    /// For operators only: where a key is.
    Why(Key),
    /// For operators only: the next keys, so many.
    Queue(u32),
    /// For operators only: the attempts that ended last, so many.
    Log(u32),
    /// For operators only: change something.
    Control(Control),
    /// For operators only: have a fetcher that the daemon runs itself run now.
    RunFetcher(Arc<str>),
    /// For operators only: take the directory at the input's path, whichever it is.
    AcceptInput,
}

impl SessionRequest {
    /// Whether a worker asks it, and so is alive.
    #[must_use]
    pub fn is_of_a_worker(&self) -> bool {
        matches!(self, Self::Ready { .. } | Self::Attempt(..) | Self::Next { .. })
    }

    /// Whether only operators may ask it.
    #[must_use]
    pub fn is_of_an_operator(&self) -> bool {
        !(self.is_of_a_worker() || matches!(self, Self::Quit | Self::Health))
    }
}

/// What is said about an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// It ended with this code.
    Done(i64),
    /// It goes on.
    Beat,
    /// It is given back.
    Release,
}

/// What an operator wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// Put a key's dispatched rows back; of one fetcher only, if one is named.
    Retry(Key, Option<Box<str>>),
    /// Put a key's job back that is in flight.
    Requeue(Key),
    /// Hand nothing out.
    Pause,
    /// Hand out again.
    Resume,
    /// Hand nothing out, and stop when nothing is out.
    Drain,
    /// Delete a key's single tasks.
    Cancel(Key),
}

/// What the daemon answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionAnswer<'a> {
    /// The daemon speaks protocol 2 as well, and has these requests.
    Hello,
    /// A job under an attempt; `None`: by the classic protocol.
    Job(Option<Attempt>, &'a Row),
    /// Nothing is eligible, and why.
    NoJobs(Idle),
    /// Done as asked.
    Ok,
    /// The attempt is held no longer.
    Lost,
    /// Not done.
    Error(ErrorCode, &'a str),
    /// One line of JSON, for an operator.
    Json(&'a str),
}

/// The word of an error that is for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    /// The line is no request.
    Usage,
    /// Another version.
    Version,
    /// A request that this version does not have.
    Unsupported,
    /// Somebody else's by now.
    Stale,
    /// No such attempt, or key.
    Unknown,
    /// For operators only.
    Denied,
    /// Not at present.
    Busy,
    /// There is no room.
    Full,
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Usage => "usage",
            Self::Version => "version",
            Self::Unsupported => "unsupported",
            Self::Stale => "stale",
            Self::Unknown => "unknown",
            Self::Denied => "denied",
            Self::Busy => "busy",
            Self::Full => "full",
        })
    }
}

impl SessionAnswer<'_> {
    /// Appends the answer's line.
    pub fn encode(&self, bytes: &mut BytesMut) {
        match self {
            Self::Hello => {
                let verbs = REQUESTS.iter().flat_map(|(verb, ..)| [" ", verb]);
                let greeting = ["HELLO ", VERSION, " ", env!("CARGO_PKG_VERSION")];
                put(bytes, &greeting.into_iter().chain(verbs).collect::<Vec<_>>());
            }
            Self::Job(attempt, job) => {
                let attempt = attempt.map(|attempt| format!("{} ", attempt.0)).unwrap_or_default();
                put(bytes, &["JOB ", &attempt, job.key.as_str(), " ", &job.payload]);
            }
            Self::NoJobs(Idle::Nothing) => put(bytes, &["NOJOBS"]),
            Self::NoJobs(Idle::Paused(jobs)) => put(bytes, &["NOJOBS paused ", &jobs.to_string()]),
            Self::NoJobs(Idle::Busy(jobs)) => put(bytes, &["NOJOBS busy ", &jobs.to_string()]),
            Self::Ok => put(bytes, &["OK"]),
            Self::Lost => put(bytes, &["LOST"]),
            Self::Error(code, text) => {
                // An error of the system's may have several lines, and a key in it anything.
                let text = text.replace(char::is_control, " ");
                put(bytes, &["ERROR ", &code.to_string(), " ", &text]);
            }
            Self::Json(line) => put(bytes, &[line]),
        }
    }
}

fn put(bytes: &mut BytesMut, parts: &[&str]) {
    bytes.reserve(parts.iter().map(|part| part.len()).sum::<usize>() + 1);
    parts.iter().for_each(|part| bytes.put_slice(part.as_bytes()));
    bytes.put_u8(b'\n');
}

/// Whether a first line opts in, well or badly.
pub(super) fn opts_in(line: &[u8]) -> bool {
    line == b"HELLO" || line.starts_with(b"HELLO ")
}

/// Reads a first line that opts in.
pub(super) fn hello(line: &[u8]) -> Result<Hello, Fault> {
    const USAGE: Fault = Fault::usage("HELLO 2 <worker name> [lease seconds, 1 to 604800]");
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
        None => Ok(Hello { worker: worker.into(), lease_seconds }),
        Some(_) => Err(USAGE),
    }
}

fn is_name(text: &str) -> bool {
    (1..=NAME_MAX_BYTES).contains(&text.len()) && !text.contains(char::is_control)
}

/// Reads one line of an opted-in connection, without its end.
pub(super) fn request(line: &[u8]) -> Result<SessionRequest, Fault> {
    let text = std::str::from_utf8(line).map_err(|_| Fault::usage("lines are UTF-8"))?;
    let (verb, rest) = match text.split_once(' ') {
        Some((verb, rest)) => (verb, Some(rest)),
        None => (text, None),
    };
    if verb == "HELLO" {
        return Err(Fault::usage("HELLO is the first line of a connection"));
    }
    let known = REQUESTS.iter().find(|(request, ..)| *request == verb);
    let (_, usage, read) = known.ok_or(UNSUPPORTED)?;
    read(rest).ok_or(Fault::usage(usage))
}

/// Two lines that came together, if they are asked for in one step.
pub(super) fn joined(first: &SessionRequest, second: &[u8]) -> Option<SessionRequest> {
    match (first, request(second)) {
        (
            SessionRequest::Attempt(attempt, Word::Done(exit_code)),
            Ok(SessionRequest::Ready { wait }),
        ) => Some(SessionRequest::Next { attempt: *attempt, exit_code: *exit_code, wait }),
        _ => None,
    }
}

/// Reads what stands behind a verb and its space; `None`: it is not as it must be.
type Read = fn(Option<&str>) -> Option<SessionRequest>;

/// Every request: its verb, with which `HELLO` is answered, its grammar, for a faulty line, and how it is read.
const REQUESTS: &[(&str, &str, Read)] = &[
    ("READY", "READY [seconds, 0 to 86400]", |rest| {
        let seconds = rest.map_or(Some(0), |rest| within(rest, 0, WAIT_SECONDS_MAX))?;
        Some(SessionRequest::Ready { wait: Duration::from_secs(seconds.into()) })
    }),
    ("DONE", "DONE <attempt> <exit code>", |rest| {
        let (number, code) = rest?.split_once(' ')?;
        of_attempt(number, Word::Done(integer(code)?))
    }),
    ("BEAT", "BEAT <attempt>", |rest| of_attempt(rest?, Word::Beat)),
    ("RELEASE", "RELEASE <attempt>", |rest| of_attempt(rest?, Word::Release)),
    ("QUIT", ALONE, |rest| alone(rest, SessionRequest::Quit)),
    ("HEALTH", ALONE, |rest| alone(rest, SessionRequest::Health)),
    ("STATUS", ALONE, |rest| alone(rest, SessionRequest::Status)),
    ("WHY", "WHY <key>", |rest| Some(SessionRequest::Why(Key::new(rest?).ok()?))),
    ("QUEUE", "QUEUE <count, 1 to 10000>", |rest| Some(SessionRequest::Queue(count(rest?)?))),
    ("LOG", "LOG <count, 1 to 10000>", |rest| Some(SessionRequest::Log(count(rest?)?))),
    ("RETRY", "RETRY <key>", |rest| Some(Change(Control::Retry(Key::new(rest?).ok()?, None)))),
    ("RETRY-OF", "RETRY-OF <key> <fetcher>", |rest| {
        // A fetcher's name may have spaces, a key has none.
        let (key, fetcher) = rest?.split_once(' ').filter(|(_, name)| is_name(name))?;
        Some(Change(Control::Retry(Key::new(key).ok()?, Some(fetcher.into()))))
    }),
    ("REQUEUE", "REQUEUE <key>", |rest| Some(Change(Control::Requeue(Key::new(rest?).ok()?)))),
    ("PAUSE", ALONE, |rest| alone(rest, Change(Control::Pause))),
    ("RESUME", ALONE, |rest| alone(rest, Change(Control::Resume))),
    ("DRAIN", ALONE, |rest| alone(rest, Change(Control::Drain))),
    ("ACCEPT-INPUT", ALONE, |rest| alone(rest, SessionRequest::AcceptInput)),
    ("RUN-FETCHER", "RUN-FETCHER <fetcher>", |rest| {
        rest.filter(|name| is_name(name)).map(|name| SessionRequest::RunFetcher(name.into()))
    }),
    (
        "ADD",
        "ADD <key> <payload>, a line of at most 1048576 bytes without white space at its ends",
        |rest| Some(SessionRequest::Add(vec![single_task(rest?.as_bytes()).ok()?])),
    ),
    ("CANCEL", "CANCEL <key>", |rest| Some(Change(Control::Cancel(Key::new(rest?).ok()?)))),
];
const ALONE: &str = "this request stands alone";

fn alone(rest: Option<&str>, request: SessionRequest) -> Option<SessionRequest> {
    rest.is_none().then_some(request)
}

fn of_attempt(word: &str, said: Word) -> Option<SessionRequest> {
    number(word).map(|number| SessionRequest::Attempt(Attempt(number), said))
}

fn count(word: &str) -> Option<u32> {
    within(word, 1, COUNT_MAX)
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
