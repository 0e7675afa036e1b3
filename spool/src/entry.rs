//! Entries as they lie on disk, without any exclusion: listing, looking, reading, writing, removing.
//! For tools and for people; consumers have a guard.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::io::Errno;
use serde::Serialize;

use super::Spool;
use super::error::{self, Result, SpoolError};
use super::files;
use super::layer::FileIdentity;
use super::layout::{
    ATTEMPTS, DATA, MOVING, QUARANTINE, REASONS, REGISTRY, TMP, available, checked_out, checkouts,
    entries, under,
};
use super::name::{EntryName, QueueName};
use super::time::unix_seconds;

/// Most bytes of metadata: it is small and rewritten often.
pub const METADATA_BYTES_MAX: u64 = 1024 * 1024;
/// Most bytes of data that are loaded or saved at once: 1 GiB.
pub const DATA_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// What is known of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EntryStat {
    /// Its queue.
    pub queue: QueueName,
    /// Its name.
    pub name: EntryName,
    /// When its name was reserved.
    #[serde(serialize_with = "unix_seconds")]
    pub reserved: SystemTime,
    /// When it came into this queue.
    #[serde(serialize_with = "unix_seconds")]
    pub since: SystemTime,
    /// Bytes of its metadata.
    pub metadata_bytes: u64,
    /// How often it was claimed and came back.
    pub attempts: u32,
}

/// What is known of an entry's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DataStat {
    /// Its length.
    pub bytes: u64,
    /// When it was last written.
    #[serde(serialize_with = "unix_seconds")]
    pub modified: SystemTime,
}

/// An entry's payload: a file that stays where it is, whatever queue the entry is in.
#[derive(Debug, Clone)]
pub struct Data {
    spool: Spool,
    name: EntryName,
}

impl Data {
    fn relative(&self) -> PathBuf {
        under(DATA, &self.name)
    }

    /// The file, for programs that read it themselves.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.spool.path().join(self.relative())
    }

    /// Reads it.
    ///
    /// # Errors
    /// When it is not there, cannot be read, or has more than [`DATA_BYTES_MAX`].
    pub fn load(&self) -> Result<Vec<u8>> {
        let path = self.relative();
        let bytes = files::read(self.spool.layer(), &path, DATA_BYTES_MAX);
        bytes.map_err(error::io("read the data", &path))
    }

    /// Replaces it at once.
    ///
    /// # Errors
    /// When it is too large, or the system refuses; the old data is there then.
    pub fn save(&self, bytes: &[u8]) -> Result<()> {
        limited("the data", &self.name, bytes, DATA_BYTES_MAX)?;
        let spool = &self.spool;
        spool.replace(&self.relative(), bytes)?;
        spool.sync_after("saving the data", &self.name, &[DATA.into()])
    }

    /// Looks at it.
    ///
    /// # Errors
    /// When it is not there.
    pub fn stat(&self) -> Result<DataStat> {
        let path = self.relative();
        let stat = self.spool.layer().stat(&path).map_err(error::io("look at", &path))?;
        Ok(DataStat { bytes: stat.size, modified: stat.modified })
    }
}

/// Refuses more bytes than may be.
pub(super) fn limited(
    what: &'static str,
    name: &EntryName,
    bytes: &[u8],
    limit: u64,
) -> Result<()> {
    let bytes = bytes.len() as u64;
    if bytes > limit {
        return Err(SpoolError::TooLarge { what, name: name.clone(), bytes, limit });
    }
    Ok(())
}

impl Spool {
    /// The available entries of a queue, in order; none if there is no such queue.
    ///
    /// # Errors
    /// When the directory cannot be listed.
    pub fn list(&self, queue: &QueueName) -> Result<Vec<EntryName>> {
        self.listed(Path::new(queue.as_os_str()))
    }

    /// What is checked out of a queue, in order. By the next moment it may not be true: it is for
    /// looking on, or for a process that knows itself to be alone.
    ///
    /// # Errors
    /// When the directory cannot be listed.
    pub fn list_checkouts(&self, queue: &QueueName) -> Result<Vec<EntryName>> {
        self.listed(&checkouts(queue))
    }

    fn listed(&self, path: &Path) -> Result<Vec<EntryName>> {
        let mut names = entries(self.layer(), path)?.names;
        names.sort();
        Ok(names)
    }

