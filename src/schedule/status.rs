//! How an on-change is: what a schedule notes, and what `--status` shows. Values only.

use serde::{Deserialize, Serialize};
use shiftboss_actors::store::EndedRun;

/// How it is. Times are in seconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The machine's state, by name.
    pub state: String,
    pub runs: u64,
    pub run_started: Option<i64>,
    pub last_run: Option<EndedRun>,
    /// The earliest start of the next run. `None`: when a run has ended, while one is on; else any time,
    /// as soon as something has changed and it is quiet.
    pub next_possible_run: Option<i64>,
    /// The next run, as far as one is planned.
    #[serde(skip)]
    pub next_run: Option<i64>,
}
