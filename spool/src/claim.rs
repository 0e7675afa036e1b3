//! Taking an entry out of its queue, and giving it back: who may do so, and what is written about it.
//!
//! First, a symbolic link `.shiftboss/claims/NAME` is made, whose target names the holder, the attempt and the queue:
//! making it is exclusive, so one of our processes wins. Then the entry is renamed out of its queue, which is the lock
//! that the reference also knows. It is not renamed into the checkouts at once, but into `.shiftboss/moving`, where
//! only the link's maker touches it. Then the link is changed to say that the checkout is ours, and only then the entry
//! is renamed into the checkouts. It goes back the same way.
//!
//! So a process may die at any call, and its link shows whose a file among the checkouts is: a link that says `moving`
//! has none there, whoever has taken the entry meanwhile; any other link has the file that is there.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::Spool;
use super::error::{NoneIf, Result, io};
use super::files;
use super::layout::{
    ATTEMPTS, CLAIMS, MOVING, QUARANTINE, REGISTRY, STRAYS, available, checked_out, names, under,
};
use super::name::{EntryName, QueueName};

/// The time for a checkout that was detached without a lease: it stays until it is resolved.
pub(crate) const FOREVER: u64 = u64::MAX;

/// Who an entry is checked out by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A process, by the name of its record.
    Process(String),
    /// No process; it is given back at this time, in milliseconds since 1970.
    Until(u64),
}

impl Holder {
    /// None if that is not the name of a record.
    fn process(id: &str) -> Option<Self> {
        let is_id = id.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then(|| Self::Process(id.to_owned()))
    }
}

/// What is noted of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub name: EntryName,
    pub holder: Holder,
    pub attempt: u32,
    pub queue: QueueName,
    /// The entry is still or again in its queue, or on its way. A checkout of its queue under its name is another
    /// process's.
    pub moving: bool,
}

impl Note {
    /// Its link's target: `[moving:]HOLDER ATTEMPT QUEUE`.
    fn encode(&self) -> Vec<u8> {
        let way = if self.moving { "moving:" } else { "" };
        let holder = match &self.holder {
            Holder::Process(id) => id.clone(),
            Holder::Until(time) => format!("until:{time}"),
        };
        let head = format!("{way}{holder} {} ", self.attempt);
        [head.as_bytes(), self.queue.as_bytes()].concat()
    }

    /// Reads what [`Note::encode`] wrote; none if it is something else.
    fn decode(name: &EntryName, bytes: &[u8]) -> Option<Self> {
        let mut parts = bytes.splitn(3, |byte| *byte == b' ');
        let holder = str::from_utf8(parts.next()?).ok()?;
        let attempt = str::from_utf8(parts.next()?).ok()?.parse::<NonZeroU32>().ok()?.get();
        let queue = QueueName::new(parts.next()?).ok()?;
        let on_its_way = holder.strip_prefix("moving:");
        let holder = match on_its_way.unwrap_or(holder).split_once(':') {
            Some(("until", time)) => Holder::Until(time.parse().ok()?),
            _ => Holder::process(on_its_way.unwrap_or(holder))?,
        };
        Some(Self { name: name.clone(), holder, attempt, queue, moving: on_its_way.is_some() })
    }

    pub fn checked_out(&self) -> PathBuf {
        checked_out(&self.queue, &self.name)
    }
}

/// The result of trying to take an entry.
#[derive(Debug)]
pub(crate) enum Take {
    Claimed(Note),
    Gone,
    /// One of our processes has just taken it, or is just giving it back.
    Busy,
    /// It is not an entry: unregistered, not a file, or checked out as well.
    Stranger(&'static str),
}

impl Spool {
    pub(crate) fn take(&self, queue: &QueueName, name: &EntryName) -> Result<Take> {
        self.with_spare(|| self.take_once(queue, name))
    }

    fn take_once(&self, queue: &QueueName, name: &EntryName) -> Result<Take> {
        let stranger = |why| Ok(Take::Stranger(why));
        let Some(stat) = self.layer().look(&available(queue, name))? else {
            return Ok(Take::Gone);
        };
        if stat.linked {
            return stranger("it has other names (hard links): remove those");
        }
        if stat.kind != FileType::RegularFile {
            return stranger("it is not a file");
        }
        if !self.layer().exists(&under(REGISTRY, name))? {
            return stranger("its name is not registered");
        }
        let Some(note) = self.note_new(name, queue, self.holder()?, 1)? else {
            return Ok(Take::Busy);
        };
        let taken = self.take_noted(note);
        if !matches!(taken, Ok(Take::Claimed(_))) && !self.is_moving(name)? {
            // A note that stays while this process lives would keep the entry from all others.
            self.forget_note(name)?;
        }
        taken
    }

