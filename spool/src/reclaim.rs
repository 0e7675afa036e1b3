//! Giving back what dead processes had checked out, and what was delayed and is due. Run by every
//! waiting reader, by fsck, and by whoever calls it.
//!
//! One process at a time, by a lock that goes with its holder. A note is changed by its owner only,
//! or here when that is dead, so what was read twice the same is not in anybody's hands.

use std::collections::HashSet;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use serde::Serialize;
use tracing::warn;

use super::Spool;
use super::claim::{Holder, Note};
use super::error::{self, Result};
use super::files;
use super::layer::How;
use super::layout::{self, CLAIMS, LOCK, OWNERS, REGISTRY, checked_out, under};
use super::name::{EntryName, QueueName};
use super::owner::{self, Identity, LEASE, Life};

/// Why an entry was given back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Its owner died; who it was, if its record tells.
    OwnerDied(Option<Identity>),
    /// It was to be tried again by now.
    Due,
}

/// An entry that was given back for another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reclaimed {
    /// The entry.
    pub name: EntryName,
    /// The queue that it was checked out of.
    pub from: QueueName,
    /// The queue where it is now: the same, or the dead-letter queue.
    pub to: QueueName,
    /// How often it was claimed.
    pub attempts: u32,
    /// Why.
    pub why: Why,
}

fn now_milliseconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

impl Spool {
    /// Gives back what dead owners had and what is due. What another process is giving back this
    /// moment is left to it.
    ///
    /// # Errors
    /// When the spool's own directory cannot be read or written. One entry that resists is logged,
    /// and does not keep the others.
    pub fn reclaim(&self) -> Result<Vec<Reclaimed>> {
        let dead = self.dead_owners()?;
        if dead.is_empty() && self.overdue(&dead, false)?.is_empty() {
            return Ok(Vec::new());
        }
        match layout::lock(self.layer())? {
            Some(_held) => self.reclaim_locked(false),
            None => Ok(Vec::new()),
        }
    }

    /// As [`Spool::reclaim`], by the holder of the lock; `all`: also what was being accepted.
    pub(super) fn reclaim_locked(&self, all: bool) -> Result<Vec<Reclaimed>> {
        // The dead are found before their notes: they make no more.
        let dead = self.dead_owners()?;
        let mut given = Vec::new();
        let mut done = true;
        let overdue = self.overdue(&dead, all)?;
        if !overdue.is_empty() {
            // Should this process die now, its record tells whose half-written notes are.
            self.owner()?;
        }
        for (name, note) in overdue {
            match self.reclaim_one(&name, &note) {
                Ok(reclaimed) => given.extend(reclaimed),
                Err(error) => {
                    done = false;
                    warn!(%name, %error, "An entry could not be given back.");
                }
            }
        }
        if done {
            self.remove_drafts(&dead)?;
            dead.iter().try_for_each(|id| self.forget_owner(id))?;
        }
        Ok(given)
    }

    fn forget_owner(&self, id: &str) -> Result<()> {
        files::remove(self.layer(), &owner::path_of(id)).map(drop)
    }

    fn reclaim_one(&self, name: &EntryName, note: &Note) -> Result<Option<Reclaimed>> {
        let why = match &note.holder {
            Holder::Owner(id) | Holder::Accepting(id) => {
                Why::OwnerDied(owner::read(self.layer(), id)?)
            }
            Holder::Until(_) => Why::Due,
        };
        // Its owner ended it between two looks.
        if self.note(name)?.as_ref() != Some(note) {
            return Ok(None);
        }
        let held = !note.moving && files::exists(self.layer(), &checked_out(&note.queue, name))?;
        if !held && !self.is_moving(name)? {
            self.end_removal(name, note)?;
            return Ok(None);
        }
        let (from, attempts) = (note.queue.clone(), note.attempt);
        let to = self.destination(&from, attempts);
        let there = self.put(name, note, &to, attempts)?;
        Ok(there.then(|| Reclaimed { name: name.clone(), from, to, attempts, why }))
    }

    /// A claim without an entry. Its owner died before the checkout or after the end of it; or in the
    /// middle of a removal, and then the rest goes, unless it is of a new entry with that name already.
    pub(super) fn end_removal(&self, name: &EntryName, note: &Note) -> Result<()> {
        if !note.moving && self.is_unseen(name)? && !self.is_registered_since(name)? {
            return self.remove_rest(name);
        }
        self.forget_note(name)
    }

