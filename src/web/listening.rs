//! What the page listens on: addresses, sockets, or what the init system listens on for it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rustix::net::sockopt::set_tcp_user_timeout;

use crate::exit::{ExitCode, Failure};
use crate::socket::{self, listen_at, require_listening};
use crate::text::shown;

/// Who may connect to a socket that it makes: its user and group, as a reverse proxy may be.
const SOCKET_MODE: u32 = 0o660;

/// Milliseconds after which a connection is closed whose client takes nothing of an answer.
const UNREAD_MAX_MS: u32 = 15_000;
/// Connections that wait to be accepted: as many as the system allows.
const PENDING_MAX: i32 = i32::MAX;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    Address(SocketAddr),
    Unix(PathBuf),
}

pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Where it listens, as `--listen` takes it or a browser does.
    pub(super) fn address(&self) -> io::Result<String> {
        Ok(match self {
            Self::Tcp(tcp) => format!("http://{}/", tcp.local_addr()?),
            Self::Unix(unix) => match unix.local_addr()?.as_pathname() {
                Some(path) => format!("unix:{}", shown(&path.to_string_lossy())),
                None => "a Unix socket without a path".to_owned(),
            },
        })
    }
}

/// Opens all; or, where the init system listens on some (LISTEN_FDS), takes those in their place.
pub(super) fn open(listen: Vec<Listen>) -> Result<Vec<Listener>, Failure> {
    let inherited = inherited().map_err(|error| cannot("the sockets of LISTEN_FDS", &error))?;
    let listeners = match inherited.is_empty() {
        true => listen.into_iter().map(bind).collect::<Result<_, _>>()?,
        false => inherited,
    };
    for listener in &listeners {
        if let Listener::Tcp(tcp) = listener {
            // Connections inherit it.
            let set = set_tcp_user_timeout(tcp, UNREAD_MAX_MS);
            set.map_err(|error| cannot("what was opened", &error.into()))?;
        }
    }
    Ok(listeners)
}

fn inherited() -> io::Result<Vec<Listener>> {
    let mut given = socket::inherited()?;
    let mut listeners = Vec::new();
    for at in 0..given.len() {
        // Asked for what it is not, it stays where it is.
        if let Ok(Some(tcp)) = given.take_tcp_listener(at) {
            require_listening(&tcp)?;
            listeners.push(Listener::Tcp(tcp));
        } else if let Some(unix) = given.take_unix_listener(at)? {
            require_listening(&unix)?;
            listeners.push(Listener::Unix(unix));
        }
    }
    Ok(listeners)
}

fn bind(listen: Listen) -> Result<Listener, Failure> {
    match listen {
        Listen::Unix(path) => listen_at(&path, SOCKET_MODE).map(Listener::Unix),
        Listen::Address(address) => {
            bind_tcp(address).map_err(|error| cannot(&address.to_string(), &error))
        }
    }
}

fn bind_tcp(address: SocketAddr) -> io::Result<Listener> {
    let tcp = TcpListener::bind(address)?;
    // The standard library's 128 that wait to be accepted are full at once where many come: whoever is behind them tries again after
    // a second, two, four.
    rustix::net::listen(&tcp, PENDING_MAX)?;
    Ok(Listener::Tcp(tcp))
}

pub(super) fn cannot(place: &str, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::AddrInUse => ExitCode::AlreadyRunning,
        _ => ExitCode::CannotCreate,
    };
    Failure::new(code, format!("cannot listen on {place}: {error}"))
}
