//! Checkouts that outlive the process that made them: lent by a [`Guard`], and settled by whoever
//! knows the entry's name. For programs that take in one process and settle in another.
//!
//! A lent checkout is a delayed one (spec 2): its note has a time for an owner, or no time at all. Who
//! settles it changes a note that is not his own, and has the lock of those who reclaim meanwhile.

use super::Spool;
use super::claim::{Holder, Note};
use super::error::{Result, SpoolError};
use super::files;
use super::guard::Guard;
use super::layout::checked_out;
use super::name::{EntryName, QueueName};
use super::owner;

impl Spool {
    /// Takes over a checkout that was lent, is delayed, or is a dead process's; `None` if the entry is
    /// not checked out of this queue. It is the same attempt.
    ///
    /// # Errors
    /// [`SpoolError::Held`] when a process that lives has it, or one that makes no notes; when another
    /// fsck or reclaim has been at it for ten seconds; when the system refuses.
    pub fn settle(&self, queue: &QueueName, name: &EntryName) -> Result<Option<Guard>> {
        match self.take_over(queue, name)? {
            Some(note) => self.hold(name, note),
            None => Ok(None),
        }
    }

    fn take_over(&self, queue: &QueueName, name: &EntryName) -> Result<Option<Note>> {
        if !files::exists(self.layer(), &checked_out(queue, name))? {
            return Ok(None);
        }
        let _held = self.wait_for_lock()?;
        let note = self.note(name)?;
        // Others may have ended it between the two looks; then the note is of another claim or none.
        if !files::exists(self.layer(), &checked_out(queue, name))? {
            return Ok(None);
        }
        let Some(note) = note.filter(|note| note.queue == *queue) else {
            return Err(self.held(queue, name, None));
        };
        match &note.holder {
            Holder::Owner(id) if !self.is_dead(id)? => Err(self.held(queue, name, Some(id))),
            _ => {
                let note = Note { holder: Holder::Owner(self.owner()?), ..note };
                self.rewrite_note(name, &note)?;
                Ok(Some(note))
            }
        }
    }

    fn held(&self, queue: &QueueName, name: &EntryName, id: Option<&str>) -> SpoolError {
        let identity = id.and_then(|id| owner::read(self.layer(), id).ok().flatten());
        let by = match (identity, id) {
            (Some(of), _) => format!("process {} on {}, which still works on it", of.pid, of.host),
            (None, Some(_)) => "a process that may still work on it".to_owned(),
            (None, None) => {
                "a program that makes no notes; if that has ended, `fsck --repair` gives it back"
                    .to_owned()
            }
        };
        SpoolError::Held { queue: queue.clone(), name: name.clone(), by }
    }
}
