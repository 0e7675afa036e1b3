//! A process and its children, as the kernel has them: frozen, thawed and killed together.
//!
//! Each backend of a PostgreSQL server leads a process group of its own, so a signal to the server's group reaches none of them.

use std::fs;
use std::io;
use std::process::Child;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

/// Processes that are killed when they are dropped.
#[derive(Debug, Default)]
pub struct Children(pub Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The children of a process.
///
/// # Errors
/// When the kernel does not tell.
pub fn children(of: Pid) -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw)
        else {
            continue;
        };
        // One that has ended meanwhile is nobody's child.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        if parent.and_then(|parent| parent.parse().ok()) == Some(of.as_raw_nonzero().get()) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Sends a signal to a process and then to its children, until there are no new ones.
///
/// # Errors
/// When it may not be sent.
pub fn signal_all(parent: Pid, signal: Signal) -> io::Result<()> {
    send(parent, signal)?;
    let mut reached = Vec::new();
    loop {
        let mut new = children(parent)?;
        new.retain(|child| !reached.contains(child));
        if new.is_empty() {
            return Ok(());
        }
        new.iter().try_for_each(|child| send(*child, signal))?;
        reached.extend(new);
    }
}

/// Sends a signal; a process that is gone needs none.
///
/// # Errors
/// When it may not be sent.
pub fn send(pid: Pid, signal: Signal) -> io::Result<()> {
    match kill_process(pid, signal) {
        Err(Errno::SRCH) => Ok(()),
        sent => Ok(sent?),
    }
}
