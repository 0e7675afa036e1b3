//! Where things are in a spool, and how it is made. It does not know entries.
//!
//! Creation is a list of directories, each of which may already exist, so that the next one finishes an interrupted
//! creation, and simultaneous ones help each other.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::error::{NoneIf, Result, SpoolError, io};
use super::files::{DRAFTS, joined};
use super::layer::{How, Layer};
use super::name::{EntryName, QueueName, text};

pub(crate) const REGISTRY: &str = ".registry";
pub(crate) const TMP: &str = ".tmp";
pub(crate) const DATA: &str = ".data";
pub(crate) const CHECKOUT: &str = ".checkout";
/// Our additions; the reference never looks here.
pub(crate) const OURS: &str = ".shiftboss";
pub(crate) const OWNERS: &str = ".shiftboss/owners";
pub(crate) const CLAIMS: &str = ".shiftboss/claims";
/// Entries between a queue and its checkouts: other programs do not move what is here.
pub(crate) const MOVING: &str = ".shiftboss/moving";
pub(crate) const ATTEMPTS: &str = ".shiftboss/attempts";
pub(crate) const QUARANTINE: &str = ".shiftboss/quarantine";
pub(crate) const STRAYS: &str = ".shiftboss/strays";
pub(crate) const REASONS: &str = ".shiftboss/reasons";
pub(crate) const ID: &str = ".shiftboss/id";
/// Files that are deleted when the disk is full.
const SPARE: &str = ".shiftboss/spare";
pub(crate) const LOCK: &str = ".shiftboss/lock";
const VERSION: &str = ".shiftboss/version";

/// The directories of the format itself. The registry is first: where it is, there is a spool.
pub(crate) const FORMAT: [&str; 3] = [REGISTRY, TMP, DATA];
const ADDED: [&str; 9] =
    [OURS, OWNERS, CLAIMS, MOVING, ATTEMPTS, REASONS, QUARANTINE, STRAYS, DRAFTS];

const THIS_VERSION: &[u8] = b"1\n";
const VERSION_BYTES_MAX: u64 = 64;
/// A checkout needs three files at most: a record of the process, its note, the next one.
const SPARE_FILES: usize = 4;
const SPARE_BYTES: usize = 4096;

/// A name in one of the spool's own directories.
pub(crate) fn under(directory: &str, name: &EntryName) -> PathBuf {
    Path::new(directory).join(name.as_os_str())
}

pub(crate) fn available(queue: &QueueName, name: &EntryName) -> PathBuf {
    Path::new(queue.as_os_str()).join(name.as_os_str())
}

pub(crate) fn checkouts(queue: &QueueName) -> PathBuf {
    Path::new(queue.as_os_str()).join(CHECKOUT)
}

pub(crate) fn checked_out(queue: &QueueName, name: &EntryName) -> PathBuf {
    checkouts(queue).join(name.as_os_str())
}

pub(crate) fn ensure(layer: &dyn Layer, path: &Path) -> Result<()> {
    let made = layer.make_directory(path).none_if(Errno::EXIST);
    made.map(drop).map_err(io("make the directory", path))
}

/// Makes what is missing of a spool: a new one, or the rest after an interrupted creation.
pub(crate) fn create(layer: &dyn Layer, root: &Path, sync: bool) -> Result<()> {
    refuse_foreign(layer, root)?;
    for directory in FORMAT.iter().chain(&ADDED) {
        ensure(layer, Path::new(directory))?;
    }
    write_version(layer, sync)?;
    layer.open(Path::new(LOCK), How::Lock).map_err(io("create", Path::new(LOCK)))?;
    keep_spare(layer);
    if sync {
        layer.sync_directory(Path::new("."))?;
        layer.sync_directory(Path::new(OURS))?;
    }
    check_version(layer, root)
}

/// A directory with other files in it, and without a registry, is not a spool.
fn refuse_foreign(layer: &dyn Layer, root: &Path) -> Result<()> {
    let listed = layer.list(Path::new(".")).map_err(io("list", root))?;
    if listed.iter().any(|entry| &*entry.name == REGISTRY.as_bytes()) {
        return Ok(());
    }
    let own = [TMP.as_bytes(), DATA.as_bytes(), OURS.as_bytes()];
    let other = listed.iter().find(|entry| !own.contains(&&*entry.name));
    other.map_or(Ok(()), |other| Err(SpoolError::Foreign(root.into(), text(&other.name))))
}

