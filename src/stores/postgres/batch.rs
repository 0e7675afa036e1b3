//! A batch of operations as the columns of one call: an array for each parameter of the SQL function `apply`.
//!
//! Made by the store. Which columns an operation uses, and for what, stands here, and in the functions that read
//! them (`schema/apply.sql`).

use std::collections::HashMap;

use serde_json::{Value, json};
use shiftboss_actors::file_identity::Position;
use shiftboss_actors::store::{
    BUMPS_MAX, EntryId, HOLDS_ENDED_AT_ONCE, HOLDS_MAX, Hold, InputDirectory, Operation, Reading,
    RowBatch,
};
use shiftboss_protocol::model::{IDLE_COUNT_MAX, Key, Row, Run};
use tokio_postgres::types::ToSql;

/// Single tasks that one call deletes.
pub(super) const CANCELLED_AT_ONCE: usize = 10_000;

/// One operation: its name, and what it is about.
#[derive(Default)]
struct Step<'a> {
    kind: &'static str,
    key: Option<&'a Key>,
    /// An attempt, or a run's number.
    number: Option<i64>,
    /// An exit code, or how many rows at the most.
    code: Option<i64>,
    /// A worker, a fetcher or a file.
    name: Option<&'a str>,
    lease_seconds: Option<u32>,
    payload: Option<&'a str>,
    detail: Option<Value>,
    rows: Vec<&'a Row>,
}

/// The columns; those of rows are as long as all operations have rows.
#[derive(Default)]
pub(super) struct Batch<'a> {
    /// Where each step ends, from 1 on.
    until: Vec<i32>,
    kind: Vec<&'static str>,
    key: Vec<Option<&'a [u8]>>,
    jitter: Vec<Option<i32>>,
    number: Vec<Option<i64>>,
    code: Vec<Option<i64>>,
    name: Vec<Option<&'a str>>,
    lease_seconds: Vec<Option<i32>>,
    payload: Vec<Option<&'a [u8]>>,
    detail: Vec<Option<Value>>,
    /// Where the rows of each operation end.
    rows: Vec<i32>,
    row_key: Vec<&'a [u8]>,
    row_jitter: Vec<i32>,
    row_payload: Vec<&'a [u8]>,
}

impl<'a> Batch<'a> {
    pub(super) fn of(operations: &'a [Operation]) -> Self {
        let mut batch = Self::default();
        let mut own = runs_by_fetcher(operations);
        for operation in operations {
            let mut step = step(operation);
            if let Operation::RegisterRun(it) = operation {
                step.detail = own.remove(&*it.0.fetcher).map(Value::from);
            }
            batch.push(step);
        }
        batch
    }

    /// In the order of the parameters of `apply`.
    pub(super) fn columns(&self) -> [&(dyn ToSql + Sync); 14] {
        [
            &self.until,
            &self.kind,
            &self.key,
            &self.jitter,
            &self.number,
            &self.code,
            &self.name,
            &self.lease_seconds,
            &self.payload,
            &self.detail,
            &self.rows,
            &self.row_key,
            &self.row_jitter,
            &self.row_payload,
        ]
    }

    fn push(&mut self, step: Step<'a>) {
        let is_hot = |kind: &&str| matches!(*kind, "dispatch" | "complete" | "complete_attempt");
        if is_hot(&step.kind) && self.kind.last().is_some_and(is_hot) {
            self.until.pop();
        }
        self.kind.push(step.kind);
        self.until.push(count(self.kind.len()));
        self.key.push(step.key.map(|key| key.as_str().as_bytes()));
        self.jitter.push(step.key.map(Key::jitter));
        self.number.push(step.number);
        self.code.push(step.code);
        self.name.push(step.name);
        self.lease_seconds
            .push(step.lease_seconds.map(|seconds| i32::try_from(seconds).unwrap_or(i32::MAX)));
        self.payload.push(step.payload.map(str::as_bytes));
        self.detail.push(step.detail);
        self.row_key.extend(step.rows.iter().map(|row| row.key.as_str().as_bytes()));
        self.row_jitter.extend(step.rows.iter().map(|row| row.key.jitter()));
        self.row_payload.extend(step.rows.iter().map(|row| row.payload.as_bytes()));
        self.rows.push(count(self.row_key.len()));
    }
}

