//! Publication: a name is reserved, metadata and data are written where no consumer looks, and one rename makes the
//! entry available. Whatever fails before that rename is undone.

use std::fs::File;
use std::io::{self as std_io, BufRead};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::Spool;
use super::entry::{DATA_BYTES_MAX, METADATA_BYTES_MAX, limited};
use super::error::{Result, SpoolError, io};
use super::files::draft_owner;
use super::layer::{How, Layer};
use super::layout::{DATA, REGISTRY, TMP, available, lock, under};
use super::name::{EntryName, QueueName};

pub(crate) const NAME_TRIES_MAX: u32 = 10_000;
/// The end of the name of a draft of data, among other drafts.
const DRAFT_OF_DATA: &str = "data";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Item {
    /// Small, and rewritten as the entry moves.
    pub metadata: Vec<u8>,
    /// The payload, written once.
    pub data: Vec<u8>,
}

impl Item {
    pub fn new(metadata: impl Into<Vec<u8>>, data: impl Into<Vec<u8>>) -> Self {
        Self { metadata: metadata.into(), data: data.into() }
    }
}

/// A reserved name that is not used yet. Given up when dropped.
#[derive(Debug)]
pub struct Reservation {
    spool: Spool,
    name: EntryName,
    /// The directories in which it has a file that is removed when this is dropped.
    made: Vec<&'static str>,
    /// The files of these that must be synced. An empty file needs no sync: that of its directory is enough.
    files: Vec<(PathBuf, File)>,
}

impl Reservation {
    fn new(spool: &Spool, name: EntryName) -> Self {
        Self { spool: spool.clone(), name, made: vec![REGISTRY], files: Vec::new() }
    }

    pub fn name(&self) -> &EntryName {
        &self.name
    }

    /// Leaves it reserved, for another process that will [`Spool::adopt`] it.
    #[must_use]
    pub fn keep(mut self) -> EntryName {
        self.made.clear();
        self.name.clone()
    }

    /// Has one of its files written. A file that was there before under this name belongs to another.
    fn write(
        &mut self,
        directory: &'static str,
        write: impl FnOnce(&Path) -> Result<Option<File>>,
    ) -> Result<()> {
        let path = under(directory, &self.name);
        let written = write(&path);
        if written.as_ref().is_err_and(|error| error.is(Errno::EXIST)) {
            // The name stays as it was: it has an entry, or remains of one.
            self.made.retain(|made| *made != REGISTRY);
            return Err(SpoolError::Taken(self.name.clone()));
        }
        self.made.push(directory);
        self.files.extend(written?.map(|file| (path, file)));
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        for directory in self.made.iter().rev() {
            // What stays is reported by the monitor and mended by fsck.
            let _ = self.spool.layer().remove(&under(directory, &self.name));
        }
    }
}

/// Data without an entry. If dropped, it is removed. Its writer holds a lock on it, so after a death it is known to be
/// abandoned, and a repair deletes it.
#[derive(Debug)]
pub struct Draft {
    spool: Spool,
    path: PathBuf,
    /// The locked file, for the sync; none once it belongs to an entry.
    file: Option<File>,
    is_empty: bool,
}

impl Draft {
    /// Makes it the data of an entry; returns the file to sync.
    fn place(mut self, path: &Path) -> Result<Option<File>> {
        let renamed = self.spool.layer().rename(&self.path, path);
        renamed.map_err(io("place the data at", path))?;
        Ok(self.file.take().filter(|_| !self.is_empty))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.file.is_some() {
            // If it stays, fsck deletes it.
            let _ = self.spool.layer().remove(&self.path);
        }
    }
}

/// Copies data piece by piece; how many bytes there were.
fn copy(layer: &dyn Layer, path: &Path, file: &File, data: &mut dyn BufRead) -> Result<u64> {
    let mut bytes = 0;
    loop {
        let piece = match data.fill_buf() {
            Err(error) if error.kind() == std_io::ErrorKind::Interrupted => continue,
            piece => piece.map_err(SpoolError::Unread)?,
        };
        let length = piece.len();
        if length == 0 {
            return Ok(bytes);
        }
        bytes += length as u64;
        if bytes > DATA_BYTES_MAX {
            return Err(SpoolError::TooLarge("the data", DATA_BYTES_MAX));
        }
        layer.write(file, piece).map_err(io("write", path))?;
        data.consume(length);
    }
}

