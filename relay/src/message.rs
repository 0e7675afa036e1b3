//! The messages between relays and daemons, as in docs/broker.md: JSON bodies, with a version in the headers.
//!
//! A body from a relay comes from another trust zone: it is checked here before storage sees it.

use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shiftboss_protocol::fetcher_file::{FileName, Named};
use shiftboss_protocol::model::{Key, Row, Run};
use shiftboss_protocol::task_line::LINE_MAX_BYTES;
use shiftboss_protocol::verbs::{Argument, HoldTime, Name, Reason};
use shiftboss_queue::hold_rules::HoldOf;
use shiftboss_queue::operation::{
    AddRows, AddTask, InputDirectory, JoinedRelay, Lane, NoteInput, Operation, RANGES,
    RELAYED_OPERATIONS_MAX, RelayAnswer, RelayedRows, RowsAnswer,
};

/// The version of the messages; another one is refused.
pub(crate) const VERSION: i64 = 1;
pub(crate) const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most jobs of one batch, and most bytes of their payloads in its answer; a single job may have more.
pub(crate) const HAND_OUTS_MAX: usize = 64;
pub(crate) const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most bytes that one byte may become in JSON.
pub(crate) const ESCAPED_BYTES_MAX: usize = 6;
/// Most bytes of an error about a body: it may quote a long one, and logs and headers have limits.
const WHY_BYTES_MAX: usize = 1_000;
const NAME_BYTES_MAX: usize = 255;
/// The longest name of a file, or reason why it is left out.
const NOTE_BYTES_MAX: usize = 8 * 1024;
/// Most rows of one step of a deletion.
const LIMIT_MAX: usize = 100_000;

/// A relay's requests. Each is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// To act on the queue under a name, as a process with a unique identity.
    Join { name: Arc<str>, process: Arc<str>, installation: Option<Arc<str>> },
    /// To carry operations out, once for each number; without operations it says that the relay is alive.
    Batch { epoch: i64, lane: Lane, number: i64, operations: Vec<Operation> },
    /// The relay stops: others must keep its leases.
    Leave { epoch: i64 },
}

/// The limits of one message with rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageSize {
    pub rows: usize,
    /// Of keys and payloads.
    pub bytes: usize,
}

impl MessageSize {
    pub const ROWS: RangeInclusive<u32> = 1..=1_000;
    pub const BYTES: RangeInclusive<u32> = 1024..=1024 * 1024;
}