    /// This process, as the holder of entries.
    pub(crate) fn holder(&self) -> Result<Holder> {
        Ok(Holder::Process(self.owner()?.to_owned()))
    }

    /// Notes that an entry is on its way; `None` if something is noted of it.
    fn note_new(
        &self,
        name: &EntryName,
        queue: &QueueName,
        holder: Holder,
        attempt: u32,
    ) -> Result<Option<Note>> {
        let note = Note { name: name.clone(), holder, attempt, queue: queue.clone(), moving: true };
        let path = under(CLAIMS, name);
        let made = self.layer().symlink(&note.encode(), &path).none_if(Errno::EXIST);
        Ok(made.map_err(io("note the claim", &path))?.map(|()| note))
    }

    fn take_noted(&self, mut note: Note) -> Result<Take> {
        note.attempt = self.attempts(&note.name)?.saturating_add(1);
        let from = available(&note.queue, &note.name);
        match self.layer().rename(&from, &under(MOVING, &note.name)) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(Take::Gone),
            Err(Errno::EXIST) => return Ok(Take::Stranger("another of its name is on its way")),
            Err(errno) => return Err(io("check out", &from)(errno)),
        }
        note.moving = false;
        let taken = self.rewrite_note(&note).and_then(|()| self.check_out(&note));
        if !matches!(taken, Ok(Take::Claimed(_))) {
            self.hand_back(&note, &note.queue)?;
        }
        taken
    }

    /// The last step of a checkout, which the note already announces.
    pub(crate) fn check_out(&self, note: &Note) -> Result<Take> {
        let to = note.checked_out();
        let renamed = self.layer().rename(&under(MOVING, &note.name), &to).none_if(Errno::EXIST);
        if renamed.map_err(io("check out", &to))?.is_none() {
            return Ok(Take::Stranger("it is checked out as well"));
        }
        // Sets the time of the checkout, from which the monitor takes its age; if this fails, it only looks older.
        let _ = self.layer().touch(&to);
        Ok(Take::Claimed(note.clone()))
    }

    /// Whether an entry is between its queue and the checkouts.
    pub(crate) fn is_moving(&self, name: &EntryName) -> Result<bool> {
        self.layer().exists(&under(MOVING, name))
    }

    /// Whether an entry is checked out of a queue, by any process, or on its way.
    pub(crate) fn is_out(&self, queue: &QueueName, name: &EntryName) -> Result<bool> {
        Ok(self.layer().exists(&checked_out(queue, name))? || self.is_moving(name)?)
    }

    /// What is noted of an entry that may be checked out.
    pub(crate) fn note(&self, name: &EntryName) -> Result<Option<Note>> {
        let noted = self.remark(CLAIMS, name)?;
        Ok(noted.and_then(|noted| Note::decode(name, &noted)))
    }

    /// The notes that can be read, in the order of their names.
    pub(crate) fn notes(&self) -> Result<Vec<Note>> {
        let noted = names(self.layer(), CLAIMS)?;
        noted.iter().filter_map(|name| self.note(name).transpose()).collect()
    }

    pub(crate) fn rewrite_note(&self, note: &Note) -> Result<()> {
        self.set_remark(CLAIMS, &note.name, Some(&note.encode()))
    }

    pub(crate) fn forget_note(&self, name: &EntryName) -> Result<()> {
        self.set_remark(CLAIMS, name, None)
    }

    /// What is noted of an entry in one of our directories, as a link.
    pub(crate) fn remark(&self, directory: &str, name: &EntryName) -> Result<Option<Vec<u8>>> {
        let path = under(directory, name);
        match self.layer().read_link(&path) {
            Err(Errno::NOENT | Errno::INVAL) => Ok(None),
            noted => noted.map(Some).map_err(io("read", &path)),
        }
    }

    /// Writes that note at once, or removes it.
    pub(crate) fn set_remark(
        &self,
        directory: &str,
        name: &EntryName,
        remark: Option<&[u8]>,
    ) -> Result<()> {
        let path = under(directory, name);
        let Some(remark) = remark else { return self.layer().unlink(&path).map(drop) };
        self.with_spare(|| {
            let draft = self.draft_path();
            self.layer().symlink(remark, &draft).map_err(io("write", &draft))?;
            self.layer().replace(&draft, &path).map_err(io("replace", &path))
        })
    }

