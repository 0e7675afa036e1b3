//! A consumer's hold on an entry, and the ways to begin and end it. If dropped, by an early return, an error or a
//! panic, it gives the entry back.
//!
//! A checkout may outlive its process: a [`Guard`] detaches it, and any process that knows the entry's name can resolve
//! it. It is like a delayed entry: its note has a time instead of an owner, or no time at all. Resolving changes
//! another's note, and so is done under the reclaim lock.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use rustix::io::Errno;
use shiftboss_runner::hash::fnv;
use tracing::warn;

use super::Spool;
use super::claim::{FOREVER, Holder, Note, Take};
use super::entry::{Data, METADATA_BYTES_MAX, limited};
use super::error::{Result, SpoolError, io};
use super::layout::{MOVING, REASONS, checked_out, checkouts, under};
use super::name::{EntryName, QueueName};
use super::owner;

/// An entry that is checked out by this process.
///
/// Attempts are counted at the claim. All ends count except [`Guard::release`], which says that the entry was not
/// tried. An entry that succeeded ([`Guard::move_to`]) begins anew in its next queue.
///
/// Every end fails if the system refuses, and with [`SpoolError::Lost`] if others took this process for dead and gave
/// the entry back.
#[derive(Debug)]
#[must_use = "dropped, it gives the entry back"]
pub struct Guard {
    spool: Spool,
    note: Note,
    metadata: Vec<u8>,
    changed: bool,
    /// Whether the entry is given back when this is dropped.
    held: bool,
}

/// An error of the file itself, which every process would get.
fn is_unreadable(errno: Errno) -> bool {
    use Errno as E;
    matches!(errno, E::ACCESS | E::PERM | E::IO | E::FBIG | E::ISDIR | E::LOOP | E::NXIO | E::MLINK)
}

fn milliseconds_in(time: Duration) -> u64 {
    let now = UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(now.saturating_add(time).as_millis()).unwrap_or(FOREVER)
}

impl Spool {
    /// Checks an entry out; `None` if it is not there, or another process has it. If its metadata cannot be
    /// read, it is moved to quarantine, and that is an error.
    pub fn try_checkout(&self, queue: &QueueName, name: &EntryName) -> Result<Option<Guard>> {
        match self.take(queue, name)? {
            Take::Claimed(note) => self.guard(note),
            Take::Gone | Take::Busy => Ok(None),
            Take::Stranger(why) => {
                warn!(%queue, %name, why, "What has this name in the queue is not an entry.");
                Ok(None)
            }
        }
    }

    /// As [`Spool::try_checkout`]; [`SpoolError::NotFound`] if it cannot be checked out.
    pub fn checkout(&self, queue: &QueueName, name: &EntryName) -> Result<Guard> {
        self.try_checkout(queue, name)?.ok_or_else(|| SpoolError::not_found(queue, name))
    }

    /// A guard on a claimed entry; `None` if it had too many attempts, and went to the dead-letter queue.
    pub(crate) fn guard(&self, note: Note) -> Result<Option<Guard>> {
        let tried = note.attempt - 1;
        let to = self.destination(&note.queue, tried);
        if to != note.queue {
            self.put(&note, &to, tried)?;
            warn!(name = %note.name, attempts = tried, queue = %to, "An entry was tried too often; it was moved.");
            return Ok(None);
        }
        self.hold(note)
    }

    /// A guard on an entry that this process has a note of; `None` if the entry is not there after all.
    pub(crate) fn hold(&self, note: Note) -> Result<Option<Guard>> {
        let (spool, metadata, path) = (self.clone(), Vec::new(), note.checked_out());
        let mut guard = Guard { spool, note, metadata, changed: false, held: true };
        match self.layer().read_file(&path, METADATA_BYTES_MAX) {
            Ok(metadata) => {
                guard.metadata = metadata;
                Ok(Some(guard))
            }
            Err(Errno::NOENT) => {
                guard.held = false;
                self.forget_note(&guard.note.name).map(|()| None)
            }
            Err(errno) if is_unreadable(errno) => {
                let Note { name, queue, .. } = guard.note.clone();
                self.quarantine(&name, &path)?;
                guard.held = false;
                Err(SpoolError::Quarantined(queue, name, errno.into()))
            }
            Err(errno) => Err(io("read the metadata", &path)(errno)),
        }
    }

