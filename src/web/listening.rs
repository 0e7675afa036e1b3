//! What the page listens on: addresses, sockets, or what the init system listens on for it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use crate::exit::{ExitCode, Failure};
use crate::socket::{self, listen_at};

/// Who may connect to a socket that it makes: its user and group, as a reverse proxy may be.
const SOCKET_MODE: u32 = 0o660;

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    Address(SocketAddr),
    Unix(PathBuf),
}

/// One that listens.
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Opens all; or, where the init system listens on some (LISTEN_FDS), takes those in their place.
pub(super) fn open(listen: Vec<Listen>) -> Result<Vec<Listener>, Failure> {
    let inherited = inherited().map_err(|error| cannot("the sockets of LISTEN_FDS", &error))?;
    if !inherited.is_empty() {
        return Ok(inherited);
    }
    listen.into_iter().map(bind).collect()
}

fn inherited() -> io::Result<Vec<Listener>> {
    let mut given = socket::inherited()?;
    let mut listeners = Vec::new();
    for at in 0..given.len() {
        // Asked for what it is not, it stays where it is.
        if let Ok(Some(tcp)) = given.take_tcp_listener(at) {
            listeners.push(Listener::Tcp(tcp));
        } else {
            listeners.extend(given.take_unix_listener(at)?.map(Listener::Unix));
        }
    }
    Ok(listeners)
}

fn bind(listen: Listen) -> Result<Listener, Failure> {
    match listen {
        Listen::Unix(path) => listen_at(&path, SOCKET_MODE).map(Listener::Unix),
        Listen::Address(address) => TcpListener::bind(address)
            .map(Listener::Tcp)
            .map_err(|error| cannot(&address.to_string(), &error)),
    }
}

pub(super) fn cannot(place: &str, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::AddrInUse => ExitCode::AlreadyRunning,
        _ => ExitCode::CannotCreate,
    };
    Failure::new(code, format!("cannot listen on {place}: {error}"))
}
