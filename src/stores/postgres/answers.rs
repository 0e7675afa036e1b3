//! What the SQL function `apply` answers, as the outcomes of a batch. Used by the store.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use shiftboss_actors::file_identity::{FileTimes, Position};
use shiftboss_actors::store::answers::Hold;
use shiftboss_actors::store::{
    Ack, Added, Bumped, Cancelled, Dispatched, EntryId, ExpiredLease, Forgotten, Held, JobEnd,
    Operation, Outcome, Registered, Rejected, Requeued, Retried, StoredRun,
};
use shiftboss_protocol::model::{Attempt, IDLE_COUNT_MAX, Idle, Key, Row as Task, Run};
use tokio_postgres::Row;

use super::batch::CANCELLED_AT_ONCE;
use crate::stores::outcome_words::known;

/// The answer to one operation: a row of the type `outcome`.
pub(super) struct Answer {
    /// The operation's place in its batch, from 1 on.
    pub(super) ord: usize,
    pub(super) answer: Option<String>,
    pub(super) attempt: Option<i64>,
    key: Option<Vec<u8>>,
    pub(super) payload: Option<Vec<u8>>,
    pub(super) number: Option<i64>,
    detail: Option<Value>,
}

/// What was answered is not what was asked: a defect, or somebody altered the functions.
pub(super) type Misunderstood = String;

