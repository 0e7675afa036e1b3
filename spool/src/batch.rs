//! Publication of many entries with one sync. Each is prepared and published as a single one is.

use super::Spool;
use super::enqueue::{Item, Written};
use super::error::{self, Result, SpoolError};
use super::name::{EntryName, QueueName};

impl Spool {
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
}
