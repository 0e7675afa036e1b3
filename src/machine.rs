//! What this machine is called, so that no other one has the same name.
//!
//! For what several machines share: a daemon's claim to its name on a server, and the marks of moves. It changes nothing.

use std::fs;

/// Its id and its host name: containers of one machine differ by their host names, and machines of one name by their ids.
pub(crate) fn name() -> String {
    let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let host = rustix::system::uname();
    format!("{} {}", id.trim(), host.nodename().to_string_lossy())
}
