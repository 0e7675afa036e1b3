//! The handle of an open spool, and how this process works on it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::error::{NoneIf, Result, SpoolError, io};
use super::files;
use super::layer::{Disk, Layer};
use super::layout;
use super::name::{self, EntryName, QueueName};
use super::owner::{HEARTBEAT, Identity, Owner};

/// What an acknowledged operation outlives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Deaths of processes, but not a crash of the system.
    None,
    /// A crash of the system leaves no entry with a part of its content, but may lose entries that
    /// were just published, moved or removed.
    File,
    /// A crash of the system loses nothing that was acknowledged.
    #[default]
    Full,
}

#[derive(Debug, Clone)]
pub struct Options {
    /// What an acknowledged operation outlives.
    pub durability: Durability,
    /// An entry that was claimed this often without success goes to the dead-letter queue; `None`: never.
    pub attempts_max: Option<u32>,
    /// The dead-letter queue: a queue like others, made when it is needed.
    pub dead_letter: QueueName,
}

/// The dead-letter queue, if no other is named.
pub const DEAD_LETTER: &str = "dead-letter";

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            attempts_max: None,
            dead_letter: QueueName::trusted(DEAD_LETTER),
        }
    }
}

/// An open spool. Its clones are the same handle; threads may share it.
#[derive(Debug, Clone)]
pub struct Spool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    layer: Arc<dyn Layer>,
    root: PathBuf,
    options: Options,
    identity: Identity,
    /// The name of this process's record, and its content.
    id: String,
    /// This process's record; written at the first claim.
    owner: Mutex<Option<Owner>>,
}

impl Spool {
    /// Makes a spool, or what is missing of one, and opens it. Several processes may do so at once, and one that dies
    /// in the middle does no harm. The directory's parent must exist. A directory with other files in it is refused.
    pub fn create(path: &Path, options: Options) -> Result<Self> {
        let made = rustix::fs::mkdir(path, Mode::from_raw_mode(0o777)).none_if(Errno::EXIST);
        made.map_err(io("make the directory", path))?;
        let spool = Self::load_unchecked(path, options)?;
        layout::create(spool.layer(), path, spool.full())?;
        Ok(spool)
    }

    /// Opens a spool. One that the reference made gets `.shiftboss/`, if it may be written to. What is not a
    /// spool, a part of one, or one of a later version, is refused.
    pub fn load(path: &Path, options: Options) -> Result<Self> {
        let spool = Self::load_unchecked(path, options)?;
        layout::load(spool.layer(), path)?;
        Ok(spool)
    }

    /// Opens a directory without checking that it is a spool.
    pub fn load_unchecked(path: &Path, options: Options) -> Result<Self> {
        let disk = Disk::open(path).map_err(io("open the spool", path))?;
        Ok(Self::on(Arc::new(disk), path, options, Identity::this_process()))
    }

    /// A spool on another layer, worked on by someone with this identity.
    pub(crate) fn on(
        layer: Arc<dyn Layer>,
        path: &Path,
        options: Options,
        identity: Identity,
    ) -> Self {
        let (id, owner) = (files::random_name(), Mutex::default());
        Self(Arc::new(Inner { layer, root: path.into(), options, identity, id, owner }))
    }

    /// A unique identity of this spool, wherever it is moved.
    pub fn id(&self) -> Result<String> {
        let path = Path::new(layout::ID);
        let mut id = self.layer().read_link(path);
        if id == Err(Errno::NOENT) {
            let made = self.layer().symlink(files::random_name().as_bytes(), path);
            made.none_if(Errno::EXIST).map_err(io("name the spool by", path))?;
            id = self.layer().read_link(path);
        }
        Ok(name::text(&id.map_err(io("read", path))?))
    }

    pub fn path(&self) -> &Path {
        &self.0.root
    }

    pub fn options(&self) -> &Options {
        &self.0.options
    }

    pub fn queues(&self) -> Result<Vec<QueueName>> {
        let root = Path::new(".");
        let mut listed = self.layer().list(root).map_err(io("list", root))?;
        listed.retain(|entry| entry.kind == FileType::Directory);
        let mut queues: Vec<_> =
            listed.iter().filter_map(|entry| QueueName::new(&entry.name).ok()).collect();
        queues.sort();
        Ok(queues)
    }

    /// Makes a queue, if it is missing. Publishing into one does so, too.
    pub fn ensure_queue(&self, queue: &QueueName) -> Result<()> {
        let (path, checkouts) = (Path::new(queue.as_os_str()), layout::checkouts(queue));
        if self.layer().exists(&checkouts)? {
            return Ok(());
        }
        layout::ensure(self.layer(), path)?;
        layout::ensure(self.layer(), &checkouts)?;
        if self.full() {
            self.layer().sync_directory(path)?;
            self.layer().sync_directory(Path::new("."))?;
        }
        Ok(())
    }

    pub(crate) fn layer(&self) -> &dyn Layer {
        &*self.0.layer
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.0.identity
    }

    pub(crate) fn syncs_files(&self) -> bool {
        self.0.options.durability >= Durability::File
    }

    pub(crate) fn full(&self) -> bool {
        self.0.options.durability == Durability::Full
    }

    /// The name of this process's record, which is written first if necessary.
    pub(crate) fn owner(&self) -> Result<&str> {
        let Inner { layer, id, identity, owner, .. } = &*self.0;
        let mut owner = owner.lock().unwrap_or_else(PoisonError::into_inner);
        match &*owner {
            Some(owner) => owner.record.keep()?,
            None => {
                let register = || Owner::register(layer, id, identity, HEARTBEAT);
                *owner = Some(self.with_spare(register)?);
            }
        }
        Ok(id)
    }

    /// Whether this is the name of this process's record, written or not.
    pub(crate) fn is_me(&self, id: &str) -> bool {
        id == self.0.id
    }

    /// Calls what a full disk may refuse, and what then undoes itself; calls it again with the reserved room freed.
    pub(crate) fn with_spare<T>(&self, call: impl Fn() -> Result<T>) -> Result<T> {
        loop {
            match call() {
                Err(error) if error.is_full() && layout::give_up_spare(self.layer()) => {}
                result => return result,
            }
        }
    }

    /// A path for a file that this process is writing.
    pub(crate) fn draft_path(&self) -> PathBuf {
        files::draft_path(&self.0.id)
    }

    /// Syncs directories in which a change must last.
    pub(crate) fn sync_after(
        &self,
        doing: &'static str,
        name: &EntryName,
        directories: &[PathBuf],
    ) -> Result<()> {
        if !self.full() {
            return Ok(());
        }
        let open = |path: &PathBuf| Ok((path.clone(), self.layer().open_directory(path)?));
        let opened: Result<Vec<_>> = directories.iter().map(open).collect();
        let synced = opened.and_then(|opened| self.layer().sync_files(&opened));
        synced.map_err(|error| match error {
            SpoolError::Io { source, .. } => SpoolError::NotDurable(doing, name.clone(), source),
            other => other,
        })
    }
}
