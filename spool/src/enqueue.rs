//! Publication: a name is reserved, metadata and data are written where nobody looks, and one rename
//! makes the entry available. Whatever fails before that rename is undone.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::Spool;
use super::entry::{DATA_BYTES_MAX, METADATA_BYTES_MAX, limited};
use super::error::{self, Result, SpoolError};
use super::files;
use super::layer::How;
use super::layout::{DATA, REGISTRY, TMP, available, under};
use super::name::{EntryName, QueueName};
use super::reserve::Reservation;

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

/// An entry whose files are written.
pub(super) struct Prepared {
    reservation: Reservation,
    /// What is to be synced; an empty file has nothing to wait for: that it is there, the directory's sync
    /// says.
    metadata: Option<OwnedFd>,
    data: Option<OwnedFd>,
}

impl Spool {
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
        self.publish_prepared(queue, prepared)
    }

    /// Waits for an entry's files, and makes it available.
    pub(super) fn publish_prepared(
        &self,
        queue: &QueueName,
        prepared: Prepared,
    ) -> Result<EntryName> {
        let written = match self.syncs_files() {
            true => self.sync_prepared(prepared)?,
            false => prepared.into_written(),
        };
        let name = self.publish_written(queue, written)?;
        self.sync_after("publishing", &name, &[queue.as_os_str().into()])?;
        Ok(name)
    }

    /// Writes an entry's files; undone when it fails.
    pub(super) fn prepare(&self, reservation: Reservation, item: &Item) -> Result<Prepared> {
        limited("the data", &reservation.name, &item.data, DATA_BYTES_MAX)?;
        self.prepare_with(reservation, &item.metadata, |path| {
            let data = files::write(self.layer(), path, How::New, &item.data)?;
            Ok((!item.data.is_empty()).then_some(data))
        })
    }

    /// As [`Spool::prepare`], the data being put into its place by `place`, which fails if there is some.
    pub(super) fn prepare_with(
        &self,
        reservation: Reservation,
        metadata: &[u8],
        place: impl FnOnce(&Path) -> Result<Option<OwnedFd>>,
    ) -> Result<Prepared> {
        let name = &reservation.name;
        limited("the metadata", name, metadata, METADATA_BYTES_MAX)?;
        let (draft, data) = (under(TMP, name), under(DATA, name));
        let file = match files::write(self.layer(), &draft, How::New, metadata) {
            Ok(file) => (!metadata.is_empty()).then_some(file),
            Err(error) => return Err(self.not_prepared(reservation, error, &[draft])),
        };
        match place(&data) {
            Ok(data) => Ok(Prepared { reservation, metadata: file, data }),
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
    fn sync_prepared(&self, prepared: Prepared) -> Result<Written> {
        let name = &prepared.reservation.name;
        let (draft, data) = (under(TMP, name), under(DATA, name));
        let named = [(draft, prepared.metadata), (data, prepared.data)];
        let some = |(path, file): (PathBuf, Option<OwnedFd>)| file.map(|file| (path, file));
        let mut files: Vec<_> = named.into_iter().filter_map(some).collect();
        // What is not published is taken away when this is dropped.
        let written = Written(prepared.reservation);
        if self.full() {
            for directory in [DATA, REGISTRY].map(PathBuf::from) {
                let opened = files::open_directory(self.layer(), &directory)?;
                files.push((directory, opened));
            }
        }
        files::sync_each(self.layer(), &files)?;
        Ok(written)
    }

    pub(super) fn publish_written(&self, queue: &QueueName, written: Written) -> Result<EntryName> {
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
pub(super) struct Written(Reservation);

impl Prepared {
    pub fn into_written(self) -> Written {
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
