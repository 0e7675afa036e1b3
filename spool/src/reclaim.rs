//! Gives back what dead processes had checked out, and delayed entries that are due; and removes half-written files of
//! dead processes. Run by every waiting reader, and by fsck.
//!
//! One process at a time, by a lock that ends with its holder. A note is changed only by its owner, or here if that is
//! dead. So if two reads give the same, no process is working on it.

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tracing::warn;

use super::Spool;
use super::claim::{FOREVER, Holder, Note};
use super::entry::age;
use super::error::{Result, SpoolError, io};
use super::files::draft_owner;
use super::layer::How;
use super::layout::{
    ATTEMPTS, CLAIMS, LOCK, OWNERS, REASONS, REGISTRY, entries, keep_spare, lock, names, under,
};
use super::name::{EntryName, QueueName};
use super::owner::{self, LEASE};
use super::wait::pause;

/// A half-written file whose writer has no record counts as abandoned at this age.
const DRAFT_AGE: Duration = Duration::from_secs(600);
/// A delay that began this far in the future began before the clock was set back; files have a coarser clock.
const AHEAD: Duration = Duration::from_secs(1);
/// How long to wait for another fsck or reclaim.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reclaimed {
    pub name: EntryName,
    /// Its own queue again, or the dead-letter queue.
    pub to: QueueName,
    pub attempts: u32,
    /// A text: who had it, and where it went.
    pub whence: String,
}

impl Spool {
    /// Gives back what dead owners had and what is due. What another process is just giving back is left to it. An
    /// entry that fails is logged, and does not hold up the others.
    pub(crate) fn reclaim(&self) -> Result<Vec<Reclaimed>> {
        let dead = self.dead_owners()?;
        if dead.is_empty() && self.overdue(&dead)?.is_empty() {
            return Ok(Vec::new());
        }
        let Some(_held) = lock(self.layer(), Path::new(LOCK), How::Lock)? else {
            return Ok(Vec::new());
        };
        self.reclaim_locked()
    }

