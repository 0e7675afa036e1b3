//! Data that is not to be held in memory, or comes slowly: it is written in pieces where nobody looks, before
//! its entry has a name. [`enqueue`](super::enqueue) does the rest.

use std::io::{self, BufRead};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::Spool;
use super::enqueue::Prepared;
use super::entry::DATA_BYTES_MAX;
use super::error::{self, Result, SpoolError};
use super::files;
use super::layer::How;
use super::name::{EntryName, QueueName};
use super::reserve::Reservation;

/// Data without an entry. Dropped, it is gone; what a death leaves of it, a repair deletes.
#[derive(Debug)]
pub struct Draft {
    spool: Spool,
    path: PathBuf,
    /// To sync it; none for no data.
    file: Option<OwnedFd>,
    /// It is an entry's.
    placed: bool,
}

impl Spool {
    /// Writes data to the end of its source, piece by piece as that gives them.
    ///
    /// # Errors
    /// [`SpoolError::Unread`] when the source fails, [`SpoolError::DataTooLarge`] when it has more than
    /// [`DATA_BYTES_MAX`]; when the system refuses. Nothing is left of it.
    pub fn draft(&self, data: &mut dyn BufRead) -> Result<Draft> {
        let path = files::draft_path();
        let file = self.layer().open(&path, How::New).map_err(error::io("create", &path))?;
        let mut draft = Draft { spool: self.clone(), path, file: None, placed: false };
        let bytes = draft.fill(&file, data)?;
        draft.file = (bytes > 0).then_some(file);
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
        Ok(self.file.take())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.placed {
            // What stays is fsck's.
            let _ = self.spool.layer().remove_content(&self.path);
        }
    }
}