    pub(crate) fn attempts(&self, name: &EntryName) -> Result<u32> {
        let noted = self.remark(ATTEMPTS, name)?;
        let attempts = noted.and_then(|noted| str::from_utf8(&noted).ok()?.parse().ok());
        Ok(attempts.unwrap_or(0))
    }

    /// Notes how often an entry was claimed, for its next claim. If that is noted already, nothing is written, because
    /// there may be no room.
    fn set_attempts(&self, name: &EntryName, attempts: u32) -> Result<()> {
        if attempts == self.attempts(name)? {
            return Ok(());
        }
        let attempts = (attempts > 0).then(|| attempts.to_string());
        self.set_remark(ATTEMPTS, name, attempts.as_deref().map(str::as_bytes))
    }

    /// Puts a claimed entry into a queue, with `attempts` attempts, and ends the claim. The caller is its holder, or
    /// reclaim for a dead one. Returns whether the entry was still there.
    pub(crate) fn put(&self, note: &Note, to: &QueueName, attempts: u32) -> Result<bool> {
        self.with_spare(|| self.ensure_queue(to))?;
        let there = self.take_back(note)?;
        if there {
            self.set_attempts(&note.name, attempts)?;
            self.hand_back(note, to)?;
        }
        self.forget_note(&note.name)?;
        Ok(there)
    }

    /// Moves an entry from the checkouts to where no other process touches it; returns whether it was there, or had
    /// already been moved.
    fn take_back(&self, note: &Note) -> Result<bool> {
        if !note.moving {
            let (held, way) = (note.checked_out(), under(MOVING, &note.name));
            let taken = self.layer().rename(&held, &way).none_if(Errno::NOENT);
            if taken.map_err(io("put back", &held))?.is_some() {
                return Ok(true);
            }
        }
        self.is_moving(&note.name)
    }

    /// Makes an entry available that is on its way, and no longer held. If that fails, it is held again.
    fn hand_back(&self, note: &Note, to: &QueueName) -> Result<()> {
        let back = available(to, &note.name);
        if self.rewrite_note(&Note { moving: true, ..note.clone() }).is_err() {
            // There is no room to note that. Without a note, others' checkouts are not mistaken for ours.
            self.forget_note(&note.name)?;
        }
        if let Err(errno) = self.layer().rename(&under(MOVING, &note.name), &back) {
            let again = self.rewrite_note(&Note { moving: false, ..note.clone() });
            let _ = again.and_then(|()| self.check_out(note));
            return Err(io("put back", &back)(errno));
        }
        // Its age in the queue begins anew.
        let _ = self.layer().touch(&back);
        Ok(())
    }

    /// The queue for an entry that comes back to `queue` after `attempts` claims.
    pub(crate) fn destination(&self, queue: &QueueName, attempts: u32) -> QueueName {
        let options = self.options();
        let over = options.attempts_max.is_some_and(|max| attempts >= max);
        if over { options.dead_letter.clone() } else { queue.clone() }
    }

    /// Moves an entry with unreadable metadata to quarantine, so that it does not block consumers.
    pub(crate) fn quarantine(&self, name: &EntryName, from: &Path) -> Result<()> {
        self.layer().rename(from, &under(QUARANTINE, name)).map_err(io("quarantine", from))?;
        self.set_attempts(name, 0)?;
        self.forget_note(name)
    }

    /// Moves a file to the strays, under its name or, if that is taken, a number; returns whether it was there.
    pub(crate) fn move_to_strays(&self, path: &Path) -> Result<bool> {
        let mut to = Path::new(STRAYS).join(path.file_name().unwrap_or_default());
        if self.layer().exists(&to)? {
            to = Path::new(STRAYS).join(files::random_name());
        }
        let moved = self.layer().rename(path, &to).none_if(Errno::NOENT);
        Ok(moved.map_err(io("quarantine", path))?.is_some())
    }

    /// Runs a repair as the holder of an entry, so that no consumer works on it. If one does, does nothing and returns
    /// `false`.
    pub(crate) fn holding(
        &self,
        name: &EntryName,
        repair: impl FnOnce() -> Result<bool>,
    ) -> Result<bool> {
        let holder = self.holder()?;
        let Some(note) = self.note_new(name, &QueueName::trusted("fsck"), holder, 0)? else {
            return Ok(false);
        };
        let result = repair();
        self.forget_note(&note.name)?;
        result
    }
}
