//! One entry as it is this moment, available or checked out, with who has it. For tools and people; by
//! the next moment it may be different.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::Spool;
use super::claim::{FOREVER, Holder};
use super::entry::{DataStat, unix_seconds};
use super::error::{Result, SpoolError};
use super::layout::{available, checked_out};
use super::name::{EntryName, QueueName};
use super::owner::{self, Identity};

/// Who or what has an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Holding {
    /// Nobody: it can be taken.
    Available,
    /// A process of ours.
    Process {
        /// Which, if its record can be read.
        process: Option<Identity>,
        /// Whether it lives; if not, the entry is given back by whoever waits next.
        alive: bool,
    },
    /// Nobody's process, until this time: a detached lease, or a delay before the next attempt.
    Until {
        /// When it is given back.
        #[serde(serialize_with = "unix_seconds")]
        until: SystemTime,
    },
    /// Nobody's process, until somebody resolves it.
    Detached,
    /// A program that makes no notes.
    Unknown,
}

/// What is known of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EntryInfo {
    /// Its queue, also while it is checked out.
    pub queue: QueueName,
    /// Its name.
    pub name: EntryName,
    /// Who has it.
    #[serde(flatten)]
    pub holding: Holding,
    /// How often it was claimed, this time included.
    pub attempts: u32,
    /// When it came where it is: into the queue, or out of it.
    #[serde(serialize_with = "unix_seconds")]
    pub since: SystemTime,
    /// Bytes of its metadata.
    pub metadata_bytes: u64,
    /// The file with its metadata, as long as it is where it is.
    #[serde(skip)]
    pub metadata_path: PathBuf,
    /// What is known of its data; none if that is missing.
    pub data: Option<DataStat>,
    /// Why it was moved to the dead letters, if that was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Spool {
    /// Looks at an entry of a queue, available or checked out.
    pub fn info(&self, queue: &QueueName, name: &EntryName) -> Result<EntryInfo> {
        for (path, out) in [(available(queue, name), false), (checked_out(queue, name), true)] {
            let Some(stat) = self.layer().look(&path)? else { continue };
            let (holding, attempts) =
                if out { self.who_has(name)? } else { (Holding::Available, self.attempts(name)?) };
            return Ok(EntryInfo {
                queue: queue.clone(),
                name: name.clone(),
                holding,
                attempts,
                since: stat.modified,
                metadata_bytes: stat.size,
                metadata_path: self.path().join(path),
                data: self.data(name).stat()?,
                reason: self.reason(name)?,
            });
        }
        Err(SpoolError::not_found(queue, name))
    }

    /// Who has an entry that is checked out, and how often it was claimed.
    fn who_has(&self, name: &EntryName) -> Result<(Holding, u32)> {
        let Some(note) = self.note(name)? else {
            return Ok((Holding::Unknown, self.attempts(name)?));
        };
        let holding = match &note.holder {
            Holder::Until(FOREVER) => Holding::Detached,
            // A time that the system's clock cannot say is as good as none.
            Holder::Until(time) => UNIX_EPOCH
                .checked_add(Duration::from_millis(*time))
                .map_or(Holding::Detached, |until| Holding::Until { until }),
            Holder::Owner(id) | Holder::Accepting(id) => {
                let process = owner::read(self.layer(), id)?;
                Holding::Process { process, alive: !self.is_dead(id)? }
            }
        };
        Ok((holding, note.attempt))
    }
}