impl Default for MessageSize {
    fn default() -> Self {
        Self { rows: 100, bytes: 256 * 1024 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Joined(JoinedRelay),
    Batch(RelayAnswer),
    /// The answer to rows, which come by their range's queue.
    Rows(RowsAnswer),
    Left,
    /// Nothing was done; the request may be repeated.
    Busy(String),
    /// The same, because the database has no space.
    Full(String),
    /// It will not be done, however often it is repeated.
    Refused(String),
    Taken(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    #[error(
        "the message has the version {0}, and this shiftboss speaks {VERSION}: update the older side"
    )]
    Version(i64),
    #[error("the message has {0} bytes, and {BODY_BYTES_MAX} may be")]
    TooLarge(usize),
    #[error("the message cannot be read: {0}")]
    Garbled(String),
    #[error("the message has what no relay may ask: {0}")]
    Forbidden(String),
}

/// The range through whose queue a key's rows go: the first eight bytes of its SHA-256, big-endian, modulo [`RANGES`], which is the
/// last of them. It never changes, because the order of a key's rows is that of one queue.
pub(crate) fn range_of(key: &Key) -> u8 {
    Sha256::digest(key.as_str().as_bytes())[7] % RANGES
}

pub(crate) fn encode(body: &impl Serialize) -> Vec<u8> {
    // It fails only for maps whose keys are not texts, and no body has one.
    serde_json::to_vec(body).unwrap_or_default()
}

/// Reads a body.
///
/// # Errors
/// If it is of another version, too large, or invalid.
pub(crate) fn decode<T: DeserializeOwned>(version: i64, body: &[u8]) -> Result<T, Unfit> {
    if version != VERSION {
        return Err(Unfit::Version(version));
    }
    if body.len() > BODY_BYTES_MAX {
        return Err(Unfit::TooLarge(body.len()));
    }
    serde_json::from_slice(body).map_err(|error| {
        let mut why = error.to_string();
        why.truncate(why.floor_char_boundary(WHY_BYTES_MAX));
        Unfit::Garbled(why)
    })
}

impl Request {
    /// Whether the request is valid, apart from its operations.
    pub(crate) fn check(&self) -> Result<(), Unfit> {
        match self {
            Self::Join { name, process, .. } => {
                let is_short = |text: &str| !text.is_empty() && text.len() <= NAME_BYTES_MAX;
                let is_fit =
                    is_short(name) && is_short(process) && !name.contains(char::is_control);
                if is_fit { Ok(()) } else { forbidden("a name that is none") }
            }
            Self::Batch { operations, .. } if operations.len() > RELAYED_OPERATIONS_MAX => {
                forbidden(format!("{} operations at once", operations.len()))
            }
            Self::Batch { .. } | Self::Leave { .. } => Ok(()),
        }
    }
}

fn forbidden<T>(what: impl Into<String>) -> Result<T, Unfit> {
    Err(Unfit::Forbidden(what.into()))
}

/// Whether a relay may send it, with values as our own relay makes them; `operators`: also operations that only
/// operators may send.
pub(crate) fn check(operation: &Operation, operators: bool) -> Result<(), Unfit> {
    use Operation as Op;
    match operation {
        Op::Dispatch(it) => it.holder.as_ref().map_or(Ok(()), |holder| check_name(&holder.worker)),
        Op::RegisterRun(it) => check_run(&it.0),
        Op::AddRows(AddRows(batch)) => {
            check_run(&batch.run)?;
            batch.rows.iter().try_for_each(check_row)
        }
        Op::Prune(it) => check_limit(it.limit),
        Op::DeleteRuns(it) => check_limit(it.limit),
        Op::Complete(_)
        | Op::CompleteAttempt(_)
        | Op::Release(_)
        | Op::Heartbeat(_)
        | Op::AskFor(_)
        | Op::Expire(_)
        | Op::Undo(_)
        | Op::BeginDeletion(_)
        | Op::Probe(_)
        | Op::Runs(_)
        | Op::Leases(_)
        | Op::Stops(_)
        | Op::HasWork(_)
        | Op::CountInFlight(_)
        | Op::WhyIdle(_) => Ok(()),
        Op::RejectFile(it) => check_notes(&[&it.name, &it.reason]),
        Op::ForgetRejected(it) => check_notes(&[&it.0]),
        Op::NoteInput(NoteInput(InputDirectory::Lost(why))) => check_notes(&[why]),
        Op::NoteInput(_) => Ok(()),
        order => match check_order(order) {
            None => forbidden("an operation that is a daemon's own"),
            Some(checked) if operators => checked,
            Some(_) => forbidden(
                "an operator's order; start the daemon with --relay-operators and this relay's name to allow those",
            ),
        },
    }
}

/// Checks an operator's order; `None`: it is none.
fn check_order(operation: &Operation) -> Option<Result<(), Unfit>> {
    use Operation as Op;
    Some(match operation {
        Op::AddTask(AddTask { id: Some(id), .. }) if Name::read(id).is_none() => {
            forbidden("an ID that is none")
        }
        Op::AddTask(AddTask { task, .. }) => check_row(task),
        Op::Hold(it) => check_hold(it.seconds, &it.reason, &it.by),
        Op::HoldGroup(it) => check_hold(it.seconds, &it.reason, &it.by),
        Op::HoldAll(it) => {
            check_held(&it.of).and_then(|()| check_hold(it.seconds, &it.reason, &it.by))
        }
        Op::UnholdAll(it) => check_held(&it.0),
        Op::Bump(it) => check_name(&it.by),
        Op::Retry(_)
        | Op::Requeue(_)
        | Op::Stop(_)
        | Op::SetPaused(_)
        | Op::CancelTasks(_)
        | Op::Unhold(_)
        | Op::UnholdGroup(_)
        | Op::Forget(_) => Ok(()),
        _ => return None,
    })
}

/// A relay's notes about its files, for people.
fn check_notes(notes: &[&str]) -> Result<(), Unfit> {
    let is_long = |note: &&&str| note.len() > NOTE_BYTES_MAX;
    notes
        .iter()
        .find(is_long)
        .map_or(Ok(()), |note| forbidden(format!("a note of {} bytes", note.len())))
}

fn check_held(of: &HoldOf) -> Result<(), Unfit> {
    let is_right = match of {
        HoldOf::Prefix(text) => Key::new(text).is_ok(),
        HoldOf::Fetcher(name) => Name::read(name).is_some(),
    };
    if is_right { Ok(()) } else { forbidden("a rule for no prefix and no fetcher") }
}

fn check_hold(seconds: Option<u32>, reason: &str, by: &str) -> Result<(), Unfit> {
    match (HoldTime::of(seconds), Reason::read(reason)) {
        (Some(_), Some(_)) => check_name(by),
        _ => forbidden("a hold with a time or a reason that is none"),
    }
}

/// The name of a worker, or of another requester.
fn check_name(name: &str) -> Result<(), Unfit> {
    Name::read(name).map_or_else(|| forbidden("a name that is none"), |_| Ok(()))
}

pub(crate) fn check_rows(relayed: &RelayedRows, range: u8) -> Result<(), Unfit> {
    if relayed.range != range {
        return forbidden(format!("rows of the range {} by the queue of {range}", relayed.range));
    }
    if relayed.rows.len() > *MessageSize::ROWS.end() as usize {
        return forbidden(format!("{} rows at once", relayed.rows.len()));
    }
    check_run(&relayed.run)?;
    relayed.rows.iter().try_for_each(|row| {
        check_row(row)?;
        let own = range_of(&row.key);
        if own == range {
            Ok(())
        } else {
            forbidden(format!("a key of the range {own} by the queue of {range}"))
        }
    })
}

fn check_row(row: &Row) -> Result<(), Unfit> {
    let Row { key, payload } = row;
    if let Err(error) = Key::new(key.as_str()) {
        return forbidden(error.to_string());
    }
    if payload.len() > LINE_MAX_BYTES {
        return forbidden(format!("a payload of {} bytes", payload.len()));
    }
    if payload.contains('\n') { forbidden("a payload with a line end") } else { Ok(()) }
}

fn check_run(run: &Run) -> Result<(), Unfit> {
    match FileName::parse(run.file_name(false).as_ref()) {
        Named::Fetcher(name) if name.run == *run => Ok(()),
        _ => forbidden("a list whose name is none"),
    }
}

fn check_limit(limit: usize) -> Result<(), Unfit> {
    if limit <= LIMIT_MAX { Ok(()) } else { forbidden(format!("a step of {limit} rows")) }
}

#[cfg(test)]
mod tests {
    use shiftboss_protocol::model::{Attempt, LeaseHolder};
    use shiftboss_queue::error::Rejected;
    use shiftboss_queue::operation::{
        AddRows, Dispatch, Dispatched, HasWork, Heartbeat, Outcome, Prune, RegisterRun, RejectFile,
        RelayAnswer, Retry, RowBatch,
    };