    /// Whether a name was registered after the note of it was made.
    fn is_registered_since(&self, name: &EntryName) -> Result<bool> {
        let modified = |path: &Path| match self.layer().stat(path) {
            Err(Errno::NOENT) => Ok(None),
            stat => Ok(Some(stat.map_err(error::io("look at", path))?.modified)),
        };
        Ok(modified(&under(REGISTRY, name))? > modified(&under(CLAIMS, name))?)
    }

    /// The notes whose owner is dead, or whose time has come. What was being accepted is its successor's
    /// as long as it is checked out, unless `all` are wanted.
    pub(super) fn overdue(
        &self,
        dead: &HashSet<String>,
        all: bool,
    ) -> Result<Vec<(EntryName, Note)>> {
        let (now, me) = (now_milliseconds(), self.known_owner());
        let mut overdue = Vec::new();
        for name in self.noted()? {
            let Some(note) = self.note(&name)? else { continue };
            let is = match &note.holder {
                Holder::Until(time) => *time <= now,
                Holder::Owner(id) | Holder::Accepting(id) if me.as_ref() == Some(id) => false,
                Holder::Accepting(_)
                    if !all && !note.moving && self.is_out(&note.queue, &name)? =>
                {
                    false
                }
                Holder::Owner(id) | Holder::Accepting(id) => {
                    dead.contains(id) || !files::exists(self.layer(), &owner::path_of(id))?
                }
            };
            if is {
                overdue.push((name, note));
            }
        }
        Ok(overdue)
    }

    /// The names that have a note, in order.
    pub(super) fn noted(&self) -> Result<Vec<EntryName>> {
        let path = Path::new(CLAIMS);
        let listed = match self.layer().list(path) {
            Err(Errno::NOENT) => Vec::new(),
            listed => listed.map_err(error::io("list", path))?,
        };
        let mut names: Vec<_> =
            listed.iter().filter_map(|entry| EntryName::new(&entry.name).ok()).collect();
        names.sort();
        Ok(names)
    }

    /// The records of processes that do not live any more.
    pub(super) fn dead_owners(&self) -> Result<HashSet<String>> {
        let names = layout::entries(self.layer(), Path::new(OWNERS))?.names;
        let mut dead = HashSet::new();
        for name in names {
            let id = name.to_string();
            if self.is_dead(&id)? {
                dead.insert(id);
            }
        }
        Ok(dead)
    }

    /// Whether a living process has a note of this entry.
    pub(super) fn is_held(&self, name: &EntryName) -> Result<bool> {
        match self.note(name)?.map(|note| note.holder) {
            Some(Holder::Owner(id) | Holder::Accepting(id)) => Ok(!self.is_dead(&id)?),
            Some(Holder::Until(_)) | None => Ok(false),
        }
    }

    /// Whether a process other than this one has a record and lives.
    pub(super) fn others_live(&self) -> Result<bool> {
        let me = self.known_owner();
        for name in layout::entries(self.layer(), Path::new(OWNERS))?.names {
            let id = name.to_string();
            if me.as_ref() != Some(&id) && !self.is_dead(&id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the owner with this record is dead.
    pub(super) fn is_dead(&self, id: &str) -> Result<bool> {
        if self.known_owner().as_deref() == Some(id) {
            // Whatever is left of its record.
            return Ok(false);
        }
        let life = match owner::read(self.layer(), id)? {
            Some(identity) => identity.life(self.identity()),
            // A record that was lost in a crash of the system says nothing but its age.
            None => Life::Elsewhere,
        };
        match life {
            Life::Alive => Ok(false),
            Life::Dead => Ok(true),
            Life::Elsewhere => self.is_silent(id),
        }
    }

    /// Whether an owner has not touched its record for longer than its lease. Both times are of the
    /// file system, whose clock may differ from this host's.
    fn is_silent(&self, id: &str) -> Result<bool> {
        let (path, clock) = (owner::path_of(id), Path::new(LOCK));
        let touched = match self.layer().stat(&path) {
            Err(Errno::NOENT) => return Ok(true),
            stat => stat.map_err(error::io("look at", &path))?.modified,
        };
        self.layer().open(clock, How::Over).map_err(error::io("open", clock))?;
        self.layer().touch(clock).map_err(error::io("touch", clock))?;
        let now = self.layer().stat(clock).map_err(error::io("look at", clock))?.modified;
        Ok(now.duration_since(touched).unwrap_or_default() > LEASE)
    }
}
