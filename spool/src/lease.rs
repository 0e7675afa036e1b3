//! Checkouts that outlive the process that made them: a [`Guard`] detaches them, and whoever knows the
//! entry's name resolves them. For programs that take in one process and end the work in another.
//!
//! A detached lease is a delayed entry: its note has a time for an owner, or no time at all. Who
//! resolves it changes a note that is not his own, and has the lock of those who reclaim meanwhile.

use std::fs::File;
use std::path::Path;

use super::Spool;
use super::claim::{Holder, Note};
use super::error::{Result, SpoolError};
use super::guard::Guard;
use super::layer::How;
use super::layout::{ACCEPTING, MOVING, checked_out, checkouts, lock, under};
use super::name::{EntryName, QueueName};
use super::owner;

impl Spool {
    /// Takes over a checkout that was detached, is delayed, or is a dead process's; `None` if the entry is
    /// not checked out of this queue. It is the same attempt. [`SpoolError::Held`] if a process that lives has
    /// it, or one that makes no notes; [`SpoolError::Locked`] if a repair has been at work for ten seconds.
    pub fn resolve(&self, queue: &QueueName, name: &EntryName) -> Result<Option<Guard>> {
        match self.nobodys(queue, name)? {
            Some((_held, note)) => self.take_from_nobody(note),
            None => Ok(None),
        }
    }

    /// Removes an entry that is available, or checked out by nobody that lives. On a disk that is too full
    /// to note who does it, it is removed without a note.
    pub fn discard(&self, queue: &QueueName, name: &EntryName) -> Result<()> {
        let held = self.resolve(queue, name).and_then(|guard| match guard {
            Some(guard) => Ok(guard),
            None => self.checkout(queue, name),
        });
        match held {
            Ok(guard) => guard.complete(),
            Err(error) if error.is_full() && self.remove_unnoted(queue, name)? => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The lock of the one process that accepts a spool's entries; it goes with its holder.
    /// [`SpoolError::Accepting`] if another one has it.
    pub fn lock_accepting(&self) -> Result<File> {
        let locked = self.with_spare(|| lock(self.layer(), Path::new(ACCEPTING), How::Lock))?;
        locked.ok_or_else(|| SpoolError::Accepting(self.path().to_owned()))
    }

    /// Takes over what a process that accepts entries ([`Options::accepting`](super::Options)) had checked
    /// out of a queue when it died.
    pub fn inherit(&self, queue: &QueueName) -> Result<Vec<Guard>> {
        let _lock = self.wait_for_lock()?;
        let mut guards = Vec::new();
        for note in self.notes()? {
            let Holder::Process { id, accepting: true } = &note.holder else { continue };
            if note.moving || note.queue != *queue || !self.is_dead(id)? {
                continue;
            }
            if self.is_out(queue, &note.name)? {
                guards.extend(self.take_from_nobody(note)?);
            } else {
                self.end_removal(&note)?;
            }
        }
        Ok(guards)
    }

    fn remove_unnoted(&self, queue: &QueueName, name: &EntryName) -> Result<bool> {
        let Some((_held, _)) = self.nobodys(queue, name)? else {
            return self.remove(queue, name);
        };
        for path in [under(MOVING, name), checked_out(queue, name)] {
            self.layer().unlink(&path)?;
        }
        self.remove_rest(name)?;
        self.sync_after("removing", name, &[checkouts(queue)])?;
        Ok(true)
    }

    /// The note of a checkout that no living process has, and the lock under which it stays so; `None` if
    /// the entry is not checked out of this queue.
    fn nobodys(&self, queue: &QueueName, name: &EntryName) -> Result<Option<(File, Note)>> {
        if !self.is_out(queue, name)? {
            return Ok(None);
        }
        let lock = self.wait_for_lock()?;
        let note = self.note(name)?.filter(|note| note.queue == *queue);
        // Others may have ended it between the two looks; then the note is of another claim or none.
        if !self.is_out(queue, name)? {
            return Ok(None);
        }
        let Some(note) = note else { return Err(self.held(queue, name, None)) };
        match &note.holder {
            Holder::Process { id, accepting }
                if (*accepting && !note.moving) || !self.is_dead(id)? =>
            {
                Err(self.held(queue, name, Some(id)))
            }
            // What is checked out under its name is another's.
            _ if note.moving && !self.is_moving(name)? => Err(self.held(queue, name, None)),
            _ => Ok(Some((lock, note))),
        }
    }

    fn take_from_nobody(&self, note: Note) -> Result<Option<Guard>> {
        let is_moving = self.is_moving(&note.name)?;
        let note = Note { holder: self.holder()?, moving: false, ..note };
        self.rewrite_note(&note)?;
        if is_moving {
            self.check_out(&note)?;
        }
        self.hold(note)
    }

    /// The error of an entry that a process works on, or that is left to a daemon's successor.
    fn held(&self, queue: &QueueName, name: &EntryName, id: Option<&str>) -> SpoolError {
        let identity = id.and_then(|id| owner::read(self.layer(), id).ok().flatten());
        let by = match (id, identity) {
            (None, _) => "a program that makes no notes; if that has ended, `fsck --repair` gives it back".to_owned(),
            (Some(id), _) if self.is_dead(id).unwrap_or(false) => "a daemon that died while it accepted it; the next `serve --spool` knows what became of it, and without one `fsck --repair` gives it back".to_owned(),
            (_, Some(of)) => format!("process {} on {}, which still works on it", of.pid, of.host),
            (_, None) => "a process that may still work on it".to_owned(),
        };
        SpoolError::Held(queue.clone(), name.clone(), by)
    }
}