    /// Whether an entry is checked out of a queue, by whomever.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn is_checked_out(&self, queue: &QueueName, name: &EntryName) -> Result<bool> {
        files::exists(self.layer(), &checked_out(queue, name))
    }

    /// Whether an entry is in a queue, available or checked out of it, by whomever.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn is_in(&self, queue: &QueueName, name: &EntryName) -> Result<bool> {
        // Once more at the end: it may have been given back between the two looks.
        for path in [available(queue, name), checked_out(queue, name), available(queue, name)] {
            if files::exists(self.layer(), &path)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Which file an entry of a queue is, available or checked out of it by whomever, and its metadata.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn find(
        &self,
        queue: &QueueName,
        name: &EntryName,
    ) -> Result<Option<(FileIdentity, Vec<u8>)>> {
        // As in `is_in`.
        for path in [available(queue, name), checked_out(queue, name), available(queue, name)] {
            let read = |file| Ok((file, files::read(self.layer(), &path, METADATA_BYTES_MAX)?));
            match self.layer().identity(&path).and_then(read) {
                Err(Errno::NOENT) => {}
                found => return found.map(Some).map_err(error::io("look at", &path)),
            }
        }
        Ok(None)
    }

    /// Looks at an available entry.
    ///
    /// # Errors
    /// When it is not there.
    pub fn stat(&self, queue: &QueueName, name: &EntryName) -> Result<EntryStat> {
        let (file, registered) = (available(queue, name), under(REGISTRY, name));
        let stat = |path: &Path| match self.layer().stat(path) {
            Err(Errno::NOENT) => Err(Self::gone(queue, name)),
            stat => stat.map_err(error::io("look at", path)),
        };
        let (file, registered) = (stat(&file)?, stat(&registered)?);
        Ok(EntryStat {
            queue: queue.clone(),
            name: name.clone(),
            reserved: registered.modified,
            since: file.modified,
            metadata_bytes: file.size,
            attempts: self.attempts(name)?,
        })
    }

    /// Reads an available entry's metadata.
    ///
    /// # Errors
    /// When it is not there, cannot be read, or has more than [`METADATA_BYTES_MAX`].
    pub fn metadata(&self, queue: &QueueName, name: &EntryName) -> Result<Vec<u8>> {
        let path = available(queue, name);
        match files::read(self.layer(), &path, METADATA_BYTES_MAX) {
            Err(Errno::NOENT) => Err(Self::gone(queue, name)),
            result => result.map_err(error::io("read the metadata", &path)),
        }
    }

    /// Replaces an available entry's metadata. A consumer that takes it at the same moment gets the
    /// old metadata, and the write may bring the entry back: it is for queues that rest.
    ///
    /// # Errors
    /// When it is not there, too large, or the system refuses.
    pub fn save_metadata(
        &self,
        queue: &QueueName,
        name: &EntryName,
        metadata: &[u8],
    ) -> Result<()> {
        limited("the metadata", name, metadata, METADATA_BYTES_MAX)?;
        let path = available(queue, name);
        if !files::exists(self.layer(), &path)? {
            return Err(Self::gone(queue, name));
        }
        self.replace(&path, metadata)?;
        self.sync_after("saving the metadata", name, &[queue.as_os_str().into()])
    }

    /// An entry's data, wherever the entry is.
    #[must_use]
    pub fn data(&self, name: &EntryName) -> Data {
        Data { spool: self.clone(), name: name.clone() }
    }

    /// Removes an available entry; whether it was there. What a removal left that was interrupted
    /// is taken away too, unless the entry is checked out.
    ///
    /// # Errors
    /// When the system refuses. It can be repeated.
    pub fn remove(&self, queue: &QueueName, name: &EntryName) -> Result<bool> {
        let path = available(queue, name);
        let _ = self.layer().touch(&under(REGISTRY, name));
        let was = files::remove(self.layer(), &path)?;
        if was || self.is_nowhere(name)? {
            self.remove_rest(name)?;
        }
        self.sync_after("removing", name, &[queue.as_os_str().into()])?;
        Ok(was)
    }

    /// Whether an entry is in no queue, checked out of none, and not on its way into one.
    fn is_nowhere(&self, name: &EntryName) -> Result<bool> {
        // Whoever holds it may be moving it from where it was not looked for yet to where it was.
        Ok(self.note(name)?.is_none() && self.is_unseen(name)? && self.note(name)?.is_none())
    }

    pub(super) fn is_unseen(&self, name: &EntryName) -> Result<bool> {
        for queue in self.queues()? {
            for path in [available(&queue, name), checked_out(&queue, name)] {
                if files::exists(self.layer(), &path)? {
                    return Ok(false);
                }
            }
        }
        for place in [TMP, MOVING, QUARANTINE] {
            if files::exists(self.layer(), &under(place, name))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes away what an entry has beside its file in the queue: its name after all that goes by it, and
    /// last the note, by which others can end what a death broke off.
    pub(super) fn remove_rest(&self, name: &EntryName) -> Result<()> {
        files::remove(self.layer(), &under(DATA, name))?;
        files::remove(self.layer(), &under(ATTEMPTS, name))?;
        files::remove(self.layer(), &under(REASONS, name))?;
        files::remove(self.layer(), &under(REGISTRY, name))?;
        self.forget_note(name)
    }
}
