//! A filesystem spool: queues that are directories, for processes that share no daemon
//! (docs/spec/spool.md; docs/spool.md for users).
//!
//! A synchronous library that knows no actor, no database and no command line. [`Spool`] is the
//! handle: making and opening in [`layout`], entries without exclusion in [`entry`], publication in
//! [`enqueue`] and [`batch`] (of large data in [`draft`], under names of [`reserve`]), taking in [`claim`] and its [`Guard`] in [`guard`], waiting in [`reader`] (with
//! [`watch`] and [`stop`]), checkouts that outlive their process in [`lent`], what dead processes left in [`owner`], [`reclaim`] (told by [`given_back`]) and [`sweep`], room on a full disk in [`spare`], looking on in
//! [`sight`] (one entry), [`monitor`] and [`watcher`] (both judge a [`survey`]), mending in [`fsck`] and [`mend`]. Every
//! file-system call is a method of [`layer`] ([`together`] syncs several), and [`files`] makes whole files of them; [`layout`] says
//! where they are, [`name`] what they may be called, [`error`] what went wrong.
//!
//! Decisions:
//!
//! - **The rename is the lock**, as in the reference. Beside it, a claim of ours first makes a symbolic
//!   link `.shiftboss/claims/NAME` that says who, which attempt and from where. A link is made, with
//!   its content and exclusively, by one call, and read by one; a file would take four and could be
//!   half-written. Noted before the rename, a dead claimer's entry always has a note; and since a note
//!   is changed by its owner or, when that is dead, by the one process that has the reclaim lock,
//!   nothing is taken from the living.
//! - **A note proves whose the checkout is**, for the reference, which makes none, may take an entry that a
//!   dead note names. So an entry goes into the checkouts, and out of them, by way of a directory of ours,
//!   and the note is changed while it is there ([`claim`]).
//! - **A delayed entry is a checked-out one** whose note has a time for an owner: the reference leaves
//!   it alone, and reclaim gives it back when it is due.
//! - **Attempts** are counted in the note at the claim. A number of its own (`.shiftboss/attempts/`) is
//!   written only when an entry comes back, so that what succeeds at once pays nothing.
//! - **An entry is in one directory at any moment.** Changed metadata replaces the checked-out file,
//!   which is then renamed into the other queue. Removal takes away the entry, its data, its name:
//!   what has no entry is not there, and fsck takes the rest.
//! - **A registered name in no queue is nobody's**: a publication or a removal in progress. That is why
//!   fsck may delete it, once nobody is at it.
//! - **Paths are relative to one open directory**, so that a spool which is renamed goes on, and a
//!   second one mounted over it is not mistaken for it.
//! - **One sync for a batch** is `syncfs`: a thousand files one by one are a thousand waits.

mod batch;
mod claim;
mod draft;
mod enqueue;
mod entry;
mod error;
mod files;
mod fsck;
mod given_back;
mod guard;
mod known;
mod layer;
mod layout;
mod lent;
mod mend;
mod monitor;
mod name;
mod owner;
mod reader;
mod reclaim;
mod reserve;
mod sight;
mod spare;
mod stop;
mod survey;
mod sweep;
#[cfg(test)]
mod tests;
mod time;
mod together;
mod watch;
mod watcher;
mod with;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::Mode;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

pub use draft::Draft;
pub use enqueue::Item;
pub use entry::{DATA_BYTES_MAX, Data, DataStat, EntryStat, METADATA_BYTES_MAX};
pub use error::{Result, SpoolError};
pub use fsck::{Finding, Fsck, FsckOptions, Mended};
pub use guard::Guard;
pub use layer::{Disk, FileIdentity, FileStat, How, Kind, Layer, Listed};
pub use monitor::{Limits, Problem, ProblemKind, Report};
pub use name::{EntryName, NAME_BYTES_MAX, NameError, QueueName, misleads, time_ordered};
pub use owner::Identity;
use owner::{HEARTBEAT, Owner};
pub use reader::{Order, Reader, Taken};
pub use reclaim::{Reclaimed, Why};
pub use reserve::{NAME_TRIES_MAX, Reservation};
pub use sight::{Holding, Sight};
pub use stop::Stop;
pub use survey::Place;
pub use watcher::{Event, Monitor};
pub use with::{Then, With};

