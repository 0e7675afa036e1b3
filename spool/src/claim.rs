//! Taking an entry out of its queue, and giving it back: who may, and what is written about it.
//! Used by the guard, the reader and reclaim.
//!
//! Before anything, a symbolic link `.shiftboss/claims/NAME` is made, whose target says who, which attempt
//! and from which queue: making it is exclusive, so of our processes one wins. Then the entry is renamed
//! out of its queue, which is the lock that the reference knows too; not at once among the checkouts, but
//! into `.shiftboss/moving`, where only the link's maker has a hand. There the link is changed to say that
//! the checkout is ours, and only then the entry is renamed among the checkouts. It goes back the same way.
//!
//! So a process may die at any call, and its link tells whose a file among the checkouts is: one that says
//! `moving` has none there, whoever has taken the entry meanwhile; any other has the one that is there.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::Spool;
use super::error::{self, Result, SpoolError};
use super::files;
use super::layer::Kind;
use super::layout::{
    ATTEMPTS, CLAIMS, MOVING, QUARANTINE, REASONS, REGISTRY, available, checked_out, under,
};
use super::name::{EntryName, QueueName};

/// What a delayed entry has for an owner: it is checked out until then.
const UNTIL: &str = "until:";
/// Begins the note of an entry that is not among the checkouts.
const ON_ITS_WAY: &str = "moving:";
/// Begins the name of an owner that accepts.
const ACCEPTING: &str = "accepting:";
/// The time of a checkout that was lent without a lease: it stays until it is settled.
pub(super) const FOREVER: u64 = u64::MAX;

/// Who an entry is checked out by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Holder {
    /// A process, by the name of its record.
    Owner(String),
    /// A process that takes entries over into a store of its own, by the name of its record. Others cannot
    /// know what it has stored already: when it dies they leave the entry to its successor.
    Accepting(String),
    /// Nobody; to be given back at this time, in milliseconds since 1970.
    Until(u64),
}

impl Holder {
    fn process(text: &str) -> Option<Self> {
        let (accepting, id) = match text.strip_prefix(ACCEPTING) {
            Some(id) => (true, id),
            None => (false, text),
        };
        let is_id = id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = is_id.then(|| id.to_owned())?;
        Some(if accepting { Self::Accepting(id) } else { Self::Owner(id) })
    }
}

/// What is noted of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    pub holder: Holder,
    /// How often the entry was claimed, this time included.
    pub attempt: u32,
    pub queue: QueueName,
    /// The entry is in its queue still or again, or on its way. What its queue has checked out under its
    /// name is another's.
    pub moving: bool,
}

impl Note {
    /// What a process notes before it takes an entry.
    pub fn new(holder: Holder, attempt: u32, queue: QueueName) -> Self {
        Self { holder, attempt, queue, moving: true }
    }

    fn encode(&self) -> Vec<u8> {
        let way = if self.moving { ON_ITS_WAY } else { "" };
        let holder = match &self.holder {
            Holder::Owner(id) => id.clone(),
            Holder::Accepting(id) => format!("{ACCEPTING}{id}"),
            Holder::Until(time) => format!("{UNTIL}{time}"),
        };
        let mut bytes = format!("{way}{holder} {} ", self.attempt).into_bytes();
        bytes.extend(self.queue.as_bytes());
        bytes
    }

