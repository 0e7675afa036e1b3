//! What `serve` needs around it, looked at as it is now, for `check --config`. Changes nothing.
//!
//! A program or a tree of a fetcher's is not needed to start; those are [`super::config`]'s.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use shiftboss_actors::store::ReadError;

use crate::cli::{CLASSIC_SPOOL, ServeOptions};
use crate::commands::serve::{no_parent, one_path};
use crate::socket;
use crate::stores::sqlite::open_to_read;

/// What would keep `serve` from starting, a sentence each. What the file leaves to the command line is not looked at.
pub(super) fn faults(said: &ServeOptions) -> Vec<String> {
    let mut faults = Vec::new();
    if let Some(path) = &said.database {
        faults.extend(no_parent(path, "database").or_else(|| no_database(path)));
    }
    if let Some(path) = &said.socket {
        faults.extend(socket::check_free_or_ours(path).err().map(|error| error.to_string()));
        faults.extend(no_parent(path, "socket"));
    }
    if let (Some(database), Some(socket)) = (&said.database, &said.socket) {
        faults.extend(one_path(database, socket));
    }
    let groups =
        [(&said.socket_group, "--socket-group"), (&said.operator_group, "--operator-group")];
    let groups = groups.into_iter().filter_map(|(name, setting)| {
        socket::group_id(name.as_deref()?, setting).err().map(|error| error.to_string())
    });
    faults.extend(groups);
    if said.classic == Some(true) && said.spool.is_some() {
        faults.push(CLASSIC_SPOOL.to_owned());
    }
    let made = [(&said.input_dir, "input directory"), (&said.spool, "spool")];
    let made = made.into_iter().filter_map(|(path, what)| Some((path.as_deref()?, what)));
    faults.extend(made.filter_map(|(path, what)| unmakeable(path, what)));
    faults
}

/// Where this user cannot write; the daemon's user may be another one.
pub(super) fn unwritable(said: &ServeOptions) -> Vec<PathBuf> {
    let parent =
        |path: &Option<PathBuf>| path.as_deref().and_then(Path::parent).map(Path::to_owned);
    let made = [&said.input_dir, &said.spool].map(|path| path.as_deref().map(nearest));
    let mut all: Vec<PathBuf> = [parent(&said.database), parent(&said.socket)]
        .into_iter()
        .flatten()
        .chain(made.into_iter().flatten().map(Path::to_owned))
        .filter(|path| path.is_dir() && access(path, Access::WRITE_OK | Access::EXEC_OK).is_err())
        .collect();
    all.sort();
    all.dedup();
    all
}

/// A file that is there, and no database of ours.
fn no_database(path: &Path) -> Option<String> {
    if path.is_dir() {
        return Some(format!("the database {} is a directory: name a file in it", path.display()));
    }
    match open_to_read(path) {
        Err(ReadError::Foreign(text) | ReadError::Corrupt(text)) => Some(text),
        _ => None,
    }
}

/// A directory that is not there and cannot be made.
fn unmakeable(path: &Path, what: &str) -> Option<String> {
    let nearest = nearest(path);
    (!nearest.is_dir()).then(|| {
        let (path, nearest) = (path.display(), nearest.display());
        format!("the {what} {path} cannot be made: {nearest} is no directory")
    })
}

/// The path, or what is there of the way to it.
fn nearest(path: &Path) -> &Path {
    path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"))
}
