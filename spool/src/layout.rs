//! Where things are in a spool, and its making. Used by every part; knows no entry.
//!
//! Creation is a list of directories, each of which may be there already, so that one that was
//! interrupted is taken up by the next, and several at once help each other.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::error::{self, Result, SpoolError};
use super::files;
use super::layer::{How, Kind, Layer};
use super::name::{EntryName, QueueName, text};

pub(super) const REGISTRY: &str = ".registry";
pub(super) const TMP: &str = ".tmp";
pub(super) const DATA: &str = ".data";
pub(super) const CHECKOUT: &str = ".checkout";
/// What we add; the reference never looks here.
pub(super) const OURS: &str = ".shiftboss";
pub(super) const OWNERS: &str = ".shiftboss/owners";
pub(super) const CLAIMS: &str = ".shiftboss/claims";
/// Entries between a queue and its checkouts: nobody else moves what is here.
pub(super) const MOVING: &str = ".shiftboss/moving";
pub(super) const ATTEMPTS: &str = ".shiftboss/attempts";
pub(super) const QUARANTINE: &str = ".shiftboss/quarantine";
pub(super) const STRAYS: &str = ".shiftboss/strays";
pub(super) const DRAFTS: &str = ".shiftboss/tmp";
/// Why entries were set apart.
pub(super) const REASONS: &str = ".shiftboss/reasons";
/// Tells this spool from others.
pub(super) const ID: &str = ".shiftboss/id";
/// Files that are given up when the disk is full.
pub(super) const SPARE: &str = ".shiftboss/spare";
pub(super) const LOCK: &str = ".shiftboss/lock";
pub(super) const VERSION: &str = ".shiftboss/version";

/// The directories of the format itself. The registry is first: where it is, there is a spool.
pub(super) const FORMAT: [&str; 3] = [REGISTRY, TMP, DATA];
/// The directories that we add.
pub(super) const ADDED: [&str; 9] =
    [OURS, OWNERS, CLAIMS, MOVING, ATTEMPTS, REASONS, QUARANTINE, STRAYS, DRAFTS];

/// What `.shiftboss/version` says.
const THIS_VERSION: &[u8] = b"1\n";
/// It is short.
const VERSION_BYTES_MAX: u64 = 64;

/// A name in one of the spool's own directories.
pub(super) fn under(directory: &str, name: &EntryName) -> PathBuf {
    Path::new(directory).join(name.as_os_str())
}

/// An available entry.
pub(super) fn available(queue: &QueueName, name: &EntryName) -> PathBuf {
    Path::new(queue.as_os_str()).join(name.as_os_str())
}

/// A queue's directory of checkouts.
pub(super) fn checkouts(queue: &QueueName) -> PathBuf {
    Path::new(queue.as_os_str()).join(CHECKOUT)
}

/// A checked-out entry.
pub(super) fn checked_out(queue: &QueueName, name: &EntryName) -> PathBuf {
    checkouts(queue).join(name.as_os_str())
}

/// Makes one directory, if it is not there.
pub(super) fn ensure(layer: &dyn Layer, path: &Path) -> Result<bool> {
    match layer.make_directory(path) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(errno) => Err(error::io("make the directory", path)(errno)),
    }
}

/// Makes what is missing of a spool: a new one, or the rest of one whose making was interrupted.
pub(super) fn create(layer: &dyn Layer, root: &Path, sync: bool) -> Result<()> {
    refuse_foreign(layer, root)?;
    for directory in FORMAT.iter().chain(&ADDED) {
        ensure(layer, Path::new(directory))?;
    }
    write_version(layer, sync)?;
    layer.open(Path::new(LOCK), How::Over).map_err(error::io("create", Path::new(LOCK)))?;
    super::spare::keep(layer);
    if sync {
        for directory in [Path::new("."), Path::new(OURS)] {
            files::sync_directory(layer, directory)?;
        }
    }
    check_version(layer, root)
}

/// A directory with other files in it, and without a registry, is somebody else's.
fn refuse_foreign(layer: &dyn Layer, root: &Path) -> Result<()> {
    let listed = layer.list(Path::new(".")).map_err(error::io("list", root))?;
    let named = |name: &[u8]| listed.iter().any(|entry| &*entry.name == name);
    if named(REGISTRY.as_bytes()) {
        return Ok(());
    }
    let own = [TMP.as_bytes(), DATA.as_bytes(), OURS.as_bytes()];
    match listed.iter().find(|entry| !own.contains(&&*entry.name)) {
        Some(other) => Err(SpoolError::Foreign { path: root.into(), found: text(&other.name) }),
        None => Ok(()),
    }
}

