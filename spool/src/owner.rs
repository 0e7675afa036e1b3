//! Which process has something checked out, and whether it is still alive.
//!
//! Each process that claims writes one record of itself and touches it from time to time. A process
//! of the same kernel and the same pid name space is looked up by pid and start time; any other by
//! the age of its last touch, since a pid says nothing there.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::error::{Result, io};
use super::layer::{How, Layer};
use super::layout::OWNERS;
use super::wait::Stop;

pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);
/// An owner on another host that has not touched its record for this long is dead.
pub(crate) const LEASE: Duration = Duration::from_secs(60);
const RECORD_BYTES_MAX: u64 = 4096;

/// Identifies a process, so that another can tell whether it is alive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub host: String,
    /// The kernel's id of its last start.
    pub boot_id: String,
    /// The pid name space, as the kernel names it.
    pub pid_namespace: String,
    pub pid: u32,
    /// When the process started, in clock ticks since the start of the kernel.
    pub started: u64,
}

/// What `/proc/PID/stat` says: state, number of threads, start time.
fn process(pid: u32) -> Option<(char, u64, u64)> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name is in brackets and may hold anything.
    let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
    let state = fields.first()?.chars().next()?;
    Some((state, fields.get(17)?.parse().ok()?, fields.get(19)?.parse().ok()?))
}

impl Identity {
    pub(crate) fn this_process() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let pid = std::process::id();
        Self {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            boot_id: read("/proc/sys/kernel/random/boot_id"),
            pid_namespace: namespace.to_string_lossy().into_owned(),
            pid,
            started: process(pid).map_or(0, |(_, _, started)| started),
        }
    }

    /// Whether this process lives, seen from `me`; `None` if it runs under another kernel or in another name space.
    pub(crate) fn is_alive(&self, me: &Self) -> Option<bool> {
        let near = !me.boot_id.is_empty()
            && (&self.boot_id, &self.pid_namespace) == (&me.boot_id, &me.pid_namespace);
        near.then(|| match process(self.pid) {
            // It has ended, but was not reaped yet.
            Some(('Z' | 'X', 0 | 1, _)) | None => false,
            Some((_, _, started)) => started == self.started,
        })
    }
}

/// This process's record, while it may claim, and the thread that touches it. Removed when dropped.
#[derive(Debug)]
pub(crate) struct Owner {
    pub record: Arc<Record>,
    stop: Stop,
    heart: Option<JoinHandle<()>>,
}

#[derive(Debug)]
pub(crate) struct Record {
    layer: Arc<dyn Layer>,
    path: PathBuf,
    text: Vec<u8>,
}

impl Record {
    fn write(&self) -> Result<()> {
        self.layer.write_file(&self.path, How::Over, &self.text).map(drop)
    }

    /// Writes it again if it is gone: another process took this one for dead, or it was removed by hand. What this
    /// process had checked out is then given back, or will be; what it claims from now on is its own.
    pub fn keep(&self) -> Result<()> {
        if self.layer.exists(&self.path)? {
            return Ok(());
        }
        warn!(record = %self.path.display(), "This process was taken for dead: what it had checked out may be given back.");
        self.write()
    }

    fn beat(&self) {
        let beaten = match self.layer.touch(&self.path) {
            Err(Errno::NOENT) => self.keep(),
            touched => touched.map_err(io("touch", &self.path)),
        };
        if let Err(error) = beaten {
            let path = self.path.display();
            warn!(%error, %path, "A heartbeat failed: other hosts may take this one for dead.");
        }
    }
}

pub(crate) fn path_of(id: &str) -> PathBuf {
    PathBuf::from(OWNERS).join(id)
}

impl Owner {
    /// Writes the record and starts touching it at this interval.
    pub fn register(
        layer: &Arc<dyn Layer>,
        id: &str,
        identity: &Identity,
        every: Duration,
    ) -> Result<Self> {
        let text = serde_json::to_vec(identity).unwrap_or_default();
        let record = Arc::new(Record { layer: layer.clone(), path: path_of(id), text });
        let stop = Stop::new().map_err(io("start the heartbeat for", &record.path))?;
        let mut owner = Self { record: record.clone(), stop: stop.clone(), heart: None };
        record.write()?;
        let beats = move || {
            while !stop.wait(every) {
                record.beat();
            }
        };
        let heart = thread::Builder::new().name("spool-heart".into()).spawn(beats);
        owner.heart = Some(heart.map_err(io("start the heartbeat for", &owner.record.path))?);
        Ok(owner)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.stop.stop();
        // The panic hook has reported a panic there.
        let _ = self.heart.take().map(JoinHandle::join);
        // If the record stays, it is that of a dead process, and reclaim removes it.
        let _ = self.record.layer.remove(&self.record.path);
    }
}

/// Reads an owner's record; none if it is missing or invalid.
pub(crate) fn read(layer: &dyn Layer, id: &str) -> Result<Option<Identity>> {
    let path = path_of(id);
    match layer.read_file(&path, RECORD_BYTES_MAX) {
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(Errno::NOENT | Errno::FBIG) => Ok(None),
        Err(errno) => Err(io("read", &path)(errno)),
    }
}
