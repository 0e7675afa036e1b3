//! One entry as it is this moment, available or checked out, with who has it. For tools and people; by
//! the next moment it may be different.

use std::path::PathBuf;
use std::time::SystemTime;

use rustix::io::Errno;
use serde::Serialize;

use super::Spool;
use super::claim::{FOREVER, Holder};
use super::entry::{DataStat, METADATA_BYTES_MAX};
use super::error::{self, Result};
use super::files;
use super::layout::{available, checked_out};
use super::name::{EntryName, QueueName};
use super::owner::{self, Identity};
use super::time::{of_milliseconds, unix_seconds};

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
    /// Nobody's process, until this time: a lease, or a delay before the next attempt.
    Until {
        /// When it is given back.
        #[serde(serialize_with = "unix_seconds")]
        until: SystemTime,
    },
    /// Nobody's process, until somebody settles it.
    Lent,
    /// A program that makes no notes.
    Unknown,
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sight {
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
    /// Why it was set apart, if that was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Spool {
    /// Looks at an entry of a queue, available or checked out.
    ///
    /// # Errors
    /// When it is neither, or the system refuses.
    pub fn sight(&self, queue: &QueueName, name: &EntryName) -> Result<Sight> {
        for (path, out) in [(available(queue, name), false), (checked_out(queue, name), true)] {
            let stat = match self.layer().stat(&path) {
                Err(Errno::NOENT) => continue,
                stat => stat.map_err(error::io("look at", &path))?,
            };
            let (holding, attempts) =
                if out { self.who_has(name)? } else { (Holding::Available, self.attempts(name)?) };
            let data = match self.data(name).stat() {
                Err(error) if error.errno() == Some(Errno::NOENT.raw_os_error()) => None,
                stat => Some(stat?),
            };
            return Ok(Sight {
                queue: queue.clone(),
                name: name.clone(),
                holding,
                attempts,
                since: stat.modified,
                metadata_bytes: stat.size,
                metadata_path: self.path().join(path),
                data,
                reason: self.reason(name)?,
            });
        }
        Err(Self::gone(queue, name))
    }

    /// The metadata of an entry that was looked at.
    ///
    /// # Errors
    /// When it is not there any more, cannot be read, or has more than [`METADATA_BYTES_MAX`].
    pub fn seen_metadata(&self, sight: &Sight) -> Result<Vec<u8>> {
        let path = match sight.holding {
            Holding::Available => available(&sight.queue, &sight.name),
            _ => checked_out(&sight.queue, &sight.name),
        };
        match files::read(self.layer(), &path, METADATA_BYTES_MAX) {
            Err(Errno::NOENT) => Err(Self::gone(&sight.queue, &sight.name)),
            result => result.map_err(error::io("read the metadata", &path)),
        }
    }

    /// Who has an entry that is checked out, and for which time.
    fn who_has(&self, name: &EntryName) -> Result<(Holding, u32)> {
        let Some(note) = self.note(name)? else {
            return Ok((Holding::Unknown, self.attempts(name)?));
        };
        let holding = match &note.holder {
            Holder::Until(FOREVER) => Holding::Lent,
            Holder::Until(time) => {
                of_milliseconds(*time).map_or(Holding::Lent, |until| Holding::Until { until })
            }
            Holder::Owner(id) | Holder::Accepting(id) => {
                let process = owner::read(self.layer(), id)?;
                Holding::Process { process, alive: !self.is_dead(id)? }
            }
        };
        Ok((holding, note.attempt))
    }
}
