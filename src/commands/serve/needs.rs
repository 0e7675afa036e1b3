//! Checks what `serve` needs around it. `serve` itself refuses to start at the first fault, and `check --config` lists
//! all of them. Changes nothing.
//!
//! A fetcher's program or tree is not needed to start; [`crate::commands::check`] checks those.

use std::ffi::OsStr;
use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::net::{self, AddressFamily, SocketType};
use rustix::process::{Resource, getrlimit};
use tracing::warn;

use crate::config::{DaemonFiles, FetcherTable};
use crate::exit::{ExitCode, Failure};
use crate::fetchers::RUNS_MAX;
use crate::lock;
use crate::socket;
use crate::stores;

/// Endings of databases, input directories and sockets.
const ENDINGS: [&[&str]; 3] = [&["db", "sqlite", "sqlite3"], &[], &["sock", "socket"]];
/// Descriptors for the database, its log, the locks, the watch and the runtime.
const OWN_DESCRIPTORS: u64 = 32;
/// Descriptors for a run of a fetcher: its output, its list, its lock, what its command gets.
const RUN_DESCRIPTORS: u64 = 8;
/// Descriptors for fetcher files, of which many can be read at once; a quarter where there are few.
const FILE_DESCRIPTORS: u64 = 1024;

/// What to do if a fetcher needs a network that the unit does not have.
pub(in crate::commands) const NETWORK_ADVICE: &str = "fetchers that use the network need the drop-in network.conf beside the unit (docs/configuration.md)";

/// What would keep a daemon with these files from starting; only files that are set are checked. Do not call it while
/// this process has the database open: it is opened as a plain file.
pub(in crate::commands) fn faults(files: &DaemonFiles<'_>) -> Vec<Failure> {
    let mut faults = Vec::new();
    if let Some(path) = files.database {
        faults.extend(no_parent(path, "database").or_else(|| no_database(path)));
    }
    if let Some(path) = files.socket {
        faults.extend(no_parent(path, "socket"));
        faults.extend(socket::check_free_or_ours(path).err());
    }
    if let (Some(database), Some(socket)) = (files.database, files.socket) {
        faults.extend(one_path(database, socket));
    }
    faults.extend(wrong_order(files));
    faults.extend(files.input.and_then(unmakeable));
    faults
}

/// Where this user cannot write; the daemon's user may be another one.
pub(in crate::commands) fn unwritable(files: &DaemonFiles<'_>) -> Vec<PathBuf> {
    let parents = [files.database, files.socket].into_iter().flatten().filter_map(Path::parent);
    let made = files.input.map(nearest);
    let is_closed =
        |path: &&Path| path.is_dir() && access(*path, Access::WRITE_OK | Access::EXEC_OK).is_err();
    let mut all: Vec<_> = parents.chain(made).filter(is_closed).map(Path::to_owned).collect();
    all.sort();
    all.dedup();
    all
}

/// A file has no directory to be in.
fn no_parent(file: &Path, what: &str) -> Option<Failure> {
    let parent = file.parent().unwrap_or(Path::new("/"));
    (!parent.is_dir()).then(|| {
        let text = format!(
            "the directory {} for the {what} does not exist: make it, owned by the daemon's user, or have its unit do so (StateDirectory=, RuntimeDirectory=)",
            parent.display()
        );
        Failure::new(ExitCode::CannotCreate, text)
    })
}

/// A file that is there, and no database of ours. One that this user may not read is the daemon's to open.
fn no_database(path: &Path) -> Option<Failure> {
    if path.is_dir() {
        let path = path.display();
        let text = format!(
            "the database {path} is a directory, not an SQLite database: name a file in it"
        );
        return Some(Failure::new(ExitCode::Configuration, text));
    }
    let is_hidden = path.exists() && access(path, Access::READ_OK).is_err();
    if is_hidden { None } else { stores::look(path).err() }
}

