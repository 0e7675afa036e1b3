//! Runs of fetchers: how they stand, and rows of them that enter the queue. And how the directory is that they come from.

use serde::{Deserialize, Serialize};
use shiftboss_protocol::model::{Row, Run};

use crate::file_identity::{DirectoryIdentity, Position};

/// A fetcher run as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRun {
    pub run: Run,
    /// All its lines are in the store.
    pub complete: bool,
    /// How far its file was read; `None` for a run nothing was read of, and for one taken
    /// over from a database that did not keep positions.
    pub position: Option<Position>,
    /// Rows now queued for it, dispatched ones included.
    pub rows: u64,
    /// A deletion of it was begun and must be gone on with.
    pub deleting: bool,
    /// Its file was read anew since it changed: there may be rows that the file lists no longer.
    pub stale: bool,
}

/// What came of making a run known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Registered {
    Run(StoredRun),
    /// Another daemon has its fetcher: which one, and how this one gets it, for people.
    Elsewhere(String),
}

/// How rows go on from what was read before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    #[default]
    Onward,
    /// At the start of the file, since it changed: the run is [stale](StoredRun::stale) from now on.
    Anew,
    /// Likewise, and what is read from here on is the whole list, for [`Prune`](super::Prune).
    Listing,
}

/// Rows of one run that enter the queue together with the position behind them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowBatch {
    /// The run, already registered.
    pub run: Run,
    /// Lines in file order; of a key that occurs twice the last payload counts.
    pub rows: Vec<Row>,
    /// Lines skipped as faulty since the previous batch.
    pub skipped: u64,
    /// The offset from which they are read on: where the run's position is another one, and not the one behind them, the batch is
    /// rejected. So nothing is left out where the queue went back, to a backup, say. `None`: that is not known.
    #[serde(default)]
    pub from: Option<u64>,
    /// Its rows came before it, by their ranges: where none were added to the run since its position moved, the batch is rejected.
    #[serde(default)]
    pub by_range: bool,
    pub position: Position,
    /// These are the last rows: the run is complete from this transaction on. `false` on a
    /// run that was complete makes it a growing one again.
    pub complete: bool,
    pub reading: Reading,
}

impl RowBatch {
    /// All rows of a run, of a file of which nothing else is known.
    pub fn of(run: Run, rows: Vec<Row>) -> Self {
        Self {
            run,
            rows,
            skipped: 0,
            from: None,
            by_range: false,
            position: Position::default(),
            complete: true,
            reading: Reading::Onward,
        }
    }

    /// Why it is rejected by a store that does not know its run, or not [as far as this](Self::from).
    pub fn unexpected(&self) -> String {
        format!("run {} is not known, or its position is another one by now", self.run)
    }

    /// The same of no rows, and of no faulty lines.
    pub fn without_rows(&self) -> Self {
        Self { rows: Vec::new(), skipped: 0, run: self.run.clone(), ..*self }
    }
}

/// How the input directory is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputDirectory {
    There(DirectoryIdentity),
    Lost(String),
}