    /// Reads what [`Note::encode`] wrote; none if it is something else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut parts = bytes.splitn(3, |byte| *byte == b' ');
        let holder = str::from_utf8(parts.next()?).ok()?;
        let attempt = str::from_utf8(parts.next()?).ok()?.parse().ok()?;
        let queue = QueueName::new(parts.next()?).ok()?;
        let (moving, holder) = match holder.strip_prefix(ON_ITS_WAY) {
            Some(holder) => (true, holder),
            None => (false, holder),
        };
        let holder = match holder.strip_prefix(UNTIL) {
            Some(time) => Holder::Until(time.parse().ok()?),
            None => Holder::process(holder)?,
        };
        Some(Self { holder, attempt, queue, moving })
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
        self.with_spare(|| self.take_once(queue, name))
    }

    fn take_once(&self, queue: &QueueName, name: &EntryName) -> Result<Take> {
        if let Some(other) = self.look(queue, name)? {
            return Ok(other);
        }
        let mut note = Note::new(self.holder()?, 1, queue.clone());
        if !self.note_new(name, &note)? {
            return Ok(Take::Busy);
        }
        let taken = self.take_noted(name, &mut note);
        if !matches!(taken, Ok(Take::Claimed(_))) && !self.is_moving(name)? {
            // A note that stays while this process lives would keep the entry from everybody.
            self.forget_note(name)?;
        }
        taken
    }

    /// What this process is to the entries that it takes.
    pub(super) fn holder(&self) -> Result<Holder> {
        let id = self.owner()?;
        Ok(if self.options().accepting { Holder::Accepting(id) } else { Holder::Owner(id) })
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
        let (from, way) = (available(&note.queue, name), under(MOVING, name));
        match self.layer().rename(&from, &way) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(Take::Gone),
            Err(Errno::EXIST) => return Ok(Take::Stranger("another of its name is on its way")),
            Err(errno) => return Err(error::io("check out", &from)(errno)),
        }
        note.moving = false;
        let taken = self.rewrite_note(name, note).and_then(|()| self.check_out(name, note));
        if !matches!(taken, Ok(Take::Claimed(_))) {
            self.hand_back(name, note, &note.queue)?;
        }
        taken
    }

    /// The last step of a checkout, which the note tells of already.
    pub(super) fn check_out(&self, name: &EntryName, note: &Note) -> Result<Take> {
        let (way, to) = (under(MOVING, name), checked_out(&note.queue, name));
        match self.layer().rename(&way, &to) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(Take::Stranger("it is checked out as well")),
            Err(errno) => return Err(error::io("check out", &to)(errno)),
        }
        // The time of the checkout, by which the monitor tells its age; the old one only makes it
        // look older.
        let _ = self.layer().touch(&to);
        Ok(Take::Claimed(note.clone()))
    }

    /// Whether an entry is between its queue and the checkouts.
    pub(super) fn is_moving(&self, name: &EntryName) -> Result<bool> {
        files::exists(self.layer(), &under(MOVING, name))
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
        self.with_spare(|| self.relink(&note.encode(), note_path(name)))
    }

    pub(super) fn forget_note(&self, name: &EntryName) -> Result<()> {
        files::remove(self.layer(), &note_path(name)).map(drop)
    }

    /// Makes a link, or another of one, at once.
    fn relink(&self, target: &[u8], path: PathBuf) -> Result<()> {
        let draft = self.draft_path();
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
            attempts => {
                self.with_spare(|| self.relink(attempts.to_string().as_bytes(), path.clone()))
            }
        }
    }

    /// Why an entry was set apart, if that was said.
    pub(super) fn reason(&self, name: &EntryName) -> Result<Option<String>> {
        let path = under(REASONS, name);
        match self.layer().read_link(&path) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(Errno::NOENT | Errno::INVAL) => Ok(None),
            Err(errno) => Err(error::io("read", &path)(errno)),
        }
    }

    /// Notes why an entry is set apart.
    pub(super) fn set_reason(&self, name: &EntryName, reason: &str) -> Result<()> {
        self.with_spare(|| self.relink(reason.as_bytes(), under(REASONS, name)))
    }

    pub(super) fn forget_reason(&self, name: &EntryName) -> Result<()> {
        files::remove(self.layer(), &under(REASONS, name)).map(drop)
    }

    /// Puts a claimed entry into a queue with so many attempts behind it, and ends the claim. The
    /// caller is its holder, or reclaim for a dead one. Whether the entry was still there.
    pub(super) fn put(
        &self,
        name: &EntryName,
        note: &Note,
        to: &QueueName,
        attempts: u32,
    ) -> Result<bool> {
        self.with_spare(|| self.ensure_queue(to))?;
        let there = self.take_back(name, note)?;
        if there {
            if attempts != self.attempts(name)? {
                self.set_attempts(name, attempts)?;
            }
            self.hand_back(name, note, to)?;
        }
        self.forget_note(name)?;
        Ok(there)
    }

    /// Takes an entry from among the checkouts, where no other can be at it; whether it was there, or had
    /// been taken already.
    fn take_back(&self, name: &EntryName, note: &Note) -> Result<bool> {
        if !note.moving {
            let held = checked_out(&note.queue, name);
            match self.layer().rename(&held, &under(MOVING, name)) {
                Ok(()) => return Ok(true),
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(error::io("put back", &held)(errno)),
            }
        }
        self.is_moving(name)
    }

    /// Makes an entry available that is on its way, and not held any more. If that fails, it is held again.
    fn hand_back(&self, name: &EntryName, note: &Note, to: &QueueName) -> Result<()> {
        let (way, back) = (under(MOVING, name), available(to, name));
        if self.rewrite_note(name, &Note { moving: true, ..note.clone() }).is_err() {
            // There is no room to note that. Without a note nobody takes for ours what others check out.
            self.forget_note(name)?;
        }
        if let Err(errno) = self.layer().rename(&way, &back) {
            let again = self.rewrite_note(name, &Note { moving: false, ..note.clone() });
            let _ = again.and_then(|()| self.check_out(name, note));
            return Err(error::io("put back", &back)(errno));
        }
        // Its age in the queue begins anew.
        let _ = self.layer().touch(&back);
        Ok(())
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