impl Spool {
    /// Reserves a name for a later enqueue. The generator is called with 0, 1, 2... while its names are taken, up to
    /// 10,000 times.
    pub fn reserve(&self, mut names: impl FnMut(u32) -> EntryName) -> Result<Reservation> {
        let mut last = names(0);
        for tries in 1..=NAME_TRIES_MAX {
            match self.reserve_name(last) {
                Err(SpoolError::Taken(_)) => last = names(tries),
                result => return result,
            }
        }
        Err(SpoolError::NoFreeName(NAME_TRIES_MAX, last))
    }

    pub fn reserve_name(&self, name: EntryName) -> Result<Reservation> {
        match self.register(&name)? {
            true => Ok(Reservation::new(self, name)),
            false => Err(SpoolError::Taken(name)),
        }
    }

    /// Takes over a name that another process reserved and kept.
    pub fn adopt(&self, name: EntryName) -> Result<Reservation> {
        if !self.layer().exists(&under(REGISTRY, &name))? {
            return Err(SpoolError::NotReserved(name));
        }
        Ok(Reservation::new(self, name))
    }

    /// Publishes an entry under a new name. When it returns, the entry is in the queue, as durable as
    /// the options say. If it fails, nothing is left of it, except after [`SpoolError::NotDurable`].
    pub fn enqueue(
        &self,
        queue: &QueueName,
        names: impl FnMut(u32) -> EntryName,
        item: &Item,
    ) -> Result<EntryName> {
        self.enqueue_reserved(queue, self.reserve(names)?, item)
    }

    /// Publishes an entry under a reserved name, which is given up if that fails.
    pub fn enqueue_reserved(
        &self,
        queue: &QueueName,
        mut reservation: Reservation,
        item: &Item,
    ) -> Result<EntryName> {
        self.ensure_queue(queue)?;
        self.write_item(&mut reservation, item)?;
        self.sync_and_publish(queue, reservation)
    }

    /// Publishes many entries with one sync, in the order given. If it fails, [`SpoolError::Batch`] says which
    /// are published; of the others nothing is left.
    pub fn enqueue_batch(
        &self,
        queue: &QueueName,
        mut names: impl FnMut(u32) -> EntryName,
        items: &[Item],
    ) -> Result<Vec<EntryName>> {
        self.ensure_queue(queue)?;
        let mut written = Vec::with_capacity(items.len());
        for item in items {
            let mut reservation = self.reserve(&mut names)?;
            self.write_item(&mut reservation, item)?;
            // There may be more entries than a process may open files.
            reservation.files.clear();
            written.push(reservation);
        }
        if self.syncs_files() && !items.is_empty() {
            self.layer().sync_all().map_err(io("sync the file system of", self.path()))?;
        }
        let mut published = Vec::with_capacity(items.len());
        for reservation in written {
            match self.publish(queue, reservation) {
                Ok(name) => published.push(name),
                Err(error) => {
                    return Err(SpoolError::Batch(published, items.len(), Box::new(error)));
                }
            }
        }
        if let Some(last) = published.last() {
            self.sync_after("publishing a batch up to", last, &[queue.as_os_str().into()])?;
        }
        Ok(published)
    }

    /// Writes data that is large or comes slowly, piece by piece up to the end of its source, before its entry has a
    /// name. If it fails, nothing is left of it: with [`SpoolError::Unread`] if the source failed,
    /// [`SpoolError::TooLarge`] if the source has more than [`DATA_BYTES_MAX`].
    pub fn draft(&self, data: &mut dyn BufRead) -> Result<Draft> {
        let (path, file) = self.open_draft()?;
        let copied = copy(self.layer(), &path, &file, data);
        let mut draft = Draft { spool: self.clone(), path, file: Some(file), is_empty: true };
        draft.is_empty = copied? == 0;
        Ok(draft)
    }

