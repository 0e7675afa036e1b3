//! Data that is not to be held in memory, or comes slowly: it is written in pieces where nobody looks, before
//! its entry has a name. [`enqueue`](super::enqueue) does the rest.

use std::io::{self, BufRead};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::Spool;
use super::enqueue::Prepared;
use super::entry::DATA_BYTES_MAX;
use super::error::{self, Result, SpoolError};
use super::files;
use super::layer::How;
use super::name::{EntryName, QueueName};
use super::reserve::Reservation;

/// Data without an entry. Dropped, it is gone. It is locked by its writer, so what a death leaves of it is known
/// to be nobody's, and a repair deletes it.
#[derive(Debug)]
pub struct Draft {
    spool: Spool,
    path: PathBuf,
    /// To sync it, and locked; none once it is placed.
    file: Option<OwnedFd>,
    is_empty: bool,
    /// It is an entry's.
    placed: bool,
}

/// The end of the name of such a draft, among other drafts.
const DRAFT_OF_DATA: &str = "data";

impl Spool {
    /// Whether the draft at `path` has a living writer; `None`: it is another kind of draft, of which that
    /// cannot be said.
    pub(super) fn is_being_written(&self, path: &Path) -> Result<Option<bool>> {
        if path.extension().is_none_or(|extension| extension != DRAFT_OF_DATA) {
            return Ok(None);
        }
        let file = match self.layer().open(path, How::Read) {
            Err(Errno::NOENT) => return Ok(Some(true)),
            opened => opened.map_err(error::io("open", path))?,
        };
        match self.layer().lock(file.as_fd()) {
            Ok(()) => Ok(Some(false)),
            Err(Errno::WOULDBLOCK) => Ok(Some(true)),
            Err(errno) => Err(error::io("lock", path)(errno)),
        }
    }

    /// Writes data to the end of its source, piece by piece as that gives them.
    ///
    /// # Errors
    /// [`SpoolError::Unread`] when the source fails, [`SpoolError::DataTooLarge`] when it has more than
    /// [`DATA_BYTES_MAX`]; when the system refuses. Nothing is left of it.
    pub fn draft(&self, data: &mut dyn BufRead) -> Result<Draft> {
        let path = self.draft_path().with_extension(DRAFT_OF_DATA);
        let file = self.layer().open(&path, How::New).map_err(error::io("create", &path))?;
        // Where there are no locks a draft is judged by its age alone.
        let _ = self.layer().lock(file.as_fd());
        let mut draft =
            Draft { spool: self.clone(), path, file: None, is_empty: true, placed: false };
        draft.is_empty = draft.fill(&file, data)? == 0;
        draft.file = Some(file);
        Ok(draft)
    }

    /// Publishes an entry with this data under a reserved name.
    ///
    /// # Errors
    /// As [`Spool::enqueue_reserved`]. The draft is gone then, too.
    pub fn enqueue_draft(
        &self,
        queue: &QueueName,
        reservation: Reservation,
        metadata: &[u8],
        draft: Draft,
    ) -> Result<EntryName> {
        self.ensure_queue(queue)?;
        let prepared: Prepared =
            self.prepare_with(reservation, metadata, |path| draft.place(path))?;
        self.publish_prepared(queue, prepared)
    }
}

impl Draft {
    fn fill(&self, file: &OwnedFd, data: &mut dyn BufRead) -> Result<u64> {
        let mut bytes = 0;
        loop {
            let piece = match data.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                piece => piece.map_err(SpoolError::Unread)?,
            };
            let length = piece.len();
            if length == 0 {
                return Ok(bytes);
            }
            bytes += length as u64;
            if bytes > DATA_BYTES_MAX {
                return Err(SpoolError::DataTooLarge { limit: DATA_BYTES_MAX });
            }
            let layer = self.spool.layer();
            files::write_all(layer, file, piece).map_err(error::io("write", &self.path))?;
            data.consume(length);
        }
    }

    fn place(mut self, path: &Path) -> Result<Option<OwnedFd>> {
        let renamed = self.spool.layer().rename(&self.path, path);
        renamed.map_err(error::io("place the data at", path))?;
        self.placed = true;
        // No data has nothing to be synced.
        Ok(self.file.take().filter(|_| !self.is_empty))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.placed {
            // What stays is fsck's.
            let _ = self.spool.layer().remove(&self.path);
        }
    }
}
