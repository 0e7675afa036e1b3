//! Publication: a name is reserved, metadata and data are written where nobody looks, and one rename
//! makes the entry available. Whatever fails before that rename is undone.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::Spool;
use super::entry::{DATA_BYTES_MAX, METADATA_BYTES_MAX, limited};
use super::error::{self, Result, SpoolError};
use super::files;
use super::layer::How;
use super::layout::{DATA, REGISTRY, TMP, available, under};
use super::name::{EntryName, QueueName};

/// How often a generator is asked for another name.
pub const NAME_TRIES_MAX: u32 = 10_000;

/// What is to be published.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Item {
    /// Small, rewritten often.
    pub metadata: Vec<u8>,
    /// The payload.
    pub data: Vec<u8>,
}

impl Item {
    /// An item of these two.
    #[must_use]
    pub fn new(metadata: impl Into<Vec<u8>>, data: impl Into<Vec<u8>>) -> Self {
        Self { metadata: metadata.into(), data: data.into() }
    }
}

/// A name that is reserved and not used yet. Given up when dropped.
#[derive(Debug)]
pub struct Reservation {
    spool: Spool,
    name: EntryName,
    held: bool,
}

impl Reservation {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &EntryName {
        &self.name
    }

    /// Leaves it reserved, for another process that will [`Spool::adopt`] it.
    #[must_use]
    pub fn keep(mut self) -> EntryName {
        self.held = false;
        self.name.clone()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.held {
            // A name that stays registered is reported by the monitor and mended by fsck.
            let _ = self.spool.layer().remove(&under(REGISTRY, &self.name));
        }
    }
}

/// An entry whose files are written.
struct Prepared {
    reservation: Reservation,
    metadata: OwnedFd,
    data: OwnedFd,
}

impl Spool {
    /// Reserves a name for a later enqueue. The generator is asked with 0, 1, 2... while its answers
    /// are taken.
    ///
    /// # Errors
    /// When the system refuses, or [`NAME_TRIES_MAX`] names are taken.
    pub fn reserve(&self, mut names: impl FnMut(u32) -> EntryName) -> Result<Reservation> {
        let mut last = names(0);
        for tries in 1..=NAME_TRIES_MAX {
            let path = under(REGISTRY, &last);
            match self.layer().open(&path, How::New) {
                Ok(_) => return Ok(Reservation { spool: self.clone(), name: last, held: true }),
                Err(Errno::EXIST) => last = names(tries),
                Err(errno) => return Err(error::io("reserve the name", &path)(errno)),
            }
        }
        Err(SpoolError::NoFreeName { tries: NAME_TRIES_MAX, last })
    }

    /// Takes over a name that another process reserved and kept.
    ///
    /// # Errors
    /// When it is not reserved.
    pub fn adopt(&self, name: EntryName) -> Result<Reservation> {
        if !files::exists(self.layer(), &under(REGISTRY, &name))? {
            return Err(SpoolError::NotReserved(name));
        }
        Ok(Reservation { spool: self.clone(), name, held: true })
    }

    /// Publishes an entry under a new name. When it returns, the entry is in the queue, as durable as
    /// the options say.
    ///
    /// # Errors
    /// When the system refuses; then nothing is left of it, except after
    /// [`SpoolError::NotDurable`].
    pub fn enqueue(
        &self,
        queue: &QueueName,
        names: impl FnMut(u32) -> EntryName,
        item: &Item,
    ) -> Result<EntryName> {
        let reservation = self.reserve(names)?;
        self.enqueue_reserved(queue, reservation, item)
    }

    /// Publishes an entry under a reserved name.
    ///
    /// # Errors
    /// As [`Spool::enqueue`], and when the name has an entry already; the reservation is given up.
    pub fn enqueue_reserved(
        &self,
        queue: &QueueName,
        reservation: Reservation,
        item: &Item,
    ) -> Result<EntryName> {
        self.ensure_queue(queue)?;
        let prepared = self.prepare(reservation, item)?;
        if self.syncs_files() {
            self.sync_prepared(&prepared, item)?;
        }
        let name = self.publish(queue, prepared)?;
        self.sync_after("publishing", &name, &[queue.as_os_str().into()])?;
        Ok(name)
    }

    /// Publishes many entries with one sync, in the order given.
    ///
    /// # Errors
    /// When the system refuses. [`SpoolError::Batch`] says which are published; of the others
    /// nothing is left.
    pub fn enqueue_batch(
        &self,
        queue: &QueueName,
        mut names: impl FnMut(u32) -> EntryName,
        items: &[Item],
    ) -> Result<Vec<EntryName>> {
        self.ensure_queue(queue)?;
        let mut prepared = Vec::with_capacity(items.len());
        for item in items {
            // Their descriptors are not kept: there may be more entries than a process may open.
            prepared.push(self.prepare(self.reserve(&mut names)?, item)?.into_written());
        }
        if self.syncs_files() && !items.is_empty() {
            let failed = error::io("sync the file system of", self.path());
            self.layer().sync_all().map_err(failed)?;
        }
        let published = self.publish_all(queue, prepared)?;
        if let Some(last) = published.last() {
            self.sync_after("publishing a batch up to", last, &[queue.as_os_str().into()])?;
        }
        Ok(published)
    }