    use super::*;

    /// Expected values from another implementation: `printf %s KEY | sha256sum`, the sixteenth digit.
    #[test]
    fn ranges_are_as_documented() {
        let known = [("alpha", 0xe), ("bravo", 0xd), ("python3Packages.requests", 0x3), ("é", 0x3)];
        for (key, range) in known {
            assert_eq!(range_of(&Key::new(key).unwrap()), range, "{key}");
        }
    }

    /// The examples of docs/broker.md, byte for byte.
    #[test]
    fn messages_are_as_documented() {
        let holder = Some(LeaseHolder { worker: "w".into(), lease_seconds: 60 });
        let operations = vec![
            Operation::Dispatch(Dispatch { holder, fetchers: None }),
            Operation::Heartbeat(Heartbeat(Attempt(7))),
            Operation::Runs(shiftboss_queue::operation::Runs),
        ];
        let (name, process) = ("site-2".into(), "9f1c0a77d2e4b183".into());
        let (epoch, lane, number) = (1_795_497_070_000, Lane::Jobs, 1);
        let requests = [
            (
                Request::Join { name, process, installation: None },
                r#"{"join":{"name":"site-2","process":"9f1c0a77d2e4b183","installation":null}}"#,
            ),
            (
                Request::Batch { epoch, lane, number, operations },
                r#"{"batch":{"epoch":1795497070000,"lane":"jobs","number":1,"operations":[{"dispatch":{"holder":{"worker":"w","lease_seconds":60}}},{"heartbeat":7},{"runs":null}]}}"#,
            ),
            (Request::Leave { epoch }, r#"{"leave":{"epoch":1795497070000}}"#),
        ];
        for (request, text) in requests {
            assert_eq!(String::from_utf8(encode(&request)).unwrap(), text);
            assert_eq!(decode(VERSION, text.as_bytes()), Ok(request));
        }
        let job = Row { key: Key::new("alpha").unwrap(), payload: "1".to_owned() };
        let outcomes = vec![
            Ok(Outcome::Dispatch(Dispatched::Job(
                Attempt(7),
                job,
                shiftboss_protocol::model::About::default(),
            ))),
            Err(Rejected("why".to_owned())),
        ];
        let installation = "5b0c".into();
        let joined =
            JoinedRelay { epoch: 5, installation, is_paused: false, input_directory: None };
        let replies = [
            (
                Reply::Joined(joined),
                r#"{"joined":{"epoch":5,"installation":"5b0c","is_paused":false,"input_directory":null}}"#,
            ),
            (
                Reply::Batch(RelayAnswer::Answered(outcomes)),
                r#"{"batch":{"answered":[{"Ok":{"dispatch":{"job":[7,{"key":"alpha","payload":"1"},{"fetcher":"","retry":0,"retries":0}]}}},{"Err":"why"}]}}"#,
            ),
            (Reply::Rows(RowsAnswer::Stored), r#"{"rows":"stored"}"#),
            (Reply::Rows(RowsAnswer::Rejected("why".to_owned())), r#"{"rows":{"rejected":"why"}}"#),
            (Reply::Batch(RelayAnswer::Outdated), r#"{"batch":"outdated"}"#),
            (Reply::Batch(RelayAnswer::Lost), r#"{"batch":"lost"}"#),
            (Reply::Left, r#""left""#),
            (Reply::Busy("why".to_owned()), r#"{"busy":"why"}"#),
            (Reply::Taken("why".to_owned()), r#"{"taken":"why"}"#),
        ];
        for (reply, text) in replies {
            assert_eq!(String::from_utf8(encode(&reply)).unwrap(), text);
            assert_eq!(decode(VERSION, text.as_bytes()), Ok(reply));
        }
    }

    /// Likewise.
    #[test]
    fn rows_are_as_documented() {
        let rows = vec![Row { key: Key::new("alpha").unwrap(), payload: "1".to_owned() }];
        let run = Run { fetcher: "f".into(), started: 1 };
        let relayed = RelayedRows { epoch: 1_795_497_070_000, range: 14, number: 1, run, rows };
        let text = r#"{"epoch":1795497070000,"range":14,"number":1,"run":{"fetcher":"f","started":1},"rows":[{"key":"alpha","payload":"1"}]}"#;
        assert_eq!(String::from_utf8(encode(&relayed)).unwrap(), text);
        assert_eq!(decode(VERSION, text.as_bytes()), Ok(relayed.clone()));
        assert_eq!(check_rows(&relayed, 14), Ok(()));
        assert!(check_rows(&relayed, 13).is_err());
        assert!(check_rows(&RelayedRows { range: 13, ..relayed }, 13).is_err());
    }

    /// Requests larger than our own relay's are refused, and so are those without a name.
    #[test]
    fn requests_are_bounded() {
        let batch = |count| {
            let operations = vec![Operation::HasWork(HasWork); count];
            Request::Batch { epoch: 1, lane: Lane::Jobs, number: 1, operations }
        };
        assert_eq!(batch(RELAYED_OPERATIONS_MAX).check(), Ok(()));
        assert!(batch(RELAYED_OPERATIONS_MAX + 1).check().is_err());
        let join = |name: &str, process: &str| {
            let (name, process) = (name.into(), process.into());
            Request::Join { name, process, installation: None }
        };
        let long = "n".repeat(NAME_BYTES_MAX);
        assert_eq!(join(&long, &long).check(), Ok(()));
        for (name, process) in [("", "p"), ("a\n", "p"), (&*format!("{long}n"), "p"), ("a", "")] {
            assert!(join(name, process).check().is_err(), "{name:?} {process:?}");
        }
    }

    /// Data that would enter the queue is checked, and operations of a daemon itself, or of operators, are refused.
    #[test]
    fn what_a_relay_may_not_ask() {
        let run = |fetcher: &str| Run { fetcher: fetcher.into(), started: 1 };
        let rows = |key: &str, payload: &str| {
            let rows = vec![Row { key: Key::stored(key), payload: payload.to_owned() }];
            Operation::AddRows(AddRows(RowBatch::of(run("f"), rows)))
        };
        let long = "n".repeat(NOTE_BYTES_MAX + 1);
        let retry = Operation::Retry(Retry { key: Key::stored("a"), fetcher: None });
        let holder = LeaseHolder { worker: "a\nb".into(), lease_seconds: 1 };
        for (operation, operators) in [
            (rows("a b", "1"), true),
            (rows("", "1"), true),
            (rows("a", "1\n2"), true),
            (rows("a", &"p".repeat(LINE_MAX_BYTES + 1)), true),
            (Operation::RegisterRun(RegisterRun(run("@tasks"))), true),
            (Operation::RegisterRun(RegisterRun(run("a.b"))), true),
            (Operation::Prune(Prune { run: run("f"), limit: usize::MAX }), true),
            (Operation::Dispatch(Dispatch { holder: Some(holder), fetchers: None }), true),
            (Operation::RejectFile(RejectFile { name: "f".into(), reason: long.clone() }), true),
            (Operation::NoteInput(NoteInput(InputDirectory::Lost(long))), true),
            (retry.clone(), false),
        ] {
            assert!(check(&operation, operators).is_err(), "{operation:?}");
        }
        assert_eq!(check(&rows("a", " 1 "), false), Ok(()));
        assert_eq!(check(&retry, true), Ok(()));
    }
}