/// Refuses what is not a spool, or a part of one; adds what we need to one of the reference's.
pub(crate) fn load(layer: &dyn Layer, root: &Path) -> Result<()> {
    for directory in FORMAT {
        let path = Path::new(directory);
        match layer.look(path)? {
            Some(stat) if stat.kind == FileType::Directory => {}
            // The error says what is there instead.
            Some(_) => drop(layer.open_directory(path)?),
            None if directory == REGISTRY => return Err(SpoolError::NotASpool(root.into())),
            None => return Err(SpoolError::Incomplete(root.into(), directory)),
        }
    }
    add_ours(layer)?;
    keep_spare(layer);
    check_version(layer, root)
}

/// Makes our own directories. A spool that may only be read is read without them.
fn add_ours(layer: &dyn Layer) -> Result<()> {
    let made = ADDED.iter().try_for_each(|directory| ensure(layer, Path::new(directory)));
    match made.and_then(|()| write_version(layer, true)) {
        Err(error) if error.is(Errno::ROFS) || error.is(Errno::ACCESS) => Ok(()),
        result => result,
    }
}

/// The version file is made last: if it exists, all of our part does. An incomplete one is being written, or a death
/// interrupted that.
fn write_version(layer: &dyn Layer, sync: bool) -> Result<()> {
    let path = Path::new(VERSION);
    if layer.look(path)?.is_some_and(|stat| stat.size >= THIS_VERSION.len() as u64) {
        return Ok(());
    }
    let file = layer.write_file(path, How::Over, THIS_VERSION)?;
    if sync { layer.sync(&file).map_err(io("sync", path)) } else { Ok(()) }
}

fn check_version(layer: &dyn Layer, root: &Path) -> Result<()> {
    let path = Path::new(VERSION);
    let read = layer.read_file(path, VERSION_BYTES_MAX).none_if(Errno::NOENT);
    match read.map_err(io("read", path))? {
        Some(found) if !THIS_VERSION.starts_with(&found) => {
            Err(SpoolError::Version(root.into(), text(&found)))
        }
        _ => Ok(()),
    }
}

/// Reserves room for when the disk is full, so that entries can still be taken and removed. If there is no room to
/// reserve, that is not an error.
pub(crate) fn keep_spare(layer: &dyn Layer) {
    let there = layer.list(Path::new(SPARE)).unwrap_or_default();
    if there.len() >= SPARE_FILES || ensure(layer, Path::new(SPARE)).is_err() {
        return;
    }
    let _ = (0..SPARE_FILES).try_for_each(|number| {
        let path = Path::new(SPARE).join(number.to_string());
        layer.write_file(&path, How::Over, &[0; SPARE_BYTES]).map(drop)
    });
}

/// Removes a file of the reserved room; returns whether there was one.
pub(crate) fn give_up_spare(layer: &dyn Layer) -> bool {
    let listed = layer.list(Path::new(SPARE)).unwrap_or_default();
    listed.iter().any(|file| layer.remove(&joined(Path::new(SPARE), &file.name)).is_ok())
}

/// The entries' names in a directory, of whatever kind of file, in order; none if it is not there.
pub(crate) fn names(layer: &dyn Layer, directory: &str) -> Result<Vec<EntryName>> {
    let listed = layer.listed(Path::new(directory))?;
    let mut names: Vec<_> =
        listed.iter().filter_map(|file| EntryName::new(&file.name).ok()).collect();
    names.sort();
    Ok(names)
}

/// The entries in a directory, in order; none if it is not there.
pub(crate) fn entries(layer: &dyn Layer, path: &Path) -> Result<Vec<EntryName>> {
    let mut names = entries_and_others(layer, path)?.0;
    names.sort();
    Ok(names)
}

/// Regular files with an entry's name, and the names of what else is in a directory.
type EntriesAndOthers = (Vec<EntryName>, Vec<Box<[u8]>>);

pub(crate) fn entries_and_others(layer: &dyn Layer, path: &Path) -> Result<EntriesAndOthers> {
    let (mut names, mut others) = (Vec::new(), Vec::new());
    for entry in layer.listed(path)? {
        match EntryName::new(&entry.name) {
            Ok(name) if entry.kind == FileType::RegularFile => names.push(name),
            _ if &*entry.name == CHECKOUT.as_bytes() => {}
            _ => others.push(entry.name),
        }
    }
    Ok((names, others))
}

/// Locks a file; none if another process has the lock. It ends with its holder.
pub(crate) fn lock(layer: &dyn Layer, path: &Path, how: How) -> Result<Option<File>> {
    let file = layer.open(path, how).map_err(io("open", path))?;
    let locked = layer.lock(&file).none_if(Errno::WOULDBLOCK).map_err(io("lock", path))?;
    Ok(locked.map(|()| file))
}
