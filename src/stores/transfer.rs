//! A queue on its way from one kind of database to the other: its tables in a form that both know, and the order of
//! steps that makes a move all or nothing.
//!
//! Called by `shiftboss move`, with a [`Source`] and a [`Target`]; the stores implement both. It knows no SQL, and locks
//! nothing: whoever opens a source or a target sees to it that no daemon uses it.

use super::mark::{self, Mark, Moved, gone, unfinished};
use crate::exit::{ExitCode, Failure};

/// What a column holds, and how it is kept on a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Integer,
    /// Without NUL.
    Text,
    /// The key of a task: bytes, and the place that is derived from them.
    Key,
    Bytes,
}

/// One field of a row; `None` is NULL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Integer(Option<i64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

/// A part of a queue, as it is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    /// One row: what the queue knows beside its tables.
    State,
    /// 0 is the fetcher of single tasks, and is not among them.
    Fetchers,
    /// Lists, with how far their files were read; not those of single tasks.
    Runs,
    Queue,
    Log,
    /// When fetchers were last served with keys of which they have no row.
    LastServed,
    /// Those that ended, and, without an outcome, those that did not.
    Attempts,
    SingleTasks,
    Accepted,
    Completions,
    /// Ends by hour, fetcher and outcome.
    Hours,
    Holds,
    BackoffCounts,
    /// In the order in which keys were bumped.
    Bumps,
}

use Kind::{Bytes, Integer, Key, Text};

type Columns = &'static [(&'static str, Kind)];
/// last_*: numbers up to these are taken.
const STATE: Columns = &[
    ("paused", Integer),
    ("last_task", Integer),
    ("last_attempt", Integer),
    ("last_fetcher", Integer),
    ("lease", Integer),
    ("max_tasks", Integer),
    ("input_directory", Text),
    ("installation", Text),
    ("credit", Integer),
    ("bump_share", Integer),
];
const RUNS: Columns = &[
    ("fetcher", Integer),
    ("run_started", Integer),
    ("complete", Integer),
    ("deleting", Integer),
    ("stale", Integer),
    ("skipped", Integer),
    ("read_to", Integer),
    ("lines", Integer),
    ("device", Integer),
    ("inode", Integer),
    ("checksum", Integer),
    ("content", Integer),
    ("modified", Integer),
    ("changed", Integer),
    ("relay", Text),
];
/// marked: a JSON array of runs' numbers.
const ATTEMPTS: Columns = &[
    ("attempt", Integer),
    ("key", Key),
    ("fetcher", Integer),
    ("run_started", Integer),
    ("started_ms", Integer),
    ("worker", Text),
    ("lease", Integer),
    ("delivery_count", Integer),
    ("prev_started", Integer),
    ("prev_finished", Integer),
    ("prev_exit_code", Integer),
    ("prev_served", Integer),
    ("marked", Text),
    ("finished", Integer),
    ("outcome", Text),
    ("exit_code", Integer),
    ("took_ms", Integer),
    ("ended", Integer),
];

impl Table {
    /// In the order in which they are moved.
    const ALL: [Self; 14] = [
        Self::State,
        Self::Fetchers,
        Self::Runs,
        Self::Queue,
        Self::Log,
        Self::LastServed,
        Self::Attempts,
        Self::SingleTasks,
        Self::Accepted,
        Self::Completions,
        Self::Hours,
        Self::Holds,
        Self::BackoffCounts,
        Self::Bumps,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Fetchers => "fetchers",
            Self::Runs => "runs",
            Self::Queue => "queue",
            Self::Log => "log",
            Self::LastServed => "last_served",
            Self::Attempts => "attempts",
            Self::SingleTasks => "single_tasks",
            Self::Accepted => "accepted",
            Self::Completions => "completions",
            Self::Hours => "hours",
            Self::Holds => "holds",
            Self::BackoffCounts => "backoff_counts",
            Self::Bumps => "bumps",
        }
    }

    /// The columns, in order.
    pub(super) fn columns(self) -> Columns {
        match self {
            Self::State => STATE,
            Self::Fetchers => &[("fetcher", Integer), ("name", Text)],
            Self::Runs => RUNS,
            Self::Queue => &[
                ("fetcher", Integer),
                ("run_started", Integer),
                ("key", Key),
                ("payload", Bytes),
                ("dispatched", Integer),
                ("served", Integer),
                ("expired", Integer),
                ("dead", Integer),
            ],
            Self::Log => {
                &[("key", Key), ("started", Integer), ("finished", Integer), ("exit_code", Integer)]
            }
            Self::LastServed => &[("key", Key), ("name", Text), ("attempt", Integer)],
            Self::Attempts => ATTEMPTS,
            Self::SingleTasks => &[
                ("task", Integer),
                ("key", Key),
                ("added", Integer),
                ("status", Text),
                ("payload", Bytes),
            ],
            Self::Accepted => &[
                ("spool", Text),
                ("name", Text),
                ("inode", Integer),
                ("born", Integer),
                ("checksum", Integer),
            ],
            Self::Completions => &[("minute", Integer), ("exit_code", Integer), ("jobs", Integer)],
            Self::Hours => &[
                ("hour", Integer),
                ("fetcher", Text),
                ("outcome", Text),
                ("jobs", Integer),
                ("took_ms", Integer),
                ("revisits", Integer),
                ("revisit_seconds", Integer),
            ],
            Self::Holds => &[
                ("key", Key),
                ("kind", Text),
                ("since", Integer),
                ("until", Integer),
                ("reason", Text),
                ("held_by", Text),
            ],
            Self::BackoffCounts => &[("key", Key), ("failures", Integer)],
            Self::Bumps => &[
                ("key", Key),
                ("since", Integer),
                ("bumped_by", Text),
                ("attempt", Integer),
                ("last_attempt", Integer),
                ("kind", Text),
                ("due", Integer),
                ("fetcher", Integer),
                ("run_started", Integer),
                ("retries", Integer),
            ],
        }
    }
}