/// Refuses what is not a spool, or a part of one; adds what we need to one of the reference's.
pub(super) fn load(layer: &dyn Layer, root: &Path) -> Result<()> {
    for (index, directory) in FORMAT.iter().enumerate() {
        match layer.stat(Path::new(directory)) {
            Ok(stat) if stat.kind == Kind::Directory => {}
            // The error says what is there instead.
            Ok(_) => drop(files::open_directory(layer, Path::new(directory))?),
            Err(Errno::NOENT) if index == 0 => {
                return Err(SpoolError::NotASpool(root.to_owned()));
            }
            Err(Errno::NOENT) => {
                return Err(SpoolError::Incomplete { path: root.into(), missing: directory });
            }
            Err(errno) => return Err(error::io("look at", Path::new(directory))(errno)),
        }
    }
    add_ours(layer)?;
    super::spare::keep(layer);
    check_version(layer, root)
}

/// Makes our own directories. A spool that may only be read is read without them.
fn add_ours(layer: &dyn Layer) -> Result<()> {
    if [VERSION, MOVING, REASONS].iter().all(|path| layer.stat(Path::new(path)).is_ok()) {
        return Ok(());
    }
    let made = ADDED.iter().try_for_each(|directory| ensure(layer, Path::new(directory)).map(drop));
    let read_only = [Errno::ROFS, Errno::ACCESS].map(Errno::raw_os_error);
    match made.and_then(|()| write_version(layer, true)) {
        Err(error) if error.errno().is_some_and(|errno| read_only.contains(&errno)) => Ok(()),
        result => result,
    }
}

/// The version is the last that is made, and appears as a whole: where it is, all of ours is.
fn write_version(layer: &dyn Layer, sync: bool) -> Result<()> {
    let path = Path::new(VERSION);
    if layer.stat(path).is_ok() {
        return Ok(());
    }
    let draft = files::draft_path(&format!("{:016x}", files::random()));
    files::write_new(layer, &draft, THIS_VERSION, sync)?;
    match layer.rename(&draft, path) {
        Err(Errno::EXIST) => layer.remove(&draft).map_err(error::io("remove", &draft)),
        result => result.map_err(error::io("publish", path)),
    }
}

fn check_version(layer: &dyn Layer, root: &Path) -> Result<()> {
    let path = Path::new(VERSION);
    match files::read(layer, path, VERSION_BYTES_MAX) {
        Ok(found) if found == THIS_VERSION => Ok(()),
        Ok(found) => Err(SpoolError::Version { path: root.into(), found: text(&found) }),
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(error::io("read", path)(errno)),
    }
}

/// Makes a queue's directories.
pub(super) fn ensure_queue(layer: &dyn Layer, queue: &QueueName, sync: bool) -> Result<()> {
    let path = Path::new(queue.as_os_str());
    let new = ensure(layer, path)?;
    let new = ensure(layer, &checkouts(queue))? || new;
    if new && sync {
        files::sync_directory(layer, path)?;
        files::sync_directory(layer, Path::new("."))?;
    }
    Ok(())
}

/// The queues of a spool: its directories without a leading dot, in order.
pub(super) fn queues(layer: &dyn Layer) -> Result<Vec<QueueName>> {
    let root = Path::new(".");
    let listed = layer.list(root).map_err(error::io("list", root))?;
    let directories = listed.iter().filter(|entry| entry.kind == Kind::Directory);
    let mut queues: Vec<_> =
        directories.filter_map(|entry| QueueName::new(&entry.name).ok()).collect();
    queues.sort();
    Ok(queues)
}

/// What is in a directory of entries, in no order.
#[derive(Debug, Default)]
pub(super) struct Entries {
    /// Regular files with an entry's name.
    pub names: Vec<EntryName>,
    /// What else is there.
    pub others: Vec<Box<[u8]>>,
}

/// The entries in a directory; none if it is not there.
pub(super) fn entries(layer: &dyn Layer, path: &Path) -> Result<Entries> {
    let listed = match layer.list(path) {
        Err(Errno::NOENT) => Vec::new(),
        listed => listed.map_err(error::io("list", path))?,
    };
    let mut entries = Entries { names: Vec::with_capacity(listed.len()), others: Vec::new() };
    for entry in listed {
        match EntryName::new(&entry.name) {
            Ok(name) if entry.kind == Kind::File => entries.names.push(name),
            _ if &*entry.name == CHECKOUT.as_bytes() => {}
            _ => entries.others.push(entry.name),
        }
    }
    Ok(entries)
}

/// Opens the lock that reclaim and repair take; it goes with its holder.
pub(super) fn lock(layer: &dyn Layer) -> Result<Option<OwnedFd>> {
    let path = Path::new(LOCK);
    let file = layer.open(path, How::Over).map_err(error::io("open", path))?;
    match layer.lock(file.as_fd()) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(error::io("lock", path)(errno)),
    }
}

/// A name as it was listed, as a path's last part.
pub(super) fn joined(directory: &Path, name: &[u8]) -> PathBuf {
    directory.join(OsStr::from_bytes(name))
}
