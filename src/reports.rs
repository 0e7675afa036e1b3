//! What there is to say of a queue, as one line of JSON: the one place where that is made (docs/json.md).
//!
//! The commands that look use [`Target`]; `serve` gives the connections [`DatabaseReports`], the
//! actors' port [`Reports`] over the same. Every question opens the database for reading and closes
//! it again: operators ask seldom, and a reader that stays keeps the database's log from being cut.

use std::path::{Path, PathBuf};

use serde::Serialize;
use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_actors::live::{Live, SpoolLive};
use shiftboss_actors::reports::{ReportError, Reports, Turn};
use shiftboss_protocol::model::Key;
use shiftboss_protocol::wire::session::Question;
use shiftboss_spool::Spool;

use crate::lock::{self, Holder, LockState};
use crate::stores::sqlite::views::{Wanted, log, queue, turns, why};
use crate::stores::sqlite::{QueueStatus, ViewError, queue_status};

/// A database that is looked at, and the daemon that keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub database: PathBuf,
    /// Its daemon, if one runs.
    pub daemon: LockState,
}

impl Target {
    /// A database, with the daemon that runs on it now.
    pub fn of_database(database: PathBuf) -> Self {
        Self { daemon: lock::state_of(&database), database }
    }

    /// What was found there as one line of JSON, without a line end.
    pub fn line<T: Serialize>(&self, found: &T) -> serde_json::Result<String> {
        let (daemon, daemon_unknown) = match &self.daemon {
            LockState::Free => (None, None),
            LockState::By(holder) => (Some(holder), None),
            LockState::Unknown(why) => (None, Some(*why)),
        };
        serde_json::to_string(&Report { database: &self.database, daemon, daemon_unknown, found })
    }
}

/// The object: where it was found, and what.
#[derive(Serialize)]
struct Report<'a, T> {
    database: &'a Path,
    /// `null`: none runs, or that is not known.
    daemon: Option<&'a Holder>,
    /// Why it is not known whether one runs.
    daemon_unknown: Option<&'a str>,
    #[serde(flatten)]
    found: &'a T,
}

/// How a queue and its daemon are; the JSON object of `status`.
#[derive(Debug, Serialize)]
pub struct Status {
    #[serde(flatten)]
    pub queue: QueueStatus,
    /// What the daemon's memory tells; `None`: it could not be asked.
    pub live: Option<Live>,
}

/// Answers operators over the socket, from the database at a path.
#[derive(Debug)]
pub struct DatabaseReports {
    pub database: PathBuf,
    /// The spool that the daemon takes tasks from.
    pub spool: Option<Spool>,
}

impl Reports for DatabaseReports {
    fn answer(&self, question: &Question, live: Option<Live>) -> Result<String, ReportError> {
        let now = SystemClock.now();
        match question {
            Question::Status => {
                let live = live.map(|live| Live { spool: self.spool(), ..live });
                self.line(queue_status(&self.database, now).map(|queue| Status { queue, live }))
            }
            Question::Queue(count) => self.line(queue(&self.database, size(*count), now)),
            Question::Log(count) => {
                let wanted = Wanted { count: size(*count), ..Wanted::default() };
                self.line(log(&self.database, &wanted))
            }
            Question::Why(key) => match why(&self.database, key.as_str(), now) {
                Ok(None) => Err(ReportError::Unknown(format!("nobody ever heard of {key}"))),
                Ok(Some(found)) => self.line(Ok(found)),
                Err(error) => self.line::<()>(Err(error)),
            },
        }
    }

    fn turns(&self, keys: &[Key]) -> Result<Vec<Turn>, ReportError> {
        let found = turns(&self.database, keys, SystemClock.now());
        found.map_err(|error| ReportError::Unavailable(error.to_string()))
    }
}

impl DatabaseReports {
    /// How the spool is. One that cannot be listed is the log's to tell.
    fn spool(&self) -> Option<SpoolLive> {
        let spool = self.spool.as_ref()?;
        let dead = spool.list(&spool.options().dead_letter);
        Some(SpoolLive {
            path: spool.path().to_string_lossy().into_owned(),
            lost: !spool.is_at_its_path(),
            dead_letters: dead.map_or(0, |entries| entries.len()),
        })
    }

    fn line<T: Serialize>(&self, found: Result<T, ViewError>) -> Result<String, ReportError> {
        let found = found.map_err(|error| ReportError::Unavailable(error.to_string()))?;
        let line = Target::of_database(self.database.clone()).line(&found);
        line.map_err(|error| ReportError::Unavailable(error.to_string()))
    }
}

fn size(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