impl Answer {
    pub(super) fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let ord: i32 = row.try_get(0)?;
        Ok(Self {
            ord: usize::try_from(ord).unwrap_or_default(),
            answer: row.try_get(1)?,
            attempt: row.try_get(2)?,
            key: row.try_get(3)?,
            payload: row.try_get(4)?,
            number: row.try_get(5)?,
            detail: row.try_get(6)?,
        })
    }

    /// One flat match over all operations.
    pub(super) fn outcome(
        self,
        operation: &Operation,
    ) -> Result<Result<Outcome, Rejected>, Misunderstood> {
        use {Operation as Op, Outcome as Out};
        Ok(Ok(match operation {
            Op::Dispatch(_) => Out::Dispatch(self.dispatched()?),
            Op::Complete(_) => Out::Complete(()),
            Op::CompleteAttempt(_) => Out::CompleteAttempt(self.ack()?),
            Op::Release(_) => Out::Release(self.ack()?),
            Op::Heartbeat(_) => Out::Heartbeat(self.ack()?),
            Op::Expire(_) => Out::Expire(self.expired()?),
            Op::Undo(_) => Out::Undo(self.is("true")),
            Op::Retry(_) => Out::Retry(self.retried()),
            Op::Hold(_) => Out::Hold(self.held()?),
            Op::Bump(_) => Out::Bump(self.bumped()?),
            Op::Unhold(_) => Out::Unhold(self.is("true")),
            Op::Forget(_) => Out::Forget(self.forgotten()?),
            Op::EndHolds(_) => Out::EndHolds(()),
            Op::NextHoldEnd(_) => Out::NextHoldEnd(self.number.map(i64::cast_unsigned)),
            Op::Requeue(_) => Out::Requeue(self.requeued()?),
            Op::Drain(_) => Out::Drain(self.count()),
            Op::SetPaused(_) => Out::SetPaused(self.count()),
            Op::RegisterRun(it) => match self.registered(&it.0)? {
                Ok(stored) => Out::RegisterRun(stored),
                Err(rejected) => return Ok(Err(rejected)),
            },
            Op::AddRows(it) if self.is("unknown") => {
                return Ok(Err(Rejected(it.0.unexpected())));
            }
            Op::AddRows(_) => Out::AddRows(()),
            Op::Prune(_) => Out::Prune(self.is("true")),
            Op::BeginDeletion(_) => Out::BeginDeletion(()),
            Op::DeleteRuns(_) => Out::DeleteRuns(usize::try_from(self.count()).unwrap_or_default()),
            Op::RejectFile(_) => Out::RejectFile(()),
            Op::ForgetRejected(_) => Out::ForgetRejected(()),
            Op::NoteInput(_) => Out::NoteInput(()),
            Op::AddTask(_) => Out::AddTask(added(self.answer.as_deref())?),
            Op::CancelTasks(_) => Out::CancelTasks(self.cancelled()),
            Op::AcceptEntries(_) => {
                let answers: Vec<String> = self.detail()?;
                let answers = answers.iter().map(|answer| added(Some(answer)));
                Out::AcceptEntries(answers.collect::<Result<_, _>>()?)
            }
            Op::ForgetAccepted(_) => Out::ForgetAccepted(()),
            Op::NoteFetcher(_) => Out::NoteFetcher(()),
            Op::ForgetFetcher(_) => Out::ForgetFetcher(()),
            Op::Probe(_) => Out::Probe(()),
            Op::Runs(_) => {
                let runs: Vec<RunRow> = self.detail()?;
                Out::Runs(runs.into_iter().map(Into::into).collect())
            }
            Op::Leases(_) => {
                let leases: Vec<(i64, u32)> = self.detail()?;
                let lease = |(attempt, seconds)| (Attempt(attempt), seconds);
                Out::Leases(leases.into_iter().map(lease).collect())
            }
            Op::HasWork(_) => Out::HasWork(self.is("true")),
            Op::CountInFlight(_) => Out::CountInFlight(self.count()),
            Op::WhyIdle(_) => Out::WhyIdle(self.idle()),
            Op::AcceptedEntries(_) => {
                let ids: Vec<Entry> = self.detail()?;
                Out::AcceptedEntries(ids.into_iter().map(entry_id).collect())
            }
            Op::FetcherRecords(_) => Out::FetcherRecords(self.detail()?),
            // Of relays: those have calls of their own.
            _ => return Err("it answered what was not asked".to_owned()),
        }))
    }

    fn registered(self, run: &Run) -> Result<Result<Registered, Rejected>, Misunderstood> {
        if let Some(why) = self.answer {
            return Ok(Ok(Registered::Elsewhere(why)));
        }
        let stored: RunRow = self.detail()?;
        if stored.deleting {
            return Ok(Err(Rejected(format!("run {run} is being deleted"))));
        }
        Ok(Ok(Registered::Run(stored.into())))
    }

    pub(super) fn is(&self, answer: &str) -> bool {
        self.answer.as_deref() == Some(answer)
    }

    /// A truth among the details; `None`: not told.
    pub(super) fn flag(&self) -> Option<bool> {
        self.detail.as_ref().and_then(Value::as_bool)
    }

    /// What ended in the call, as the SQL function `tell_ends` puts it. Nothing is decided by it.
    pub(super) fn ends(&self) -> Vec<JobEnd> {
        let told = self.payload.as_deref().unwrap_or_default();
        let ends: Vec<End> =
            serde_json::from_slice(&[b"[", told, b"]"].concat()).unwrap_or_default();
        let end = |(fetcher, word, took_ms, revisit_seconds): End| {
            // Leases that end are noted by their operations.
            let attempt = Attempt(0);
            Some(JobEnd { attempt, fetcher, outcome: known(&word)?, took_ms, revisit_seconds })
        };
        ends.into_iter().filter_map(end).collect()
    }

    fn count(&self) -> u64 {
        self.number.unwrap_or_default().cast_unsigned()
    }

    fn detail<T: DeserializeOwned>(self) -> Result<T, Misunderstood> {
        serde_json::from_value(self.detail.unwrap_or_default()).map_err(|error| error.to_string())
    }

    fn misunderstood(&self) -> Misunderstood {
        format!("it answered {:?}", self.answer)
    }

    fn dispatched(self) -> Result<Dispatched, Misunderstood> {
        match (self.answer.as_deref(), self.attempt, &self.key, &self.payload) {
            (Some("job"), Some(attempt), Some(key), Some(payload)) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let job = Task { key: Key::stored(&text(key)), payload: text(payload) };
                Ok(Dispatched::Job(Attempt(attempt), job))
            }
            (Some("nothing"), ..) => Ok(Dispatched::Nothing),
            (Some("later"), ..) => Ok(Dispatched::Later),
            _ => Err(self.misunderstood()),
        }
    }

    fn ack(&self) -> Result<Ack, Misunderstood> {
        match self.answer.as_deref() {
            Some("recorded") => Ok(Ack::Recorded),
            Some("stale") => Ok(Ack::Stale),
            Some("unknown") => Ok(Ack::Unknown),
            _ => Err(self.misunderstood()),
        }
    }

    fn expired(self) -> Result<Option<ExpiredLease>, Misunderstood> {
        if self.is("ended") {
            return Ok(None);
        }
        let key = Key::stored(&String::from_utf8_lossy(self.key.as_deref().unwrap_or_default()));
        let Expired { worker, dead_letter, single } = self.detail()?;
        Ok(Some(ExpiredLease { key, worker, dead_letter, single }))
    }

    fn bumped(&self) -> Result<Bumped, Misunderstood> {
        match (self.answer.as_deref(), self.number) {
            (None, Some(before)) => Ok(Bumped::Behind(before.cast_unsigned())),
            (Some("held"), _) => Ok(Bumped::Held),
            (Some("full"), _) => Ok(Bumped::Full),
            (Some("unknown"), _) => Ok(Bumped::Unknown),
            (other, _) => Err(format!("it answered {other:?}")),
        }
    }

    fn forgotten(&self) -> Result<Forgotten, Misunderstood> {
        match self.answer.as_deref() {
            Some("forgotten") => Ok(Forgotten::Forgotten),
            Some("listed") => Ok(Forgotten::Listed),
            Some("in_flight") => Ok(Forgotten::InFlight),
            Some("unknown") => Ok(Forgotten::Unknown),
            _ => Err(self.misunderstood()),
        }
    }

    fn retried(&self) -> Retried {
        match self.number {
            None if self.is("held") => Retried::Held,
            None => Retried::Unknown,
            Some(rows) => Retried::Back(rows.cast_unsigned()),
        }
    }

    fn held(self) -> Result<Held, Misunderstood> {
        if self.detail.is_none() {
            return Ok(Held::Full);
        }
        let HeldKey { until, is_known, replaced } = self.detail()?;
        Ok(Held::Held { until, is_known, replaced })
    }

    fn requeued(&self) -> Result<Requeued, Misunderstood> {
        match (self.answer.as_deref(), self.attempt) {
            (Some("back"), Some(attempt)) => Ok(Requeued::Back(Attempt(attempt))),
            (Some("not in flight"), _) => Ok(Requeued::NotInFlight),
            (Some("unknown"), _) => Ok(Requeued::Unknown),
            _ => Err(self.misunderstood()),
        }
    }

    fn cancelled(&self) -> Cancelled {
        let deleted = self.count();
        Cancelled { deleted, more: deleted == CANCELLED_AT_ONCE as u64, in_flight: self.is("true") }
    }

    fn idle(&self) -> Idle {
        let count = u32::try_from(self.count()).unwrap_or(u32::MAX).min(IDLE_COUNT_MAX);
        match count {
            count if self.is("paused") => Idle::Paused(count),
            0 => Idle::Nothing,
            count => Idle::Busy(count),
        }
    }
}

