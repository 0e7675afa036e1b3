//! A layer that fails or dies at its Nth call, counts its calls, and writes down those that matter to
//! durability.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use crate::layer::*;
use crate::*;

/// What a layer does at one of its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// From that call on nothing happens; a write at that call is done by half.
    Die,
    /// That call fails.
    Fail(Errno),
}

type Act = Box<dyn FnOnce() + Send>;

/// A layer that has a fault at its Nth call.
pub struct Faulty {
    disk: Disk,
    fault: Fault,
    at: u64,
    /// Whether calls count that change no name.
    counts_looks: bool,
    /// What another process does, and before which call.
    meanwhile: Mutex<Option<(u64, Act)>>,
    count: AtomicU64,
    /// Failed renames and links.
    pub lost: AtomicU64,
    /// Syncs, renames and removals, as text.
    pub log: Mutex<Vec<String>>,
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Faulty")
    }
}

impl Faulty {
    pub fn new(path: &Path, fault: Fault, at: u64) -> Arc<Self> {
        let disk = Disk::open(path).unwrap();
        Arc::new(Self {
            disk,
            fault,
            at,
            counts_looks: true,
            meanwhile: Mutex::default(),
            count: AtomicU64::default(),
            lost: AtomicU64::default(),
            log: Mutex::default(),
        })
    }

    /// As [`Faulty::new`], of the calls that change names alone.
    pub fn of_changes(path: &Path, fault: Fault, at: u64) -> Arc<Self> {
        let mut layer = Self::new(path, fault, at);
        Arc::get_mut(&mut layer).unwrap().counts_looks = false;
        layer
    }

    pub fn calls(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Before the Nth call another process does this.
    pub fn before(&self, call: u64, act: impl FnOnce() + Send + 'static) {
        *self.meanwhile.lock().unwrap() = Some((call, Box::new(act)));
    }

    /// A call that changes no name.
    fn look(&self) -> Result<(), Errno> {
        if self.counts_looks {
            return self.step();
        }
        if self.fault == Fault::Die && self.calls() >= self.at { Err(Errno::IO) } else { Ok(()) }
    }

    fn step(&self) -> Result<(), Errno> {
        let call = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some((_, act)) = self.meanwhile.lock().unwrap().take_if(|(at, _)| *at == call) {
            act();
        }
        match self.fault {
            Fault::Die if call >= self.at => Err(Errno::IO),
            Fault::Fail(errno) if call == self.at => Err(errno),
            _ => Ok(()),
        }
    }

    fn log(&self, line: String) {
        self.log.lock().unwrap().push(line);
    }

    fn counted<T>(&self, result: Result<T, Errno>) -> Result<T, Errno> {
        self.lost.fetch_add(u64::from(result.is_err()), Ordering::Relaxed);
        result
    }
}

/// Calls that are made as they are, unless they fail.
macro_rules! passed_on {
    ($($step:ident $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($argument: $type),*) -> Result<$result, Errno> {
            self.$step()?;
            self.disk.$name($($argument),*)
        })*
    };
}

impl Layer for Faulty {
    passed_on! {
        look open(path: &Path, how: How) -> File;
        look read(file: &File, limit: u64) -> Vec<u8>;
        look read_link(path: &Path) -> Vec<u8>;
        look stat(path: &Path) -> FileStat;
        look list(path: &Path) -> Vec<Listed>;
        look lock(file: &File) -> ();
        step make_directory(path: &Path) -> ();
        step touch(path: &Path) -> ();
    }

    fn write(&self, file: &File, bytes: &[u8]) -> Result<(), Errno> {
        let step = self.step();
        if step.is_err() && self.calls() == self.at {
            self.disk.write(file, &bytes[..bytes.len() / 2])?;
        }
        step?;
        self.disk.write(file, bytes)
    }
    fn sync(&self, file: &File) -> Result<(), Errno> {
        // Not done in tests: it costs time, and no power is cut.
        let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        let path = path.to_str().unwrap().rsplit_once("/spool").unwrap().1;
        let path = path.trim_start_matches('/');
        self.log(format!("sync {path}"));
        self.step()
    }
    fn sync_all(&self) -> Result<(), Errno> {
        self.log("sync all".to_owned());
        self.step()
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<(), Errno> {
        self.step()?;
        self.log(format!("rename {} {}", from.display(), to.display()));
        self.counted(self.disk.rename(from, to))
    }
    fn replace(&self, from: &Path, to: &Path) -> Result<(), Errno> {
        self.step()?;
        self.counted(self.disk.replace(from, to))
    }
    fn symlink(&self, target: &[u8], path: &Path) -> Result<(), Errno> {
        self.step()?;
        self.counted(self.disk.symlink(target, path))
    }
    fn remove(&self, path: &Path) -> Result<(), Errno> {
        self.step()?;
        self.log(format!("remove {}", path.display()));
        self.disk.remove(path)
    }
}
