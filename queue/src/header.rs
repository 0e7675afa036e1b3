//! The header of a queue: data that does not belong to a key, kept by a store beside the records.
//!
//! The [engine](crate::engine) changes it, [stores](crate::records) load and save it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

use shiftboss_protocol::model::Attempt;

use crate::context::{Context, Settings};
use crate::counts::{Run, Tally};
use crate::credit::CREDIT_FIRST;
use crate::record::{FetcherId, Millis};

/// Whether a run may have rows that its file no longer has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Stale {
    #[default]
    No,
    /// Rows have come that lie beyond its position.
    Ahead,
    /// Its file has changed and is read anew.
    Yes,
}

impl Stale {
    /// The state for the next reader, which goes on from the position.
    pub fn for_the_next(self) -> Self {
        if self == Self::Ahead { Self::Yes } else { self }
    }

    pub fn code(self) -> i64 {
        match self {
            Self::No => 0,
            Self::Yes => 1,
            Self::Ahead => 2,
        }
    }

    pub fn of_code(code: i64) -> Self {
        match code {
            0 => Self::No,
            2 => Self::Ahead,
            _ => Self::Yes,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunState {
    /// When it was registered, in microseconds since 1970.
    pub since: i64,
    pub complete: bool,
    pub deleting: bool,
    /// The reading that is its whole list, for a prune, which removes rows of earlier readings.
    pub listing: Option<i64>,
    /// Its last reading.
    pub reading: i64,
    /// How far its file was read, as [text](crate::file_identity::Position::text).
    pub position: Option<String>,
    pub skipped: u64,
    pub stale: Stale,
}

/// Data that does not belong to a key. Loaded at the beginning of a batch, and saved with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub last_attempt: i64,
    pub last_bump: i64,
    pub last_single: i64,
    /// The latest microsecond that a key has been waiting since.
    pub last_since: i64,
    /// The credit of the lane, in thousandths.
    pub credit: i64,
    pub paused: bool,
    /// By how much the wall clock has been set in all; due times [follow](crate::rules::clocks).
    pub clock: Millis,
    pub fetchers: Arc<BTreeMap<FetcherId, Arc<str>>>,
    pub runs: Runs,
    pub counts: Tally,
}

impl Default for Header {
    /// The header of a new queue, whose first bump goes at once.
    fn default() -> Self {
        Self {
            last_attempt: 0,
            last_bump: 0,
            last_single: 0,
            last_since: 0,
            credit: CREDIT_FIRST,
            paused: false,
            clock: 0,
            fetchers: Arc::default(),
            runs: Runs::default(),
            counts: Tally::default(),
        }
    }
}

impl Header {
    pub fn context(&self, settings: &Arc<Settings>, now: Millis) -> Context {
        Context {
            now,
            clock: self.clock,
            settings: settings.clone(),
            last_attempt: Attempt(self.last_attempt),
            last_bump: self.last_bump,
            going: self.runs.going(),
            routed: Arc::default(),
            holds: Arc::default(),
            fetchers: self.fetchers.clone(),
        }
    }

    pub fn name_fetcher(&mut self, id: FetcherId, name: Arc<str>) {
        Arc::make_mut(&mut self.fetchers).insert(id, name);
    }
}

/// Runs, and which of them changed, or are being deleted: there may be many, but a batch concerns few.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Runs {
    all: BTreeMap<Run, RunState>,
    changed: BTreeSet<Run>,
    going: Arc<BTreeSet<Run>>,
}

impl Runs {
    /// A run, to change it; it is created if missing.
    pub fn change(&mut self, run: Run) -> &mut RunState {
        self.changed.insert(run);
        self.all.entry(run).or_default()
    }

    pub fn begin_deletion(&mut self, run: Run) {
        self.change(run).deleting = true;
        Arc::make_mut(&mut self.going).insert(run);
    }

    pub fn remove(&mut self, run: Run) {
        self.changed.insert(run);
        if self.all.remove(&run).is_some_and(|it| it.deleting) {
            Arc::make_mut(&mut self.going).remove(&run);
        }
    }

    pub fn going(&self) -> Arc<BTreeSet<Run>> {
        self.going.clone()
    }

    /// The runs that changed since the last call; those that no longer exist were removed.
    pub fn take_changed(&mut self) -> BTreeSet<Run> {
        std::mem::take(&mut self.changed)
    }
}

impl Deref for Runs {
    type Target = BTreeMap<Run, RunState>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl FromIterator<(Run, RunState)> for Runs {
    fn from_iter<I: IntoIterator<Item = (Run, RunState)>>(runs: I) -> Self {
        let all: BTreeMap<Run, RunState> = runs.into_iter().collect();
        let going = all.iter().filter(|(_, run)| run.deleting).map(|(run, _)| *run).collect();
        Self { all, changed: BTreeSet::new(), going: Arc::new(going) }
    }
}