fn added(answer: Option<&str>) -> Result<Added, Misunderstood> {
    match answer {
        // Its number is not told.
        Some("added") => Ok(Added::Added(0)),
        Some("known") => Ok(Added::Known),
        Some("full") => Ok(Added::Full),
        other => Err(format!("it answered {other:?}")),
    }
}

/// As the SQL function `hold` puts it.
#[derive(Deserialize)]
struct HeldKey {
    until: Option<i64>,
    is_known: bool,
    replaced: Option<Box<Hold>>,
}

#[derive(Deserialize)]
struct Expired {
    worker: Arc<str>,
    dead_letter: bool,
    single: bool,
}

/// A run, as the SQL function `stored_run` puts it.
#[derive(Deserialize)]
struct RunRow {
    fetcher: Arc<str>,
    started: i64,
    complete: bool,
    deleting: bool,
    stale: bool,
    rows: u64,
    position: Option<Read>,
}

/// As [`batch`](super::batch) puts a position.
#[derive(Deserialize)]
struct Read {
    offset: i64,
    lines: i64,
    device: i64,
    inode: i64,
    checksum: i64,
    content: Option<i64>,
    modified: Option<i64>,
    changed: Option<i64>,
}

impl From<RunRow> for StoredRun {
    fn from(stored: RunRow) -> Self {
        let RunRow { fetcher, started, complete, deleting, stale, rows, position } = stored;
        let run = Run { fetcher, started };
        Self { run, complete, position: position.map(Into::into), rows, deleting, stale }
    }
}

impl From<Read> for Position {
    fn from(read: Read) -> Self {
        let verified = read
            .modified
            .zip(read.changed)
            .map(|(modified, changed)| FileTimes { modified, changed });
        Self {
            offset: read.offset.cast_unsigned(),
            lines: read.lines.cast_unsigned(),
            device: read.device.cast_unsigned(),
            inode: read.inode.cast_unsigned(),
            checksum: read.checksum.cast_unsigned(),
            content: read.content.map(i64::cast_unsigned),
            verified,
        }
    }
}

/// fetcher, outcome, milliseconds, seconds since the key's start before
type End = (Arc<str>, String, u64, Option<u64>);

/// spool, name, inode, born, checksum
type Entry = (Arc<str>, Arc<str>, i64, i64, i64);

fn entry_id((spool, name, inode, born, checksum): Entry) -> EntryId {
    EntryId { spool, name, inode: inode.cast_unsigned(), born, checksum: checksum.cast_unsigned() }
}