/// What an acknowledged operation outlives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Any death of processes; not that of the system.
    None,
    /// A crash of the system leaves no entry with a part of its content, but may lose entries that
    /// were just published, moved or removed.
    File,
    /// A crash of the system loses nothing that was acknowledged.
    #[default]
    Full,
}

/// How a spool is worked on by this process.
#[derive(Debug, Clone)]
pub struct Options {
    /// What an acknowledged operation outlives.
    pub durability: Durability,
    /// An entry claimed so often without success goes to the dead-letter queue; `None` for never.
    pub attempts_max: Option<u32>,
    /// The dead-letter queue: a queue like others, made when it is needed.
    pub dead_letter: QueueName,
    /// What this process takes it takes over into a store of its own: should it die, nobody gives that back
    /// but its successor, who knows what was stored ([`Spool::inherit`]).
    pub accepting: bool,
}

/// The dead-letter queue, if no other is named.
pub const DEAD_LETTER: &str = "dead-letter";

impl Default for Options {
    /// Full durability, no limit of attempts.
    fn default() -> Self {
        let dead_letter = QueueName::trusted(DEAD_LETTER);
        Self {
            durability: Durability::default(),
            attempts_max: None,
            dead_letter,
            accepting: false,
        }
    }
}

/// A spool that is open. Its clones are the same handle; threads may share it.
#[derive(Debug, Clone)]
pub struct Spool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    layer: Arc<dyn Layer>,
    root: PathBuf,
    options: Options,
    identity: Identity,
    /// What this process's record is called, and what it writes.
    id: String,
    /// This process's record; written at the first claim.
    owner: Mutex<Option<Owner>>,
    /// Queues that are known to have their directories.
    queues: Mutex<HashSet<QueueName>>,
}

fn open_disk(path: &Path) -> Result<Arc<dyn Layer>> {
    let disk = Disk::open(path).map_err(error::io("open the spool", path))?;
    Ok(Arc::new(disk))
}

impl Spool {
    /// Makes a spool, or what is missing of one, and opens it. Several processes may do so at once,
    /// and one that died in the middle has done no harm. The directory's parent must be there.
    ///
    /// # Errors
    /// When the directory has other files in it, or the system refuses.
    pub fn create(path: &Path, options: Options) -> Result<Self> {
        match rustix::fs::mkdir(path, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(error::io("make the directory", path)(errno)),
        }
        let spool = Self::load_unchecked(path, options)?;
        layout::create(spool.layer(), path, spool.full())?;
        Ok(spool)
    }

    /// Removes the spool that the caller made at `path`, unless somebody has put an entry into it meanwhile.
    ///
    /// # Errors
    /// When there is an entry, or the system refuses.
    pub fn remove_unused(path: &Path) -> std::io::Result<()> {
        // Without the registry nobody can put anything in any more.
        std::fs::remove_dir(path.join(layout::REGISTRY))?;
        std::fs::remove_dir_all(path)
    }

    /// Opens a spool. One that the reference made gets `.shiftboss/`, if it may be written to.
    ///
    /// # Errors
    /// When it is not a spool, a part of one, or one of a later version.
    pub fn load(path: &Path, options: Options) -> Result<Self> {
        let spool = Self::load_unchecked(path, options)?;
        layout::load(spool.layer(), path)?;
        Ok(spool)
    }

    /// Opens a spool without looking whether it is one.
    ///
    /// # Errors
    /// When there is no such directory.
    pub fn load_unchecked(path: &Path, options: Options) -> Result<Self> {
        Ok(Self::on(open_disk(path)?, path, options, Identity::this_process()))
    }

