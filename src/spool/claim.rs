//! Taking an entry out of its queue, and giving it back: who may, and what is written about it.
//! Used by the guard, the reader and reclaim.
//!
//! A claim is two calls. First a symbolic link `.shiftboss/claims/NAME` is made, whose target says
//! who, which attempt and from which queue: making it is exclusive, so of our processes one wins.
//! Then the entry is renamed, which is the lock that the reference knows too. A process that dies
//! between the two leaves an available entry with a dead owner's note, which reclaim takes away.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::Spool;
use super::error::{self, Result, SpoolError};
use super::files;
use super::layer::Kind;
use super::layout::{ATTEMPTS, CLAIMS, QUARANTINE, REGISTRY, available, checked_out, under};
use super::name::{EntryName, QueueName};

/// What a delayed entry has for an owner: it is checked out until then.
const UNTIL: &str = "until:";
/// The time of a checkout that was lent without a lease: it stays until it is settled.
pub(super) const FOREVER: u64 = u64::MAX;

/// Who an entry is checked out by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Holder {
    /// A process, by the name of its record.
    Owner(String),
    /// Nobody; to be given back at this time, in milliseconds since 1970.
    Until(u64),
}

/// What is noted of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    pub holder: Holder,
    /// How often the entry was claimed, this time included.
    pub attempt: u32,
    pub queue: QueueName,
}

impl Note {
    fn encode(&self) -> Vec<u8> {
        let holder = match &self.holder {
            Holder::Owner(id) => id.clone(),
            Holder::Until(time) => format!("{UNTIL}{time}"),
        };
        let mut bytes = format!("{holder} {} ", self.attempt).into_bytes();
        bytes.extend(self.queue.as_bytes());
        bytes
    }

    /// Reads what [`Note::encode`] wrote; none if it is something else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut parts = bytes.splitn(3, |byte| *byte == b' ');
        let holder = str::from_utf8(parts.next()?).ok()?;
        let attempt = str::from_utf8(parts.next()?).ok()?.parse().ok()?;
        let queue = QueueName::new(parts.next()?).ok()?;
        let holder = match holder.strip_prefix(UNTIL) {
            Some(time) => Holder::Until(time.parse().ok()?),
            None if holder.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                Holder::Owner(holder.to_owned())
            }
            None => return None,
        };
        Some(Self { holder, attempt, queue })
    }
}

/// What came of an attempt to take an entry.
#[derive(Debug)]
pub(super) enum Take {
    /// It is ours.
    Claimed(Note),
    /// It is not there any more.
    Gone,
    /// One of our processes has just taken it, or is giving it back this moment.
    Busy,
    /// It is not an entry: unregistered, not a file, or checked out as well.
    Stranger(&'static str),
}

fn note_path(name: &EntryName) -> PathBuf {
    under(CLAIMS, name)
}

impl Spool {
    /// Tries to take an entry.
    pub(super) fn take(&self, queue: &QueueName, name: &EntryName) -> Result<Take> {
        if let Some(other) = self.look(queue, name)? {
            return Ok(other);
        }
        let mut note =
            Note { holder: Holder::Owner(self.owner()?), attempt: 1, queue: queue.clone() };
        if !self.note_new(name, &note)? {
            return Ok(Take::Busy);
        }
        let taken = self.take_noted(name, &mut note);
        if !matches!(taken, Ok(Take::Claimed(_))) {
            // A note that stays while this process lives would keep the entry from everybody.
            self.forget_note(name)?;
        }
        taken
    }

    /// Makes a note where none is; whether none was.
    pub(super) fn note_new(&self, name: &EntryName, note: &Note) -> Result<bool> {
        let path = note_path(name);
        match self.layer().symlink(&note.encode(), &path) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(error::io("note the claim", &path)(errno)),
        }
    }

    /// Whether the entry is one to be taken.
    fn look(&self, queue: &QueueName, name: &EntryName) -> Result<Option<Take>> {
        let path = available(queue, name);
        match self.layer().stat(&path) {
            Err(Errno::NOENT) => return Ok(Some(Take::Gone)),
            Ok(stat) if stat.kind == Kind::File => {}
            Ok(_) => return Ok(Some(Take::Stranger("it is not a file"))),
            Err(errno) => return Err(error::io("look at", &path)(errno)),
        }
        let registered = files::exists(self.layer(), &under(REGISTRY, name))?;
        Ok((!registered).then_some(Take::Stranger("its name is not registered")))
    }

