//! Entries as they lie on disk, without any exclusion: listing, looking, reading, removing. For tools
//! and for people; consumers have a guard.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use serde::{Serialize, Serializer};

use super::Spool;
use super::error::{Result, SpoolError, io};
use super::layer::{FileIdentity, How};
use super::layout::{
    ATTEMPTS, DATA, MOVING, QUARANTINE, REASONS, REGISTRY, TMP, available, checked_out, checkouts,
    entries, under,
};
use super::name::{EntryName, QueueName};

/// Most bytes of metadata: it is small and rewritten often.
pub const METADATA_BYTES_MAX: u64 = 1024 * 1024;
/// Most bytes of data that are loaded or saved at once: 1 GiB.
pub const DATA_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// What is known of an entry's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DataStat {
    /// Its length.
    pub bytes: u64,
    /// When it was last written.
    #[serde(serialize_with = "unix_seconds")]
    pub modified: SystemTime,
}

/// A time in whole seconds since 1970, as the spool's JSON has it; what was before counts as 1970.
pub(crate) fn unix_seconds<S: Serializer>(
    time: &SystemTime,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

/// How long ago a time was; what is to come counts as now.
pub(crate) fn age(time: SystemTime) -> Duration {
    SystemTime::now().duration_since(time).unwrap_or_default()
}

/// An entry's payload: a file that stays where it is, whatever queue the entry is in.
#[derive(Debug, Clone)]
pub struct Data {
    spool: Spool,
    name: EntryName,
}

impl Data {
    /// The file, for programs that read it themselves.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.spool.path().join(under(DATA, &self.name))
    }

    /// Reads it.
    ///
    /// # Errors
    /// When it is not there, cannot be read, or has more than [`DATA_BYTES_MAX`].
    pub fn load(&self) -> Result<Vec<u8>> {
        let path = under(DATA, &self.name);
        self.spool.layer().read_file(&path, DATA_BYTES_MAX).map_err(io("read the data", &path))
    }

    /// Looks that it is a file of the spool's own, if it is there: the path of anything else leads to what nobody
    /// put into the spool.
    ///
    /// # Errors
    /// What is there instead: a link, a pipe, a directory.
    pub fn require_own(&self) -> Result<()> {
        let path = under(DATA, &self.name);
        match self.spool.layer().open(&path, How::Read) {
            Err(errno @ (Errno::LOOP | Errno::MLINK | Errno::ISDIR | Errno::NXIO)) => {
                Err(io("open the data", &path)(errno))
            }
            _ => Ok(()),
        }
    }

    /// Looks at it; none if it is missing.
    pub fn stat(&self) -> Result<Option<DataStat>> {
        let found = self.spool.layer().look(&under(DATA, &self.name))?;
        Ok(found.map(|stat| DataStat { bytes: stat.size, modified: stat.modified }))
    }
}

/// Refuses more bytes than may be.
pub(crate) fn limited(what: &'static str, bytes: &[u8], limit: u64) -> Result<()> {
    if bytes.len() as u64 > limit {
        return Err(SpoolError::TooLarge(what, limit));
    }
    Ok(())
}

/// The paths that an entry of a queue may have. The first comes again at the end: it may be given back while
/// the others are looked at.
fn paths(queue: &QueueName, name: &EntryName) -> [PathBuf; 3] {
    [available(queue, name), checked_out(queue, name), available(queue, name)]
}

impl Spool {
    /// The available entries of a queue, in order; none if there is no such queue.
    pub fn list(&self, queue: &QueueName) -> Result<Vec<EntryName>> {
        entries(self.layer(), Path::new(queue.as_os_str()))
    }

    /// What is checked out of a queue, in order. By the next moment it may not be true: it is for
    /// looking on, or for a process that knows itself to be alone.
    pub fn list_checkouts(&self, queue: &QueueName) -> Result<Vec<EntryName>> {
        entries(self.layer(), &checkouts(queue))
    }

    /// Entries in quarantine because their metadata could not be read, in order. Each is in
    /// `.shiftboss/quarantine`; renamed into a queue it is available again.
    pub fn quarantined(&self) -> Result<Vec<EntryName>> {
        entries(self.layer(), Path::new(QUARANTINE))
    }