/// All runs that are registered: the first one of each fetcher names them, for the fetcher may be taken over.
fn runs_by_fetcher(operations: &[Operation]) -> HashMap<&str, Vec<i64>> {
    let mut runs: HashMap<&str, Vec<i64>> = HashMap::new();
    for operation in operations {
        if let Operation::RegisterRun(it) = operation {
            runs.entry(&*it.0.fetcher).or_default().push(it.0.started);
        }
    }
    runs
}

/// Lengths of arrays are far below the largest one.
fn count(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

fn limit(rows: usize) -> Option<i64> {
    Some(i64::try_from(rows).unwrap_or(i64::MAX))
}

/// One flat match over all operations.
fn step(operation: &Operation) -> Step<'_> {
    use Operation as Op;
    match operation {
        Op::Dispatch(it) => Step {
            name: it.holder.as_ref().map(|holder| &*holder.worker),
            lease_seconds: it.holder.as_ref().map(|holder| holder.lease_seconds),
            ..named("dispatch")
        },
        Op::Complete(it) => Step { code: Some(it.exit_code), ..of_key("complete", &it.key) },
        Op::CompleteAttempt(it) => {
            Step { code: Some(it.exit_code), ..of_number("complete_attempt", it.attempt.0) }
        }
        Op::Release(it) => of_number("release", it.0.0),
        Op::Heartbeat(it) => of_number("heartbeat", it.0.0),
        Op::Expire(it) => of_number("expire", it.0.0),
        Op::Undo(it) => Step { number: Some(it.attempt.0), ..of_key("undo", &it.key) },
        Op::Retry(it) => Step { name: it.fetcher.as_deref(), ..of_key("retry", &it.key) },
        Op::Requeue(it) => of_key("requeue", &it.0),
        Op::Drain(_) => named("drain"),
        Op::Hold(it) => hold(it),
        Op::Bump(it) => {
            Step { name: Some(&it.by), code: limit(BUMPS_MAX), ..of_key("bump", &it.key) }
        }
        Op::Unhold(it) => of_key("unhold", &it.0),
        Op::Forget(it) => of_key("forget", &it.0),
        Op::EndHolds(_) => Step { code: limit(HOLDS_ENDED_AT_ONCE), ..named("end_holds") },
        Op::NextHoldEnd(_) => named("next_hold_end"),
        Op::SetPaused(it) => named(if it.0 { "pause" } else { "resume" }),
        Op::RegisterRun(it) => of_run("register_run", &it.0),
        Op::AddRows(it) => added(&it.0),
        Op::Prune(it) => Step { code: limit(it.limit), ..of_run("prune", &it.run) },
        Op::BeginDeletion(it) => of_run("begin_deletion", &it.0),
        Op::DeleteRuns(it) => {
            let runs: Vec<Value> =
                it.runs.iter().map(|run| json!([run.fetcher, run.started])).collect();
            Step { code: limit(it.limit), ..with("delete_runs", Value::Array(runs)) }
        }
        Op::RejectFile(it) => {
            Step { name: Some(&it.name), ..with("reject_file", json!([text(&it.reason)])) }
        }
        Op::ForgetRejected(it) => Step { name: Some(&it.0), ..named("forget_rejected") },
        Op::NoteInput(it) => with("note_input", input(&it.0)),
        Op::AddTask(it) => add_task(&it.task),
        Op::CancelTasks(it) => {
            Step { code: limit(CANCELLED_AT_ONCE), ..of_key("cancel_tasks", &it.0) }
        }
        Op::AcceptEntries(it) => {
            let ids: Vec<Value> = it.0.iter().map(|entry| entry_id(&entry.id)).collect();
            let rows = it.0.iter().map(|entry| &entry.task).collect();
            Step { rows, ..with("accept_entries", Value::Array(ids)) }
        }
        Op::ForgetAccepted(it) => with("forget_accepted", entry_id(&it.0)),
        Op::NoteFetcher(it) => {
            let record = serde_json::to_value(&it.0).unwrap_or_default();
            Step { name: Some(&it.0.name), ..with("note_fetcher", record) }
        }
        Op::ForgetFetcher(it) => Step { name: Some(&it.0), ..named("forget_fetcher") },
        Op::Probe(_) => named("probe"),
        Op::Runs(_) => named("runs"),
        Op::Leases(_) => named("leases"),
        Op::HasWork(_) => named("has_work"),
        Op::CountInFlight(_) => named("count_in_flight"),
        Op::WhyIdle(_) => Step { code: Some(i64::from(IDLE_COUNT_MAX)), ..named("why_idle") },
        Op::AcceptedEntries(_) => named("accepted_entries"),
        Op::FetcherRecords(_) => named("fetcher_records"),
        // Of relays: those have calls of their own, and are not put into a batch.
        _ => named("probe"),
    }
}