    /// The lock of those who change others' notes.
    pub(crate) fn wait_for_lock(&self) -> Result<File> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(held) = lock(self.layer(), Path::new(LOCK), How::Lock)? {
                return Ok(held);
            }
            if Instant::now() >= end {
                return Err(SpoolError::Locked(self.path().to_owned()));
            }
            pause(PAUSE);
        }
    }

    /// As [`Spool::reclaim`], for the holder of the lock.
    pub(crate) fn reclaim_locked(&self) -> Result<Vec<Reclaimed>> {
        // Dead processes are found before their notes: they write no more.
        let dead = self.dead_owners()?;
        let (mut given, mut done) = (Vec::new(), true);
        let overdue = self.overdue(&dead)?;
        if !overdue.is_empty() {
            // If this process dies now, its record shows whose half-written notes these are.
            self.owner()?;
        }
        for note in overdue {
            match self.reclaim_one(&note) {
                Ok(reclaimed) => given.extend(reclaimed),
                Err(error) => {
                    done = false;
                    warn!(name = %note.name, %error, "An entry could not be given back.");
                }
            }
        }
        if done {
            self.remove_drafts(|path| Ok(draft_owner(path).is_some_and(|id| dead.contains(id))))?;
            for id in &dead {
                self.layer().unlink(&owner::path_of(id))?;
            }
        }
        Ok(given)
    }

    fn reclaim_one(&self, note: &Note) -> Result<Option<Reclaimed>> {
        let name = &note.name;
        let whose = match &note.holder {
            Holder::Until(_) => "whose delay is over,".to_owned(),
            Holder::Process(id) => match owner::read(self.layer(), id)? {
                Some(owner) => format!("of process {} on {}", owner.pid, owner.host),
                None => "of a process without a record".to_owned(),
            },
        };
        // Its owner ended it between two looks.
        if self.note(name)?.as_ref() != Some(note) {
            return Ok(None);
        }
        if let Some(note) = self.postponed(note)? {
            return self.rewrite_note(&note).map(|()| None);
        }
        let held = !note.moving && self.layer().exists(&note.checked_out())?;
        if !held && !self.is_moving(name)? {
            self.end_removal(note)?;
            return Ok(None);
        }
        let (from, attempts) = (&note.queue, note.attempt);
        let to = self.destination(from, attempts);
        let way = if *from == to { String::new() } else { format!("from {from} ") };
        let whence = format!("{whose} {way}to {to}");
        let there = self.put(note, &to, attempts)?;
        Ok(there.then(|| Reclaimed { name: name.clone(), to, attempts, whence }))
    }

    /// A claim without an entry. Its owner died before the checkout or after its end; or in the middle of a removal,
    /// and then the rest is removed, unless it already belongs to a new entry with that name.
    pub(crate) fn end_removal(&self, note: &Note) -> Result<()> {
        let name = &note.name;
        let modified =
            |directory| Ok(self.layer().look(&under(directory, name))?.map(|stat| stat.modified));
        if !note.moving && self.is_unseen(name)? && modified(REGISTRY)? <= modified(CLAIMS)? {
            return self.remove_rest(name);
        }
        self.forget_note(name)
    }

    /// The notes whose owner is dead, or whose time has come.
    pub(crate) fn overdue(&self, dead: &HashSet<String>) -> Result<Vec<Note>> {
        let now = UNIX_EPOCH.elapsed().unwrap_or_default().as_millis();
        let mut overdue = Vec::new();
        for note in self.notes()? {
            let is = match &note.holder {
                Holder::Until(time) => u128::from(*time) <= now || self.postponed(&note)?.is_some(),
                Holder::Process(id) if self.is_me(id) => false,
                Holder::Process(id) => {
                    dead.contains(id) || !self.layer().exists(&owner::path_of(id))?
                }
            };
            if is {
                overdue.push(note);
            }
        }
        Ok(overdue)
    }

    /// The note of a delay that began in the future, because the clock was set back since: the delay begins anew now.
    fn postponed(&self, note: &Note) -> Result<Option<Note>> {
        let (Holder::Until(time), path) = (&note.holder, under(CLAIMS, &note.name)) else {
            return Ok(None);
        };
        let began = self.layer().look(&path)?.filter(|_| *time != FOREVER);
        let ahead = began.and_then(|stat| stat.modified.duration_since(SystemTime::now()).ok());
        Ok(ahead.filter(|ahead| *ahead > AHEAD).map(|ahead| {
            let ahead = u64::try_from(ahead.as_millis()).unwrap_or(u64::MAX);
            Note { holder: Holder::Until(time.saturating_sub(ahead)), ..note.clone() }
        }))
    }

    /// The records of processes that are no longer alive.
    pub(crate) fn dead_owners(&self) -> Result<HashSet<String>> {
        let mut dead = HashSet::new();
        for name in entries(self.layer(), Path::new(OWNERS))? {
            if self.is_dead(&name.to_string())? {
                dead.insert(name.to_string());
            }
        }
        Ok(dead)
    }

    /// Whether a living process has a note of this entry.
    pub(crate) fn is_held(&self, name: &EntryName) -> Result<bool> {
        match self.note(name)?.map(|note| note.holder) {
            Some(Holder::Process(id)) => Ok(!self.is_dead(&id)?),
            Some(Holder::Until(_)) | None => Ok(false),
        }
    }

    pub(crate) fn is_dead(&self, id: &str) -> Result<bool> {
        if self.is_me(id) {
            // We are alive, whatever is left of our record.
            return Ok(false);
        }
        // Of a record that a system crash has emptied only the age is known.
        let owner = owner::read(self.layer(), id)?;
        match owner.and_then(|owner| owner.is_alive(self.identity())) {
            Some(is_alive) => Ok(!is_alive),
            None => self.is_silent(id),
        }
    }

    /// Whether an owner has not touched its record for longer than its lease. Both times are of the
    /// file system, whose clock may differ from this host's.
    fn is_silent(&self, id: &str) -> Result<bool> {
        let Some(record) = self.layer().look(&owner::path_of(id))? else { return Ok(true) };
        let clock = Path::new(LOCK);
        self.layer().open(clock, How::Lock).map_err(io("open", clock))?;
        self.layer().touch(clock).map_err(io("touch", clock))?;
        let now = self.layer().stat(clock).map_err(io("look at", clock))?.modified;
        Ok(now.duration_since(record.modified).unwrap_or_default() > LEASE)
    }

    /// Removes abandoned half-written files, and notes of entries that another program ended. What can only be judged
    /// while producers are stopped is left to fsck.
    pub(crate) fn sweep(&self) -> Result<()> {
        keep_spare(self.layer());
        self.remove_drafts(|path| {
            Ok(self.is_old(path)? && self.unless_written(path, || Ok(true))?)
        })?;
        self.stale()?.iter().try_for_each(|path| self.layer().unlink(path).map(drop))
    }

    /// Notes about entries that no longer exist.
    pub(crate) fn stale(&self) -> Result<Vec<PathBuf>> {
        let mut stale = Vec::new();
        for directory in [ATTEMPTS, REASONS] {
            for name in names(self.layer(), directory)? {
                if !self.layer().exists(&under(REGISTRY, &name))? {
                    stale.push(under(directory, &name));
                }
            }
        }
        Ok(stale)
    }

    fn remove_drafts(&self, is_left: impl Fn(&Path) -> Result<bool>) -> Result<()> {
        for path in self.layer().drafts()? {
            if is_left(&path)? {
                self.layer().unlink(&path)?;
            }
        }
        Ok(())
    }

    /// Whether a file is too old to be still written by a process without a record. A process with a record may pause
    /// as long as it lives.
    fn is_old(&self, path: &Path) -> Result<bool> {
        let record = draft_owner(path).map(owner::path_of);
        if record.is_some_and(|record| self.layer().stat(&record).is_ok()) {
            return Ok(false);
        }
        Ok(self.layer().look(path)?.is_some_and(|stat| age(stat.modified) > DRAFT_AGE))
    }
}