/// Called with each row of a table.
pub(super) type Each<'a> = &'a mut dyn FnMut(&[Value]) -> Result<(), Failure>;

/// Where a queue is moved from. Nobody changes it meanwhile.
pub(super) trait Source {
    /// As users name it.
    fn name(&self) -> String;

    /// One word that no other queue has, on any machine.
    fn identity(&mut self) -> Result<String, Failure>;

    /// The move that it is marked with.
    fn mark(&mut self) -> Result<Option<Mark>, Failure>;

    fn read(&mut self, table: Table, each: Each<'_>) -> Result<(), Failure>;

    /// From now on no daemon uses it.
    fn leave(&mut self, mark: &Mark) -> Result<(), Failure>;
}

/// Where it is moved to.
pub(super) trait Target {
    /// As users name it.
    fn name(&self) -> String;

    /// The move that was begun into it, and not ended.
    fn mark(&mut self) -> Result<Option<Mark>, Failure>;

    /// Removes what such a move left.
    fn discard(&mut self) -> Result<(), Failure>;

    /// Takes all in, durably, under a mark with which no daemon uses it; with an error nothing is left.
    fn fill(&mut self, mark: &Mark, source: &mut dyn Source) -> Result<Vec<Moved>, Failure>;

    /// The mark goes.
    fn open_up(&mut self) -> Result<(), Failure>;
}

/// Moves a queue. Whenever this is broken off, either the source is as it was, and what is in the target is discarded by
/// the next move; or the source is marked, and the next move only opens the target up.
pub(super) fn carry(
    source: &mut dyn Source,
    target: &mut dyn Target,
) -> Result<Vec<Moved>, Failure> {
    match (source.mark()?, target.mark()?) {
        (Some(left), Some(begun)) if left.number == begun.number => {
            target.open_up()?;
            return Ok(Vec::new());
        }
        (Some(left), _) => return Err(gone(&source.name(), &left)),
        (None, Some(begun)) if mark::is_of(&begun, &source.identity()?, &source.name()) => {
            target.discard()?;
        }
        (None, Some(begun)) => return Err(unfinished(&target.name(), &begun)),
        (None, None) => {}
    }
    let mut mark = mark::new(&source.identity()?, source.name());
    let moved = target.fill(&mark, source)?;
    mark.place = target.name();
    source.leave(&mark)?;
    target.open_up()?;
    Ok(moved)
}

/// There is something where a queue was to be moved to.
pub(super) fn occupied(text: String) -> Failure {
    Failure::new(ExitCode::CannotCreate, text)
}

/// What takes a queue in, table by table.
pub(super) trait Intake {
    fn begin(&mut self, table: Table) -> Result<(), Failure>;

    /// A row of the table that was begun last.
    fn add(&mut self, row: &[Value]) -> Result<(), Failure>;

    fn end(&mut self) -> Result<(), Failure>;
}

/// Reads all tables of a source.
pub(super) fn read_all(
    source: &mut dyn Source,
    intake: &mut dyn Intake,
) -> Result<Vec<Moved>, Failure> {
    let mut moved = Vec::new();
    for table in Table::ALL {
        let mut rows = 0;
        intake.begin(table)?;
        source.read(table, &mut |row| {
            rows += 1;
            intake.add(row)
        })?;
        intake.end()?;
        moved.push(Moved { table: table.name(), rows });
    }
    Ok(moved)
}