fn named(kind: &'static str) -> Step<'static> {
    Step { kind, ..Step::default() }
}

fn add_task(task: &Row) -> Step<'_> {
    Step { payload: Some(&task.payload), ..of_key("add_task", &task.key) }
}

fn of_key<'a>(kind: &'static str, key: &'a Key) -> Step<'a> {
    Step { key: Some(key), ..named(kind) }
}

fn of_number(kind: &'static str, number: i64) -> Step<'static> {
    Step { number: Some(number), ..named(kind) }
}

fn of_run<'a>(kind: &'static str, run: &'a Run) -> Step<'a> {
    Step { name: Some(&run.fetcher), number: Some(run.started), ..named(kind) }
}

fn with(kind: &'static str, detail: Value) -> Step<'static> {
    Step { detail: Some(detail), ..named(kind) }
}

fn hold(hold: &Hold) -> Step<'_> {
    Step {
        number: hold.seconds.map(i64::from),
        name: Some(&hold.by),
        detail: Some(json!([text(&hold.reason)])),
        code: limit(HOLDS_MAX),
        ..of_key("hold", &hold.key)
    }
}

fn added(batch: &RowBatch) -> Step<'_> {
    let reading = match batch.reading {
        Reading::Onward => "onward",
        Reading::Anew => "anew",
        Reading::Listing => "listing",
    };
    let detail = json!({
        "reading": reading,
        "skipped": batch.skipped,
        "from": batch.from.map(u64::cast_signed),
        "by_range": batch.by_range,
        "complete": batch.complete,
        "position": position(&batch.position),
    });
    Step {
        rows: batch.rows.iter().collect(),
        detail: Some(detail),
        ..of_run("add_rows", &batch.run)
    }
}

/// Numbers of 64 bits are kept as signed ones, bit for bit.
fn position(position: &Position) -> Value {
    let Position { offset, lines, device, inode, checksum, content, verified } = *position;
    json!({
        "offset": offset.cast_signed(),
        "lines": lines.cast_signed(),
        "device": device.cast_signed(),
        "inode": inode.cast_signed(),
        "checksum": checksum.cast_signed(),
        "content": content.map(u64::cast_signed),
        "modified": verified.map(|times| times.modified),
        "changed": verified.map(|times| times.changed),
    })
}

fn input(input: &InputDirectory) -> Value {
    match input {
        InputDirectory::There(identity) => json!({ "there": identity.to_string() }),
        InputDirectory::Lost(reason) => json!({ "lost": text(reason) }),
    }
}

fn entry_id(id: &EntryId) -> Value {
    json!([id.spool, id.name, id.inode.cast_signed(), id.born, id.checksum.cast_signed()])
}

/// PostgreSQL's texts hold no NUL.
fn text(text: &str) -> String {
    text.replace('\0', "\\0")
}
