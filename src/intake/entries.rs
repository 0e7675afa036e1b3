//! The spool's side of the intake: takes entries of the queue [`QUEUE`], dead-letters what is no task, and
//! removes what was accepted. Plain blocking code on the spool; it knows no actor.
//!
//! Used by the [`Reconciler`](super::Reconciler), on its thread.

use std::sync::Arc;
use std::time::Duration;

use shiftboss_protocol::fetcher_file::{Line, LineReader, checksum};
use shiftboss_protocol::model::Row;
use shiftboss_queue::operation::{Added, EntryId, SpoolEntry};
use tracing::warn;

use shiftspool::{
    EntryName, FileIdentity, Guard, Order, QueueName, Reader, Result, Spool, SpoolError, Stop,
};

/// The queue whose entries are tasks.
pub const QUEUE: &str = "tasks";
/// Entries that are accepted in one transaction: workers wait for no more.
pub const ROUND_MAX: usize = 256;
/// Bytes of metadata in one round, but for its last entry.
const ROUND_BYTES_MAX: usize = 4 * 1024 * 1024;

/// An entry that is checked out, and what it is offered as.
#[derive(Debug)]
struct Offered {
    guard: Guard,
    entry: SpoolEntry,
}

/// The queue, and what of it is checked out between taking and removal. Dropped, it gives back what was
/// offered to nobody; the rest is the next daemon's.
#[derive(Debug)]
pub struct TaskQueue {
    spool: Spool,
    queue: QueueName,
    id: Arc<str>,
    reader: Reader,
    stop: Stop,
    offered: Vec<Offered>,
    accepted: Vec<Offered>,
    /// Out of the spool, and still remembered by the store.
    removed: Vec<EntryId>,
    /// Entries that are no task, and cannot be moved: kept, so that they stand in nobody's way.
    stuck: Vec<Guard>,
}