/// Each has a lock file beside it: with the same path for both the daemon would lock itself out.
fn one_path(database: &Path, socket: &Path) -> Option<Failure> {
    (lock::file_of(database) == lock::file_of(socket)).then(|| {
        let path = database.display();
        Failure::usage(format!("{path} cannot be both database and socket: give two paths"))
    })
}

/// A path that does not exist yet, but has the ending of another of the three, is probably in the wrong place.
fn wrong_order(files: &DaemonFiles<'_>) -> Option<Failure> {
    let named =
        [(files.database, "database"), (files.input, "input directory"), (files.socket, "socket")];
    named.into_iter().enumerate().find_map(|(at, (path, what))| {
        let path = path?;
        let ending = path.extension().and_then(OsStr::to_str).unwrap_or_default();
        let kind = ENDINGS.iter().position(|endings| endings.contains(&ending))?;
        (kind != at && !path.exists()).then(|| {
            let path = path.display();
            Failure::usage(format!(
                "the {what} would be {path}: is the order DATABASE INPUT_DIR SOCKET? If you mean it, give it another ending"
            ))
        })
    })
}

/// A directory that is not there and cannot be made.
fn unmakeable(input: &Path) -> Option<Failure> {
    let nearest = nearest(input);
    (!nearest.is_dir()).then(|| {
        let (input, nearest) = (input.display(), nearest.display());
        let text = format!("the input directory {input} cannot be made: {nearest} is no directory");
        Failure::new(ExitCode::CannotCreate, text)
    })
}

/// The path, or its nearest existing parent.
fn nearest(path: &Path) -> &Path {
    path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"))
}

/// As many connections as are wanted, or as leave descriptors for the queue and its files: a full
/// house must not keep the daemon from working.
pub(in crate::commands) fn connections_max(wanted: NonZeroU32, fetchers: usize) -> usize {
    let wanted = wanted.get() as usize;
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return wanted;
    };
    let (watches, runs) = (fetchers as u64, fetchers.min(RUNS_MAX) as u64);
    let others = OWN_DESCRIPTORS
        + FILE_DESCRIPTORS.min(limit / 4)
        + (watches + runs * RUN_DESCRIPTORS).min(limit / 4);
    let possible = usize::try_from(limit.saturating_sub(others)).unwrap_or(usize::MAX).max(1);
    if possible < wanted {
        warn!(
            wanted,
            possible, limit, "Fewer connections than set: raise the limit on open files."
        );
    }
    wanted.min(possible)
}

/// Warns at a start with fetchers in a systemd unit without a network, such as the shipped one: they would otherwise
/// only fail, each with its own message.
pub(super) fn warn_without_network(fetchers: &[FetcherTable]) {
    let is_in_unit = std::env::var_os("INVOCATION_ID").is_some();
    let interfaces = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let may_connect = || net::socket(AddressFamily::INET, SocketType::DGRAM, None).is_ok();
    if is_in_unit && !fetchers.is_empty() && (is_loopback_alone(&interfaces) || !may_connect()) {
        warn!(
            fetchers = fetchers.len(),
            advice = NETWORK_ADVICE,
            "The daemon's unit has no network."
        );
    }
}

/// Whether a list of interfaces, as the kernel prints it, has the loopback and no other. False for an empty one: it
/// could not be read.
fn is_loopback_alone(interfaces: &str) -> bool {
    let names = interfaces.lines().filter_map(|line| Some(line.split_once(':')?.0.trim()));
    let names: Vec<&str> = names.collect();
    names == ["lo"]
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "Inter-|   Receive      |  Transmit\n face |bytes    packets |bytes    packets\n";

    /// A namespace of its own has the loopback and nothing else.
    #[test]
    fn the_loopback_alone_is_no_network() {
        let interfaces = |names: &[&str]| {
            let lines = names.iter().map(|name| format!("{name:>6}: 0 0 0 0\n"));
            is_loopback_alone(&(HEAD.to_owned() + &lines.collect::<String>()))
        };
        assert!(interfaces(&["lo"]));
        assert!(!interfaces(&["lo", "eth0"]) && !interfaces(&["wlan0"]));
        assert!(!is_loopback_alone(""));
    }
}