    /// Takes over a checkout that was detached, is delayed, or is a dead process's; `None` if the entry is
    /// not checked out of this queue. It is the same attempt. [`SpoolError::Held`] if a living process has it, or one
    /// that does not write notes; [`SpoolError::Locked`] if a repair has been at work for ten seconds.
    pub fn resolve(&self, queue: &QueueName, name: &EntryName) -> Result<Option<Guard>> {
        match self.nobodys(queue, name)? {
            Some((_held, note)) => self.take_from_nobody(note),
            None => Ok(None),
        }
    }

    /// Takes over a checkout that no living process has, or checks the entry out.
    pub fn resolve_or_checkout(&self, queue: &QueueName, name: &EntryName) -> Result<Guard> {
        self.resolve(queue, name)?.map_or_else(|| self.checkout(queue, name), Ok)
    }

    /// Removes an entry that is available, or not checked out by a living process. On a disk that is too full for a
    /// note, it is removed without one.
    pub fn discard(&self, queue: &QueueName, name: &EntryName) -> Result<()> {
        match self.resolve_or_checkout(queue, name) {
            Ok(guard) => guard.complete(),
            Err(error) if error.is_full() && self.remove_unnoted(queue, name)? => Ok(()),
            Err(error) => Err(error),
        }
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

    /// The note of a checkout that no living process has, and the lock that keeps it so; `None` if the entry is not
    /// checked out of this queue.
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
            Holder::Process(id) if !self.is_dead(id)? => Err(self.held(queue, name, Some(id))),
            // The checkout under its name is another process's.
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

    /// The error of an entry that a process works on.
    fn held(&self, queue: &QueueName, name: &EntryName, id: Option<&str>) -> SpoolError {
        let identity = id.and_then(|id| owner::read(self.layer(), id).ok().flatten());
        let by = match (id, identity) {
            (None, _) => {
                "a program that makes no notes; if that has ended, `fsck --repair` gives it back"
                    .to_owned()
            }
            (_, Some(of)) => format!("process {} on {}, which still works on it", of.pid, of.host),
            (_, None) => "a process that may still work on it".to_owned(),
        };
        SpoolError::Held(queue.clone(), name.clone(), by)
    }
}

impl Guard {
    pub fn name(&self) -> &EntryName {
        &self.note.name
    }

    pub fn queue(&self) -> &QueueName {
        &self.note.queue
    }

    /// The number of this attempt, from 1 on.
    pub fn attempt(&self) -> u32 {
        self.note.attempt
    }

    pub fn metadata(&self) -> &[u8] {
        &self.metadata
    }

    /// The file with its metadata, for programs that read it themselves; they must not write it.
    pub fn metadata_path(&self) -> PathBuf {
        self.spool.path().join(self.note.checked_out())
    }

    /// Sets new metadata, which [`Guard::move_to`] writes. All other ends keep the old.
    pub fn set_metadata(&mut self, metadata: impl Into<Vec<u8>>) {
        self.metadata = metadata.into();
        self.changed = true;
    }

    pub fn data(&self) -> Data {
        self.spool.data(&self.note.name)
    }

    /// One word that identifies this entry, at any attempt and in any queue: a later entry with its name, its inode or
    /// its metadata has another. To do something only once for an entry, remember it by this.
    pub fn id(&self) -> Result<String> {
        let path = self.note.checked_out();
        let stat = self.spool.layer().stat(&path).map_err(io("look at", &path))?;
        let content = fnv(&[self.name().as_bytes(), b"/", self.metadata()].concat());
        Ok(format!("{}-{:x}-{:x}-{content:016x}", self.spool.id()?, stat.inode, stat.born))
    }

    /// The work is done: removes the entry. If that fails and the entry is still there, it is given back.
    pub fn complete(mut self) -> Result<()> {
        self.still_mine()?;
        self.spool.layer().unlink(&self.note.checked_out())?;
        self.held = false;
        self.spool.remove_rest(&self.note.name)?;
        self.spool.sync_after("removing", &self.note.name, &[checkouts(&self.note.queue)])
    }