    fn take_noted(&self, name: &EntryName, note: &mut Note) -> Result<Take> {
        note.attempt = self.attempts(name)?.saturating_add(1);
        if note.attempt > 1 {
            self.rewrite_note(name, note)?;
        }
        let (from, to) = (available(&note.queue, name), checked_out(&note.queue, name));
        match self.layer().rename(&from, &to) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(Take::Gone),
            Err(Errno::EXIST) => return Ok(Take::Stranger("it is checked out as well")),
            Err(errno) => return Err(error::io("check out", &from)(errno)),
        }
        // The time of the checkout, by which the monitor tells its age; the old one only makes it
        // look older.
        let _ = self.layer().touch(&to);
        Ok(Take::Claimed(note.clone()))
    }

    /// What is noted of an entry that may be checked out.
    pub(super) fn note(&self, name: &EntryName) -> Result<Option<Note>> {
        let path = note_path(name);
        match self.layer().read_link(&path) {
            Ok(bytes) => Ok(Note::decode(&bytes)),
            Err(Errno::NOENT | Errno::INVAL) => Ok(None),
            Err(errno) => Err(error::io("read", &path)(errno)),
        }
    }

    pub(super) fn rewrite_note(&self, name: &EntryName, note: &Note) -> Result<()> {
        self.relink(&note.encode(), note_path(name))
    }

    pub(super) fn forget_note(&self, name: &EntryName) -> Result<()> {
        files::remove(self.layer(), &note_path(name)).map(drop)
    }

    /// Makes a link, or another of one, at once.
    fn relink(&self, target: &[u8], path: PathBuf) -> Result<()> {
        match self.layer().symlink(target, &path) {
            Err(Errno::EXIST) => {}
            result => return result.map_err(error::io("write", &path)),
        }
        let draft = files::draft_path();
        self.layer().symlink(target, &draft).map_err(error::io("write", &draft))?;
        self.layer().replace(&draft, &path).map_err(error::io("replace", &path))
    }

    /// How often an entry was claimed before.
    pub(super) fn attempts(&self, name: &EntryName) -> Result<u32> {
        let path = under(ATTEMPTS, name);
        match self.layer().read_link(&path) {
            Ok(bytes) => {
                Ok(str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok()).unwrap_or(0))
            }
            Err(Errno::NOENT | Errno::INVAL) => Ok(0),
            Err(errno) => Err(error::io("read", &path)(errno)),
        }
    }

    /// Notes how often an entry was claimed, for its next claim.
    pub(super) fn set_attempts(&self, name: &EntryName, attempts: u32) -> Result<()> {
        let path = under(ATTEMPTS, name);
        match attempts {
            0 => files::remove(self.layer(), &path).map(drop),
            attempts => self.relink(attempts.to_string().as_bytes(), path),
        }
    }

    /// Puts a claimed entry into a queue with so many attempts behind it, and ends the claim. The
    /// caller is its holder, or reclaim for a dead one. Whether the entry was still checked out.
    pub(super) fn put(
        &self,
        name: &EntryName,
        from: &QueueName,
        to: &QueueName,
        attempts: u32,
    ) -> Result<bool> {
        self.ensure_queue(to)?;
        let (held, back) = (checked_out(from, name), available(to, name));
        // Its age in the queue begins anew. If it is gone, the rename says so.
        let _ = self.layer().touch(&held);
        if attempts != self.attempts(name)? {
            self.set_attempts(name, attempts)?;
        }
        let moved = match self.layer().rename(&held, &back) {
            Ok(()) => true,
            Err(Errno::NOENT) => false,
            Err(errno) => return Err(error::io("put back", &back)(errno)),
        };
        self.forget_note(name)?;
        Ok(moved)
    }

    /// Sets an entry aside whose metadata cannot be read, so that it stops nobody.
    pub(super) fn set_aside(&self, name: &EntryName, from: &Path) -> Result<()> {
        let to = under(QUARANTINE, name);
        self.layer().rename(from, &to).map_err(error::io("set aside", from))?;
        self.set_attempts(name, 0)?;
        self.forget_note(name)
    }

    /// The queue for an entry that was claimed so often, coming back to `queue`.
    pub(super) fn destination(&self, queue: &QueueName, attempts: u32) -> QueueName {
        let options = self.options();
        let over = options.attempts_max.is_some_and(|max| attempts >= max);
        if over { options.dead_letter.clone() } else { queue.clone() }
    }

    /// The error of an entry that is not there.
    pub(super) fn gone(queue: &QueueName, name: &EntryName) -> SpoolError {
        SpoolError::NotFound { queue: queue.clone(), name: name.clone() }
    }
}
