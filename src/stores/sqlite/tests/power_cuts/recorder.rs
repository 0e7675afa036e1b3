//! A VFS of SQLite that records what is written and synced, and builds from it what a power cut may leave.
//!
//! It is the system's own VFS with other methods for opening, writing, truncating and syncing, which call the system's
//! and note what was done. It is registered as the default, so that all connections of the process are recorded, the
//! daemon's and those for edits by hand. The log's index is shared memory, and lost with the power.

#![allow(unsafe_code)]

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, Once};
use std::{fs, ptr, slice};

use rusqlite::ffi::{
    SQLITE_OK, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs, sqlite3_vfs_find,
    sqlite3_vfs_register,
};

/// The unit that a disk writes as a whole or not at all.
const SECTOR_BYTES: usize = 512;

#[derive(Debug)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate { length: usize },
    Sync,
}

/// All changes to the files of a directory, in order.
#[derive(Debug, Default)]
pub struct Tape {
    before: BTreeMap<PathBuf, Vec<u8>>,
    changes: Vec<(PathBuf, Change)>,
}

#[derive(Default)]
struct Recorder {
    tapes: HashMap<PathBuf, Tape>,
    /// Open files by their addresses, each with its path and the address of the system's methods.
    files: HashMap<usize, (PathBuf, usize)>,
    /// Our methods, by the address of the system's that they call.
    methods: HashMap<usize, usize>,
}

static RECORDER: LazyLock<Mutex<Recorder>> = LazyLock::new(Mutex::default);

fn recorder() -> MutexGuard<'static, Recorder> {
    RECORDER.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Begins to record a directory. The files that it has are taken for durable.
pub fn start(directory: &Path) {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(install);
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let before = files.filter(|path| !path.to_string_lossy().ends_with("-shm"));
    let before = before.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    recorder().tapes.insert(directory.to_owned(), Tape { before, changes: Vec::new() });
}

/// How many changes were recorded so far.
pub fn recorded(directory: &Path) -> usize {
    recorder().tapes[directory].changes.len()
}

/// Ends the recording.
pub fn stop(directory: &Path) -> Tape {
    recorder().tapes.remove(directory).unwrap()
}

impl Tape {
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Writes the files as a power cut after this number of changes may leave them. What was written since a file was
    /// last synced is there, missing, or there in part; `choose` decides, and gets the number of possibilities.
    pub fn cut(&self, changes: usize, to: &Path, mut choose: impl FnMut(u64) -> u64) {
        let mut files = self.before.clone();
        let done = &self.changes[..changes];
        for (path, _) in done {
            files.entry(path.clone()).or_default();
        }
        for (path, bytes) in &mut files {
            let of_file: Vec<_> = done.iter().filter(|(of, _)| of == path).collect();
            let synced = of_file.iter().rposition(|(_, change)| matches!(change, Change::Sync));
            for (at, (_, change)) in of_file.iter().enumerate() {
                let is_safe = synced.is_some_and(|synced| at < synced);
                match if is_safe { 1 } else { choose(3) } {
                    0 => {}
                    1 => change.apply(bytes, |_| true),
                    _ => change.apply(bytes, |_| choose(2) == 0),
                }
            }
            fs::write(to.join(path.file_name().unwrap()), bytes).unwrap();
        }
    }
}

impl Change {
    /// Of a write, those sectors that are meant.
    fn apply(&self, file: &mut Vec<u8>, mut is_meant: impl FnMut(usize) -> bool) {
        match self {
            Self::Write { offset, bytes } => {
                for (at, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                    let from = offset + at * SECTOR_BYTES;
                    if is_meant(at) {
                        file.resize(file.len().max(from + sector.len()), 0);
                        file[from..from + sector.len()].copy_from_slice(sector);
                    }
                }
            }
            Self::Truncate { length } if is_meant(0) => file.resize(*length, 0),
            Self::Truncate { .. } | Self::Sync => {}
        }
    }
}

fn install() {
    // SAFETY: SQLite's own VFS lives as long as the process; so does the copy, which is leaked.
    unsafe {
        let system = sqlite3_vfs_find(ptr::null());
        let mut ours = ptr::read(system);
        ours.zName = c"recorder".as_ptr();
        ours.xOpen = Some(open);
        let ours = Box::leak(Box::new(ours));
        assert_eq!(sqlite3_vfs_register(ours, 1), SQLITE_OK);
    }
}

/// SAFETY: SQLite calls it as the system's `xOpen`, to which everything is handed on. The file's methods are replaced by a
/// leaked copy of the system's, in which those below call the ones that were there.
unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    unsafe {
        let system = sqlite3_vfs_find(c"unix".as_ptr());
        let code = (*system).xOpen.unwrap()(vfs, name, file, flags, out_flags);
        if code != SQLITE_OK || name.is_null() || (*file).pMethods.is_null() {
            return code;
        }
        let path = PathBuf::from(OsStr::from_bytes(CStr::from_ptr(name).to_bytes()));
        let methods = (*file).pMethods as usize;
        let mut recorder = recorder();
        let ours = *recorder.methods.entry(methods).or_insert_with(|| {
            let mut ours = ptr::read((*file).pMethods);
            ours.xClose = Some(close);
            ours.xWrite = Some(write);
            ours.xTruncate = Some(truncate);
            ours.xSync = Some(sync);
            Box::leak(Box::new(ours)) as *const sqlite3_io_methods as usize
        });
        recorder.files.insert(file as usize, (path, methods));
        (*file).pMethods = ours as *const sqlite3_io_methods;
        code
    }
}

/// The system's methods for an open file.
fn system(file: *mut sqlite3_file) -> *const sqlite3_io_methods {
    recorder().files[&(file as usize)].1 as *const sqlite3_io_methods
}

/// Notes what was done to an open file, if it succeeded and its directory is recorded.
fn note(file: *mut sqlite3_file, code: c_int, change: impl FnOnce() -> Change) -> c_int {
    let mut recorder = recorder();
    let path = recorder.files[&(file as usize)].0.clone();
    let tape = path.parent().and_then(|directory| recorder.tapes.get_mut(directory));
    if let (Some(tape), SQLITE_OK) = (tape, code) {
        tape.changes.push((path, change()));
    }
    code
}

/// SAFETY: as all below, it is called with a file that `open` opened, as the system's method is that it calls.
unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    let methods = system(file);
    recorder().files.remove(&(file as usize));
    unsafe { (*methods).xClose.unwrap()(file) }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    data: *const c_void,
    length: c_int,
    offset: sqlite3_int64,
) -> c_int {
    let code = unsafe { (*system(file)).xWrite.unwrap()(file, data, length, offset) };
    note(file, code, || {
        let length = usize::try_from(length).unwrap();
        // SAFETY: SQLite guarantees that this many bytes are there.
        let bytes = unsafe { slice::from_raw_parts(data.cast::<u8>(), length) }.to_vec();
        Change::Write { offset: usize::try_from(offset).unwrap(), bytes }
    })
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, length: sqlite3_int64) -> c_int {
    let code = unsafe { (*system(file)).xTruncate.unwrap()(file, length) };
    note(file, code, || Change::Truncate { length: usize::try_from(length).unwrap() })
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    let code = unsafe { (*system(file)).xSync.unwrap()(file, flags) };
    note(file, code, || Change::Sync)
}
