//! The workers' socket: inherited from the init system, or bound; found stale or alive; made anew.
//!
//! `serve` makes a [`SocketFile`]; the ListenerActor opens it. It accepts nothing itself. The socket's lock file is
//! held by then, so a socket without an answer is abandoned.

use std::env;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, lchown};
use std::os::unix::net::{UnixListener as StdListener, UnixStream};
use std::path::{Path, PathBuf};

use listenfd::ListenFd;
use rustix::fs::Mode;
use shiftboss_actors::listener::SocketBinder;
use tokio::net::UnixListener;

use crate::exit::{ExitCode, Failure};

/// Longest path of a Unix socket in bytes (`sun_path` less its final zero).
const PATH_MAX_BYTES: usize = 107;

/// How to make the socket's file.
#[derive(Debug, Clone)]
pub struct SocketSettings {
    pub path: PathBuf,
    pub mode: u32,
    /// Its group, by name or number; `None`: the process's own.
    pub group: Option<String>,
}

/// Limit on the descriptors that an init system names: a list of all of them takes memory.
const LISTEN_FDS_MAX: i32 = 65_536;

/// The socket, from before it is bound to after it is gone.
pub struct SocketFile {
    path: PathBuf,
    mode: u32,
    group: Option<u32>,
    inherited: Option<StdListener>,
    /// Device and inode of the file that was bound; `None` for an inherited socket.
    bound: Option<(u64, u64)>,
}

impl SocketFile {
    /// Looks at what can be known to be wrong before the socket's lock is had. Makes nothing.
    pub fn prepare(settings: &SocketSettings) -> Result<Self, Failure> {
        let SocketSettings { path, mode, group } = settings.clone();
        let group = group.map(|name| group_id(&name, "--socket-group")).transpose()?;
        // The socket that the init system listens on for us (LISTEN_FDS), if there is one.
        let given = inherited().and_then(|mut given| given.take_unix_listener(0));
        let inherited = given.and_then(|inherited| {
            inherited.as_ref().map_or(Ok(()), require_listening)?;
            Ok(inherited)
        });
        let inherited =
            inherited.map_err(|error| cannot("use the socket of LISTEN_FDS for", &path, &error))?;
        if inherited.is_none() {
            is_socket(&path)?;
        }
        Ok(Self { path, mode, group, inherited, bound: None })
    }

    /// Checks that the socket is free. The caller must hold its lock.
    pub fn require_free(&self) -> Result<(), Failure> {
        if self.inherited.is_some() { Ok(()) } else { check_free(&self.path) }
    }

    fn bind(&mut self) -> io::Result<UnixListener> {
        check_free(&self.path).map_err(|failure| io::Error::other(failure.to_string()))?;
        if self.path.symlink_metadata().is_ok() {
            std::fs::remove_file(&self.path)?;
        }
        let listener = bind_with_mode(&self.path, self.mode)?;
        self.bound = identity(&self.path);
        if let Some(group) = self.group {
            lchown(&self.path, None, Some(group)).map_err(|error| {
                let path = self.path.display();
                let text = format!(
                    "give {path} to group {group}: {error}; the daemon's user must be a member of it"
                );
                io::Error::new(error.kind(), text)
            })?;
        }
        for_tokio(listener)
    }
}

/// The sockets that an init system listens on for us (LISTEN_FDS).
pub fn inherited() -> io::Result<ListenFd> {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<i32>().ok());
    let first = number("LISTEN_FDS_FIRST_FD").unwrap_or(0);
    let last = first.saturating_add(number("LISTEN_FDS").unwrap_or(0));
    if last > LISTEN_FDS_MAX {
        let text = format!("LISTEN_FDS names descriptors up to {last}: it is a mistake");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(ListenFd::from_env())
}

fn for_tokio(listener: StdListener) -> io::Result<UnixListener> {
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

impl SocketBinder for SocketFile {
    fn open(&mut self) -> io::Result<UnixListener> {
        match self.inherited.take() {
            Some(listener) => for_tokio(listener),
            None => self.bind(),
        }
    }

    fn rebind(&mut self) -> io::Result<Option<UnixListener>> {
        if self.bound.is_none() || identity(&self.path) == self.bound {
            return Ok(None);
        }
        self.bind().map(Some)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.bound.is_some() && identity(&self.path) == self.bound {
            // It may just be gone; nothing else can be done about it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn cannot(doing: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::new(ExitCode::CannotCreate, format!("cannot {doing} {}: {error}", path.display()))
}

/// Refuses a path that does not fit into `sun_path`.
pub fn check_length(path: &Path, code: ExitCode) -> Result<(), Failure> {
    let length = path.as_os_str().len();
    if length <= PATH_MAX_BYTES {
        return Ok(());
    }
    let path = path.display();
    let text = format!(
        "the socket path {path} has {length} bytes; the system's limit is {PATH_MAX_BYTES}: choose a shorter one"
    );
    Err(Failure::new(code, text))
}

/// Whether there is a socket at the path; anything else there is refused.
fn is_socket(path: &Path) -> Result<bool, Failure> {
    check_length(path, ExitCode::Configuration)?;
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => Ok(true),
        Ok(_) => {
            let path = path.display();
            let text =
                format!("{path} exists and is not a socket: remove it, or choose another path");
            Err(Failure::new(ExitCode::CannotCreate, text))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(cannot("look at", path, &error)),
    }
}

/// Checks that the path can be bound; a socket without an answer may be replaced.
fn check_free(path: &Path) -> Result<(), Failure> {
    if !is_socket(path)? {
        return Ok(());
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => Err(cannot("find out whether anybody listens on", path, &error)),
        Ok(_) => {
            let path = path.display();
            let text = format!(
                "another program is listening on {path}: stop it first, or choose another path"
            );
            Err(Failure::new(ExitCode::AlreadyRunning, text))
        }
    }
}

/// Refuses a socket from the init system that takes no connections.
pub fn require_listening(socket: &impl AsFd) -> io::Result<()> {
    if rustix::net::sockopt::socket_acceptconn(socket)? {
        return Ok(());
    }
    let text = "it does not listen, as one that a unit with Accept=yes passes: set Accept=no in the socket's unit";
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// A new socket, in place of an abandoned one. It stays when its process ends.
pub fn listen_at(path: &Path, mode: u32) -> Result<StdListener, Failure> {
    check_free(path)?;
    if path.symlink_metadata().is_ok() {
        std::fs::remove_file(path).map_err(|error| cannot("replace", path, &error))?;
    }
    bind_with_mode(path, mode).map_err(|error| cannot("listen on", path, &error))
}

/// As a start looks at the path, whether or not a daemon listens there now, and where this user may look.
pub fn check_free_or_ours(path: &Path) -> Result<(), Failure> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => is_socket(path).map(drop),
        Err(_) => check_length(path, ExitCode::Configuration),
    }
}

/// Binds with the mode from the first moment on: no one can connect in between.
fn bind_with_mode(path: &Path, mode: u32) -> io::Result<StdListener> {
    let before = rustix::process::umask(Mode::from_raw_mode(0o777 & !mode));
    let bound = StdListener::bind(path);
    rustix::process::umask(before);
    bound
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// The number of a group that `setting` names, by name or number.
pub fn group_id(name: &str, setting: &str) -> Result<u32, Failure> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    match nix::unistd::Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        _ => {
            let text =
                format!("there is no group {name:?} for {setting}: create it, or name another");
            Err(Failure::new(ExitCode::Configuration, text))
        }
    }
}
