//! Entries on disk, without any exclusion: listing, looking, reading, removing. For tools and people: everything may
//! change the next moment; consumers use a guard.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use serde::{Serialize, Serializer};

use super::Spool;
use super::claim::{FOREVER, Holder};
use super::error::{NoneIf, Result, SpoolError, io};
use super::layer::{FileStat, How};
use super::layout::{
    ATTEMPTS, DATA, MOVING, QUARANTINE, REASONS, REGISTRY, TMP, available, checked_out, checkouts,
    entries, under,
};
use super::name::{EntryName, QueueName};
use super::owner::{self, Identity};

/// Most bytes of metadata: it is small and rewritten often.
pub const METADATA_BYTES_MAX: u64 = 1024 * 1024;
/// Most bytes of data that are loaded or saved in one piece: 1 GiB.
pub const DATA_BYTES_MAX: u64 = 1024 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DataStat {
    pub bytes: u64,
    #[serde(serialize_with = "unix_seconds")]
    pub modified: SystemTime,
}

/// A time in whole seconds since 1970, for the spool's JSON; earlier times count as 1970.
pub(crate) fn unix_seconds<S: Serializer>(
    time: &SystemTime,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

/// How long ago a time was; a future time counts as now.
pub(crate) fn age(time: SystemTime) -> Duration {
    SystemTime::now().duration_since(time).unwrap_or_default()
}

/// An entry's payload: a file that stays where it is, whatever queue the entry is in.
#[derive(Debug, Clone)]
pub struct Data {
    spool: Spool,
    /// In the spool.
    place: PathBuf,
}

impl Data {
    /// The file, for programs that read it themselves.
    pub fn path(&self) -> PathBuf {
        self.spool.path().join(&self.place)
    }

    pub fn load(&self) -> Result<Vec<u8>> {
        let read = self.spool.layer().read_file(&self.place, DATA_BYTES_MAX);
        read.map_err(io("read the data", &self.place))
    }

    /// Checks that it is a file of the spool's own, if it exists: otherwise its path leads to something that was not
    /// put into the spool. The error says what is there instead.
    pub fn require_own(&self) -> Result<()> {
        let stat = self.spool.layer().look(&self.place)?;
        stat.map_or(Ok(()), FileStat::require_own).map_err(io("open the data", &self.place))
    }

    pub fn stat(&self) -> Result<Option<DataStat>> {
        let found = self.spool.layer().look(&self.place)?;
        Ok(found.map(|stat| DataStat { bytes: stat.size, modified: stat.modified }))
    }
}

/// Who or what has an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Holding {
    /// No process: it can be taken.
    Available,
    Process {
        process: Option<Identity>,
        /// Whether it lives; if not, the next waiting process gives the entry back.
        alive: bool,
    },
    /// No process, until this time: a detached lease, or a delay before the next attempt.
    Until {
        #[serde(serialize_with = "unix_seconds")]
        until: SystemTime,
    },
    /// No process, until it is resolved.
    Detached,
    /// A program that does not write notes.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EntryInfo {
    /// Its queue, also while it is checked out.
    pub queue: QueueName,
    pub name: EntryName,
    #[serde(flatten)]
    pub holding: Holding,
    /// How often it was claimed, this time included.
    pub attempts: u32,
    /// When it came to where it is: into the queue, or out of it.
    #[serde(serialize_with = "unix_seconds")]
    pub since: SystemTime,
    pub metadata_bytes: u64,
    /// The file with its metadata, as long as the entry is not moved.
    #[serde(skip)]
    pub metadata_path: PathBuf,
    /// What is known of its data; none if that is missing.
    pub data: Option<DataStat>,
    /// Why it was moved to the dead letters, if a reason was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

pub(crate) fn limited(what: &'static str, bytes: &[u8], limit: u64) -> Result<()> {
    if bytes.len() as u64 > limit {
        return Err(SpoolError::TooLarge(what, limit));
    }
    Ok(())
}

impl Spool {
    /// The available entries of a queue, in order; none if there is no such queue.
    pub fn list(&self, queue: &QueueName) -> Result<Vec<EntryName>> {
        entries(self.layer(), Path::new(queue.as_os_str()))
    }

    /// What is checked out of a queue, in order. It may be outdated the next moment: use it to look on, or in a process
    /// that knows to be alone.
    pub fn list_checkouts(&self, queue: &QueueName) -> Result<Vec<EntryName>> {
        entries(self.layer(), &checkouts(queue))
    }

    /// Entries in quarantine because their metadata could not be read, in order. Each is in
    /// `.shiftboss/quarantine`; renamed into a queue it is available again.
    pub fn quarantined(&self) -> Result<Vec<EntryName>> {
        entries(self.layer(), Path::new(QUARANTINE))
    }

    /// Whether a file can be opened, or is gone.
    pub(crate) fn is_readable(&self, path: &Path) -> bool {
        matches!(self.layer().open(path, How::Read), Ok(_) | Err(Errno::NOENT))
    }

    /// What `look` finds for an entry of a queue, available or checked out of it by any process; `None` if it is in
    /// neither place.
    fn at_either<T>(
        &self,
        queue: &QueueName,
        name: &EntryName,
        look: impl Fn(&Path) -> Result<T, Errno>,
    ) -> Result<Option<T>> {
        // It may be given back while the other place is looked at.
        let (first, other) = (available(queue, name), checked_out(queue, name));
        for path in [&first, &other, &first] {
            if let Some(found) = look(path).none_if(Errno::NOENT).map_err(io("look at", path))? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Reads the metadata of an entry, available or checked out of the queue by any process.
    pub fn metadata(&self, queue: &QueueName, name: &EntryName) -> Result<Vec<u8>> {
        let read = |path: &Path| self.layer().read_file(path, METADATA_BYTES_MAX);
        self.at_either(queue, name, read)?.ok_or_else(|| SpoolError::not_found(queue, name))
    }

    /// Looks at an entry of a queue, available or checked out.
    pub fn info(&self, queue: &QueueName, name: &EntryName) -> Result<EntryInfo> {
        let look = |path: &Path| Ok((path.to_owned(), self.layer().stat(path)?));
        let found = self.at_either(queue, name, look)?;
        let (path, stat) = found.ok_or_else(|| SpoolError::not_found(queue, name))?;
        let is_out = path == checked_out(queue, name);
        let (holding, attempts) =
            if is_out { self.who_has(name)? } else { (Holding::Available, self.attempts(name)?) };
        Ok(EntryInfo {
            queue: queue.clone(),
            name: name.clone(),
            holding,
            attempts,
            since: stat.modified,
            metadata_bytes: stat.size,
            metadata_path: self.path().join(path),
            data: self.data(name).stat()?,
            reason: self
                .remark(REASONS, name)?
                .map(|reason| String::from_utf8_lossy(&reason).into_owned()),
        })
    }

    /// Who has an entry that is checked out, and how often it was claimed.
    fn who_has(&self, name: &EntryName) -> Result<(Holding, u32)> {
        let Some(note) = self.note(name)? else {
            return Ok((Holding::Unknown, self.attempts(name)?));
        };
        let holding = match &note.holder {
            Holder::Until(FOREVER) => Holding::Detached,
            // A time beyond the range of the system's clock counts as none.
            Holder::Until(time) => UNIX_EPOCH
                .checked_add(Duration::from_millis(*time))
                .map_or(Holding::Detached, |until| Holding::Until { until }),
            Holder::Process(id) => {
                let process = owner::read(self.layer(), id)?;
                Holding::Process { process, alive: !self.is_dead(id)? }
            }
        };
        Ok((holding, note.attempt))
    }

    pub fn data(&self, name: &EntryName) -> Data {
        Data { spool: self.clone(), place: under(DATA, name) }
    }

    /// Removes an available entry; returns whether it was there. What an interrupted removal left is removed, too,
    /// unless the entry is checked out. It can be repeated.
    pub fn remove(&self, queue: &QueueName, name: &EntryName) -> Result<bool> {
        let _ = self.layer().touch(&under(REGISTRY, name));
        let was = self.layer().unlink(&available(queue, name))?;
        // Its holder may be moving it from a place that was not checked yet to one that was.
        let is_unnoted = || Ok(self.note(name)?.is_none());
        if was || is_unnoted()? && self.is_unseen(name)? && is_unnoted()? {
            self.remove_rest(name)?;
        }
        self.sync_after("removing", name, &[queue.as_os_str().into()])?;
        Ok(was)
    }

    /// Registers a name; returns whether it was not registered before.
    pub(crate) fn register(&self, name: &EntryName) -> Result<bool> {
        let path = under(REGISTRY, name);
        let made = self.layer().open(&path, How::New).none_if(Errno::EXIST);
        Ok(made.map_err(io("reserve the name", &path))?.is_some())
    }

    /// Whether an entry is in no queue, checked out of none, and not on its way into one.
    pub(crate) fn is_unseen(&self, name: &EntryName) -> Result<bool> {
        let queues = self.queues()?;
        let in_queues = queues.iter().flat_map(|it| [available(it, name), checked_out(it, name)]);
        let elsewhere = [TMP, MOVING, QUARANTINE].map(|directory| under(directory, name));
        for path in in_queues.chain(elsewhere) {
            if self.layer().exists(&path)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes what an entry has besides its file in the queue: its name after everything that depends on it, and last
    /// the note, by which others can finish what a death interrupted.
    pub(crate) fn remove_rest(&self, name: &EntryName) -> Result<()> {
        for directory in [DATA, ATTEMPTS, REASONS, REGISTRY] {
            self.layer().unlink(&under(directory, name))?;
        }
        self.forget_note(name)
    }
}