    /// Whether a file has other names.
    pub(crate) fn is_linked(&self, path: &Path) -> Result<bool> {
        Ok(self.layer().look(path)?.is_some_and(|stat| stat.linked))
    }

    /// Whether a file can be opened, or is gone.
    pub(crate) fn is_readable(&self, path: &Path) -> bool {
        matches!(self.layer().open(path, How::Read), Ok(_) | Err(Errno::NOENT))
    }

    /// Whether an entry is in a queue, available or checked out of it, by whomever.
    pub fn is_in(&self, queue: &QueueName, name: &EntryName) -> Result<bool> {
        for path in paths(queue, name) {
            if self.layer().exists(&path)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Which file an entry of a queue is, available or checked out of it by whomever, and its metadata.
    pub fn find(
        &self,
        queue: &QueueName,
        name: &EntryName,
    ) -> Result<Option<(FileIdentity, Vec<u8>)>> {
        for path in paths(queue, name) {
            let read = |file| Ok((file, self.layer().read_file(&path, METADATA_BYTES_MAX)?));
            match self.layer().identity(&path).and_then(read) {
                Err(Errno::NOENT) => {}
                found => return found.map(Some).map_err(io("look at", &path)),
            }
        }
        Ok(None)
    }

    /// Reads the metadata of an entry, available or checked out of the queue by whomever.
    ///
    /// # Errors
    /// When it is not there, cannot be read, or has more than [`METADATA_BYTES_MAX`].
    pub fn metadata(&self, queue: &QueueName, name: &EntryName) -> Result<Vec<u8>> {
        for path in paths(queue, name) {
            match self.layer().read_file(&path, METADATA_BYTES_MAX) {
                Err(Errno::NOENT) => {}
                result => return result.map_err(io("read the metadata", &path)),
            }
        }
        Err(SpoolError::not_found(queue, name))
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
        let _ = self.layer().touch(&under(REGISTRY, name));
        let was = self.layer().unlink(&available(queue, name))?;
        if was || self.is_nowhere(name)? {
            self.remove_rest(name)?;
        }
        self.sync_after("removing", name, &[queue.as_os_str().into()])?;
        Ok(was)
    }

    /// Makes an entry available that nobody has a note of; whether it was still checked out.
    pub(crate) fn give_back_unowned(&self, queue: &QueueName, name: &EntryName) -> Result<bool> {
        let from = checked_out(queue, name);
        match self.layer().rename(&from, &available(queue, name)) {
            Ok(()) => self.register(name).map(|_| true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(io("give back", &from)(errno)),
        }
    }

    /// Registers a name; whether it was not.
    pub(crate) fn register(&self, name: &EntryName) -> Result<bool> {
        let path = under(REGISTRY, name);
        match self.layer().open(&path, How::New) {
            Err(Errno::EXIST) => Ok(false),
            made => made.map(|_| true).map_err(io("register", &path)),
        }
    }

    /// Whether an entry is in no queue, checked out of none, and not on its way into one.
    fn is_nowhere(&self, name: &EntryName) -> Result<bool> {
        // Whoever holds it may be moving it from where it was not looked for yet to where it was.
        Ok(self.note(name)?.is_none() && self.is_unseen(name)? && self.note(name)?.is_none())
    }

    pub(crate) fn is_unseen(&self, name: &EntryName) -> Result<bool> {
        let mut paths = Vec::new();
        for queue in self.queues()? {
            paths.extend([available(&queue, name), checked_out(&queue, name)]);
        }
        paths.extend([TMP, MOVING, QUARANTINE].map(|directory| under(directory, name)));
        for path in paths {
            if self.layer().exists(&path)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes away what an entry has beside its file in the queue: its name after all that goes by it, and
    /// last the note, by which others can end what a death broke off.
    pub(crate) fn remove_rest(&self, name: &EntryName) -> Result<()> {
        for directory in [DATA, ATTEMPTS, REASONS, REGISTRY] {
            self.layer().unlink(&under(directory, name))?;
        }
        self.forget_note(name)
    }
}