    /// A new, locked draft of data: where locks do not work it is judged by its age alone.
    fn open_draft(&self) -> Result<(PathBuf, File)> {
        loop {
            let path = self.draft_path().with_extension(DRAFT_OF_DATA);
            let file = self.layer().open(&path, How::New).map_err(io("create", &path))?;
            let is_lost = self.layer().lock(&file) == Err(Errno::WOULDBLOCK);
            let is_there = self.layer().exists(&path);
            if !is_lost && matches!(is_there, Ok(true)) {
                return Ok((path, file));
            }
            // A repair came before the lock, and took it for what a dead process had left.
            let _ = self.layer().remove(&path);
            is_there?;
        }
    }

    /// Publishes an entry with this data under a reserved name. Both are gone if that fails.
    pub fn enqueue_draft(
        &self,
        queue: &QueueName,
        mut reservation: Reservation,
        metadata: &[u8],
        draft: Draft,
    ) -> Result<EntryName> {
        self.ensure_queue(queue)?;
        self.write_metadata(&mut reservation, metadata)?;
        reservation.write(DATA, |path| draft.place(path))?;
        self.sync_and_publish(queue, reservation)
    }

    /// Does something about the draft at `path`, unless it has a living writer: such a draft is locked if it is one of
    /// data, and otherwise its name has that of a living process. Returns whether it was done.
    pub(crate) fn unless_written(
        &self,
        path: &Path,
        act: impl FnOnce() -> Result<bool>,
    ) -> Result<bool> {
        if path.extension().is_none_or(|extension| extension != DRAFT_OF_DATA) {
            let lives = draft_owner(path).map_or(Ok(false), |id| Ok(!self.is_dead(id)?));
            return if lives? { Ok(false) } else { act() };
        }
        match lock(self.layer(), path, How::Read) {
            Ok(Some(_held)) => act(),
            Ok(None) => Ok(false),
            Err(error) if error.is(Errno::NOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn write_item(&self, reservation: &mut Reservation, item: &Item) -> Result<()> {
        limited("the data", &item.data, DATA_BYTES_MAX)?;
        self.write_metadata(reservation, &item.metadata)?;
        reservation.write(DATA, |path| self.write_part(path, &item.data))
    }

    fn write_metadata(&self, reservation: &mut Reservation, metadata: &[u8]) -> Result<()> {
        limited("the metadata", metadata, METADATA_BYTES_MAX)?;
        reservation.write(TMP, |path| self.write_part(path, metadata))
    }

    fn write_part(&self, path: &Path, bytes: &[u8]) -> Result<Option<File>> {
        let file = self.layer().write_file(path, How::New, bytes)?;
        Ok((!bytes.is_empty()).then_some(file))
    }

    /// Waits for an entry's files and, with full durability, for their names; then makes it available.
    fn sync_and_publish(
        &self,
        queue: &QueueName,
        mut reservation: Reservation,
    ) -> Result<EntryName> {
        let mut files = std::mem::take(&mut reservation.files);
        if self.full() {
            for directory in [DATA, REGISTRY].map(PathBuf::from) {
                let opened = self.layer().open_directory(&directory)?;
                files.push((directory, opened));
            }
        }
        if self.syncs_files() {
            self.layer().sync_files(&files)?;
        }
        let name = self.publish(queue, reservation)?;
        self.sync_after("publishing", &name, &[queue.as_os_str().into()])?;
        Ok(name)
    }

    /// Makes an entry available; if that fails, it is removed again.
    fn publish(&self, queue: &QueueName, reservation: Reservation) -> Result<EntryName> {
        let (draft, path) = (under(TMP, &reservation.name), available(queue, &reservation.name));
        let published = match self.layer().rename(&draft, &path) {
            // Another process may have removed the empty queue meanwhile.
            Err(Errno::NOENT) => {
                self.ensure_queue(queue)?;
                self.layer().rename(&draft, &path)
            }
            published => published,
        };
        published.map_err(io("publish", &path))?;
        Ok(reservation.keep())
    }
}