impl TaskQueue {
    /// The queue of a spool, which is made if it is not there. Waits end with `stop`.
    pub fn open(spool: Spool, stop: Stop) -> Result<Self> {
        let queue = QueueName::trusted(QUEUE);
        let (reader, id) = (spool.reader(&queue, Order::Strict)?, spool.id()?.into());
        let (offered, accepted, removed) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { spool, queue, id, reader, stop, offered, accepted, removed, stuck: Vec::new() })
    }

    /// Takes over what a daemon was accepting when it died: it is offered again, and known if it was
    /// accepted. Of those that storage knows some may be out of the spool already.
    pub fn inherit(&mut self, known: Vec<EntryId>) -> Result<()> {
        for guard in self.spool.inherit(&self.queue)? {
            let entry = guard.name().clone();
            // The others may be accepted already, and are not given back for it.
            if let Err(error) = self.offer(guard) {
                warn!(%entry, %error, "An entry that an earlier daemon had taken could not be offered; it is given back.");
            }
        }
        self.removed = self.gone(known);
        Ok(())
    }

    /// Of entries that are remembered, those of this spool that are in its queue no more.
    fn gone(&self, mut known: Vec<EntryId>) -> Vec<EntryId> {
        known.retain(|id| id.spool == self.id && !self.may_be_there(id));
        known
    }

    /// Whether the very entry is in the queue, and not another of its name; also when the system refuses to
    /// tell.
    fn may_be_there(&self, id: &EntryId) -> bool {
        let Ok(name) = id.name.parse::<EntryName>() else {
            return false;
        };
        let metadata = self.spool.metadata(&self.queue, &name);
        let info = metadata.and_then(|it| Ok((self.spool.info(&self.queue, &name)?.file, it)));
        match info {
            Ok((file, metadata)) => self.entry_id(&name, file, &metadata) == *id,
            Err(SpoolError::NotFound(..)) => false,
            Err(_) => true,
        }
    }

    fn entry_id(&self, name: &EntryName, file: FileIdentity, metadata: &[u8]) -> EntryId {
        EntryId {
            spool: Arc::clone(&self.id),
            name: name.to_string().into(),
            inode: file.inode,
            born: file.born,
            checksum: checksum(metadata),
        }
    }

    /// Takes so many entries at most, unless some are to be offered still, waiting for the first one at most so long.
    pub fn fill(&mut self, most: usize, wait: Duration) -> Result<()> {
        if !self.offered.is_empty() {
            return Ok(());
        }
        let mut next = self.reader.dequeue(&self.stop, Some(wait))?;
        let mut bytes = 0;
        while let Some(guard) = next {
            bytes += guard.metadata().len();
            self.offer(guard)?;
            let room = self.offered.len() < most && bytes < ROUND_BYTES_MAX;
            next = if room { self.reader.dequeue_available()? } else { None };
        }
        Ok(())
    }

    fn offer(&mut self, guard: Guard) -> Result<()> {
        match task(&guard) {
            Ok(task) => {
                let id = self.entry_id(guard.name(), guard.file()?, guard.metadata());
                self.offered.push(Offered { guard, entry: SpoolEntry { id, task } });
                Ok(())
            }
            Err(reason) => self.lay_aside(guard, &reason),
        }
    }

    fn lay_aside(&mut self, guard: Guard, reason: &str) -> Result<()> {
        let (name, to) = (guard.name().clone(), self.spool.options().dead_letter.clone());
        if self.spool.info(&to, &name).is_ok() {
            warn!(entry = %name, reason, queue = %to, "An entry of the spool is no task, and another of its name is where it would be moved; it is kept until the daemon ends.");
            self.stuck.push(guard);
            return Ok(());
        }
        guard.reject(reason)?;
        warn!(entry = %name, reason, queue = %to, "An entry of the spool is no task (its metadata says the task: spool put --meta 'KEY PAYLOAD'); it was moved.");
        Ok(())
    }

    /// What is to be accepted. From now on it stays checked out until it is known what became of it.
    pub fn offers(&mut self) -> Vec<SpoolEntry> {
        self.offered.iter_mut().for_each(|offered| offered.guard.keep());
        self.offered.iter().map(|offered| offered.entry.clone()).collect()
    }

    /// What became of the offers, in their order: those that were not accepted are given back. How many
    /// those are.
    pub fn answered(&mut self, answers: &[Added]) -> Result<usize> {
        let mut refused = Vec::new();
        let answers = answers.iter().copied().chain(std::iter::repeat(Added::Full));
        for (offered, answer) in std::mem::take(&mut self.offered).into_iter().zip(answers) {
            match answer {
                Added::Added(_) | Added::Known => self.accepted.push(offered),
                Added::Full => refused.push(offered.guard),
            }
        }
        // Each is tried, whatever becomes of the others.
        let released: Vec<_> = refused.into_iter().map(Guard::release).collect();
        released.into_iter().try_fold(0, |count, released| released.map(|()| count + 1))
    }

    /// Removes what was accepted; all that can be forgotten now.
    pub fn remove(&mut self) -> Result<Vec<EntryId>> {
        let mut result = Ok(());
        for mut offered in std::mem::take(&mut self.accepted) {
            let (name, id) = (offered.guard.name().clone(), offered.entry.id.clone());
            match offered.guard.remove() {
                Ok(()) => self.removed.push(id),
                Err(error @ SpoolError::Lost { .. }) => {
                    warn!(entry = %name, %error, "An accepted entry is offered again.")
                }
                Err(error) => {
                    self.accepted.push(offered);
                    result = Err(error);
                }
            }
        }
        self.spool.sync_removals(&self.queue)?;
        result.map(|()| self.removed.clone())
    }

    /// What was removed is not remembered any more.
    pub fn forgotten(&mut self) {
        self.removed.clear();
    }
}

/// The task that an entry is: its metadata is one line as in a fetcher file, and it has no data.
fn task(guard: &Guard) -> std::result::Result<Row, String> {
    match guard.data().stat() {
        Ok(Some(data)) if data.bytes > 0 => {
            Err(format!("it has {} bytes of data, and a task has none", data.bytes))
        }
        _ => line(guard.metadata()),
    }
}

fn line(metadata: &[u8]) -> std::result::Result<Row, String> {
    let (mut lines, mut reader) = (Vec::new(), LineReader::new(true, 0));
    reader.feed(metadata, &mut lines);
    reader.finish(&mut lines);
    let mut lines = lines.into_iter();
    match (lines.next(), lines.next()) {
        (Some(Line::Row(row)), None) => Ok(row),
        (Some(Line::Skipped { reason, .. }), None) => Err(reason.to_string()),
        (None, _) => Err("the metadata is empty: a line with a key and a payload is needed".into()),
        (Some(_), Some(_)) => Err("the metadata has more than one line".into()),
    }
}

#[cfg(test)]
#[path = "entries_tests.rs"]
mod tests;