    /// Moves the entry to the dead-letter queue, and says why.
    pub fn reject(self, reason: &str) -> Result<()> {
        let to = self.spool.options().dead_letter.clone();
        self.move_with(&to, Some(reason))
    }

    /// Puts the entry into a queue, its own or another, with its present metadata. Attempts are counted from 0 there.
    /// If that fails, the entry is given back, unless it is already there ([`SpoolError::NotDurable`]).
    pub fn move_to(self, queue: &QueueName) -> Result<()> {
        self.move_with(queue, None)
    }

    fn move_with(mut self, queue: &QueueName, reason: Option<&str>) -> Result<()> {
        self.still_mine()?;
        let spool = self.spool.clone();
        if self.changed {
            limited("the metadata", &self.metadata, METADATA_BYTES_MAX)?;
            let (draft, path) = (spool.draft_path(), self.note.checked_out());
            // By way of a draft, readers see the old or the new metadata, even after a crash.
            let written = spool.layer().write_new(&draft, &self.metadata, spool.syncs_files());
            let replace = || spool.layer().replace(&draft, &path).map_err(io("replace", &path));
            // The first failure is reported; a draft that stays is swept up.
            written.and_then(|()| replace()).inspect_err(|_| _ = spool.layer().remove(&draft))?;
        }
        spool.set_remark(REASONS, &self.note.name, reason.map(str::as_bytes))?;
        self.put(queue, 0)?;
        let (to, from) = (queue.as_os_str().into(), checkouts(&self.note.queue));
        spool.sync_after("moving", &self.note.name, &[to, from])
    }

    /// Gives the entry back untried: this claim does not count.
    pub fn release(mut self) -> Result<()> {
        self.give_back(self.note.attempt - 1)
    }

    /// The work failed: gives the entry back, or to the dead-letter queue after too many attempts.
    pub fn fail(mut self) -> Result<()> {
        self.give_back(self.note.attempt)
    }

    /// The work failed and is tried again, but not before this time has passed. The entry stays checked out until then,
    /// and the first process that looks gives it back.
    pub fn retry_after(mut self, time: Duration) -> Result<()> {
        if self.spool.destination(&self.note.queue, self.note.attempt) != self.note.queue {
            return self.give_back(self.note.attempt);
        }
        self.leave_until(milliseconds_in(time))
    }

    /// Leaves the entry checked out with a detached lease: no process holds it, until it is resolved
    /// ([`Spool::resolve`]). When the lease ends, the entry is given back, and this attempt counts; without a lease it
    /// stays.
    pub fn detach(mut self, lease: Option<Duration>) -> Result<()> {
        self.leave_until(lease.map_or(FOREVER, milliseconds_in))
    }

    fn leave_until(&mut self, until: u64) -> Result<()> {
        self.still_mine()?;
        let note = Note { holder: Holder::Until(until), ..self.note.clone() };
        self.spool.rewrite_note(&note)?;
        self.held = false;
        Ok(())
    }

    fn give_back(&mut self, attempts: u32) -> Result<()> {
        self.still_mine()?;
        let to = self.spool.destination(&self.note.queue, attempts);
        self.put(&to, attempts)
    }

    fn put(&mut self, to: &QueueName, attempts: u32) -> Result<()> {
        let there = self.spool.put(&self.note, to, attempts)?;
        self.held = false;
        if there { Ok(()) } else { Err(self.lost()) }
    }

    /// Checks that the claim stands: others end it if they take this process for dead.
    fn still_mine(&mut self) -> Result<()> {
        if self.spool.note(&self.note.name)?.as_ref() == Some(&self.note) {
            return Ok(());
        }
        self.held = false;
        Err(self.lost())
    }

    fn lost(&self) -> SpoolError {
        SpoolError::Lost(self.note.queue.clone(), self.note.name.clone())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.held {
            return;
        }
        let mut given = self.give_back(self.note.attempt);
        if given.is_err() && self.held {
            // On a full disk nothing can be noted. An uncounted attempt does less harm than an entry that cannot be
            // taken as long as this process lives.
            given = self.give_back(self.note.attempt - 1);
        }
        if let Err(error) = given {
            // The note stays, and the entry comes back when this process ends.
            warn!(name = %self.note.name, %error, "An entry could not be given back.");
        }
    }
}