    /// A spool on another layer, worked on by someone with this identity.
    fn on(layer: Arc<dyn Layer>, path: &Path, options: Options, identity: Identity) -> Self {
        let (owner, queues) = (Mutex::default(), Mutex::default());
        let id = format!("{:016x}", files::random());
        Self(Arc::new(Inner { layer, root: path.into(), options, identity, id, owner, queues }))
    }

    /// What tells this spool from others, wherever it is moved.
    ///
    /// # Errors
    /// When it has no such name yet, and the system refuses to make one.
    pub fn id(&self) -> Result<String> {
        let (path, new) = (Path::new(layout::ID), format!("{:016x}", files::random()));
        match self.layer().symlink(new.as_bytes(), path) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(error::io("name the spool by", path)(errno)),
        }
        let id = self.layer().read_link(path).map_err(error::io("read", path))?;
        Ok(name::text(&id))
    }

    /// Waits until what was removed from a queue's checkouts is durable, as the options say.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn sync_removals(&self, queue: &QueueName) -> Result<()> {
        if !self.full() {
            return Ok(());
        }
        files::sync_directory(self.layer(), &layout::checkouts(queue))
    }

    /// The spool's directory, as it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.root
    }

    /// How this process works on it.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// Its queues, in order.
    ///
    /// # Errors
    /// When the directory cannot be listed.
    pub fn queues(&self) -> Result<Vec<QueueName>> {
        layout::queues(self.layer())
    }

    /// Makes a queue, if it is not there. Publishing into one does so as well.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn ensure_queue(&self, queue: &QueueName) -> Result<()> {
        let mut known = self.0.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains(queue) {
            layout::ensure_queue(self.layer(), queue, self.full())?;
            known.insert(queue.clone());
        }
        Ok(())
    }

    /// A call found a queue's directory gone: it is to be made anew.
    fn forget_queue(&self, queue: &QueueName) {
        let mut known = self.0.queues.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(queue);
    }

    fn layer(&self) -> &dyn Layer {
        &*self.0.layer
    }

    fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// Whether contents are synced.
    fn syncs_files(&self) -> bool {
        self.0.options.durability >= Durability::File
    }

    /// Whether directories are synced too.
    fn full(&self) -> bool {
        self.0.options.durability == Durability::Full
    }

    /// The name of this process's record, which is written first if it was not.
    fn owner(&self) -> Result<String> {
        let mut owner = self.0.owner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(owner) = &*owner {
            owner.keep()?;
            return Ok(owner.id.clone());
        }
        let Inner { layer, id, identity, .. } = &*self.0;
        let registered = self.with_spare(|| Owner::register(layer, id, identity, HEARTBEAT))?;
        let id = registered.id.clone();
        *owner = Some(registered);
        Ok(id)
    }

    /// The name of this process's record, if it has one.
    fn known_owner(&self) -> Option<String> {
        let owner = self.0.owner.lock().unwrap_or_else(PoisonError::into_inner);
        owner.as_ref().map(|owner| owner.id.clone())
    }

    /// A place for a file that this process is writing.
    fn draft_path(&self) -> PathBuf {
        files::draft_path(&self.0.id)
    }

    /// Replaces a file's content at once, durable as the options say.
    fn replace(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        files::replace(self.layer(), &self.draft_path(), path, bytes, self.syncs_files())
    }

    /// Syncs directories in which something that was done must last.
    fn sync_after(
        &self,
        doing: &'static str,
        name: &EntryName,
        directories: &[PathBuf],
    ) -> Result<()> {
        if !self.full() {
            return Ok(());
        }
        let open = |path: &PathBuf| Ok((path.clone(), files::open_directory(self.layer(), path)?));
        let opened: Result<Vec<_>> = directories.iter().map(open).collect();
        let synced = opened.and_then(|opened| files::sync_each(self.layer(), &opened));
        synced.map_err(|error| match error {
            SpoolError::Io { source, .. } => {
                SpoolError::NotDurable { doing, name: name.clone(), source }
            }
            other => other,
        })
    }
}