    fn publish_all(&self, queue: &QueueName, written: Vec<Written>) -> Result<Vec<EntryName>> {
        let all = written.len();
        let mut published = Vec::with_capacity(all);
        for written in written {
            match self.publish_written(queue, written) {
                Ok(name) => published.push(name),
                Err(source) => {
                    return Err(SpoolError::Batch { published, all, source: Box::new(source) });
                }
            }
        }
        Ok(published)
    }

    /// Writes an entry's files; undone when it fails.
    fn prepare(&self, reservation: Reservation, item: &Item) -> Result<Prepared> {
        let name = reservation.name.clone();
        limited("the metadata", &name, &item.metadata, METADATA_BYTES_MAX)?;
        limited("the data", &name, &item.data, DATA_BYTES_MAX)?;
        let (draft, data) = (under(TMP, &name), under(DATA, &name));
        let metadata = match files::write(self.layer(), &draft, How::New, &item.metadata) {
            Ok(file) => file,
            Err(error) => return Err(self.not_prepared(reservation, error, &[draft])),
        };
        match files::write(self.layer(), &data, How::New, &item.data) {
            Ok(data) => Ok(Prepared { reservation, metadata, data }),
            Err(error) => Err(self.not_prepared(reservation, error, &[draft, data])),
        }
    }

    /// Undoes what was written; what was there before, under this name, is somebody else's.
    fn not_prepared(
        &self,
        reservation: Reservation,
        error: SpoolError,
        written: &[PathBuf],
    ) -> SpoolError {
        let (last, before) = written.split_last().map_or((None, written), |(l, b)| (Some(l), b));
        before.iter().for_each(|path| _ = self.layer().remove(path));
        if error.errno() == Some(Errno::EXIST.raw_os_error()) {
            // The name stays as it was: it has an entry, or remains of one.
            return SpoolError::Taken(reservation.keep());
        }
        if let Some(path) = last {
            let _ = self.layer().remove(path);
        }
        error
    }

    /// Waits for both files and, if so durable, for their names.
    fn sync_prepared(&self, prepared: &Prepared, item: &Item) -> Result<()> {
        let name = &prepared.reservation.name;
        let (draft, data) = (under(TMP, name), under(DATA, name));
        let result = self.sync_both(prepared, item, &draft, &data);
        if result.is_err() {
            [draft, data].iter().for_each(|path| _ = self.layer().remove(path));
        }
        result
    }

    fn sync_both(&self, prepared: &Prepared, item: &Item, draft: &Path, data: &Path) -> Result<()> {
        // An empty file has nothing to wait for: that it is there, the directory's sync says.
        let (some_metadata, some_data) = (!item.metadata.is_empty(), !item.data.is_empty());
        if some_metadata && some_data {
            // Begun before the other is waited for, it goes with it.
            self.layer().write_back(prepared.data.as_fd());
        }
        files::sync_file(self.layer(), draft, &prepared.metadata, some_metadata)?;
        files::sync_file(self.layer(), data, &prepared.data, some_data)?;
        if self.full() {
            let directories = [DATA, REGISTRY];
            return directories.iter().try_for_each(|directory| {
                files::sync_directory(self.layer(), Path::new(directory))
            });
        }
        Ok(())
    }

    fn publish(&self, queue: &QueueName, prepared: Prepared) -> Result<EntryName> {
        self.publish_written(queue, prepared.into_written())
    }

    fn publish_written(&self, queue: &QueueName, written: Written) -> Result<EntryName> {
        let name = written.0.name.clone();
        let (draft, path) = (under(TMP, &name), available(queue, &name));
        let mut result = self.layer().rename(&draft, &path);
        if result == Err(Errno::NOENT) && files::exists(self.layer(), &draft)? {
            // The queue was removed since it was made.
            self.forget_queue(queue);
            self.ensure_queue(queue)?;
            result = self.layer().rename(&draft, &path);
        }
        result.map_err(error::io("publish", &path))?;
        Ok(written.done())
    }
}

/// An entry that is written and not published; taken away again when dropped.
struct Written(Reservation);

impl Prepared {
    fn into_written(self) -> Written {
        Written(self.reservation)
    }
}

impl Written {
    /// It is published.
    fn done(mut self) -> EntryName {
        self.0.held = false;
        self.0.name.clone()
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        if self.0.held {
            let layer = self.0.spool.layer();
            [TMP, DATA].iter().for_each(|place| _ = layer.remove(&under(place, &self.0.name)));
        }
    }
}
