//! What the commands that talk to the daemon say when it does not answer. The connection itself is
//! [`shiftboss_protocol::client`]'s.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use shiftboss_protocol::client::{Deadline, is_timeout};

use crate::exit::{ExitCode, Failure};
use crate::socket::check_length;

/// The end of the time that `--timeout` gives, from now on.
pub fn deadline(timeout: Duration) -> Result<Deadline, Failure> {
    Deadline::after(timeout).ok_or_else(|| {
        let timeout = humantime::format_duration(timeout);
        let message = format!("--timeout {timeout} cannot be used: give a time such as 5s");
        Failure::new(ExitCode::Usage, message)
    })
}

/// Refuses a path that no socket can have.
pub fn check_path(socket: &Path) -> Result<(), Failure> {
    check_length(socket, ExitCode::Usage)
}

/// Why there is no answer after `timeout`, and what may help.
pub fn no_answer(socket: &Path, timeout: Duration, error: &io::Error) -> Failure {
    let code = match error.kind() {
        ErrorKind::PermissionDenied => ExitCode::Denied,
        _ => ExitCode::Unavailable,
    };
    let (why, hint) = match error.kind() {
        _ if is_timeout(error) => (
            format!("waited {}", humantime::format_duration(timeout)),
            "see the daemon's log, or give a longer --timeout",
        ),
        ErrorKind::UnexpectedEof => (error.to_string(), "its log says why"),
        ErrorKind::PermissionDenied => (
            error.to_string(),
            "the socket is for the daemon's user alone unless `serve` has --socket-mode or --socket-group",
        ),
        _ => (error.to_string(), "is `shiftboss serve` running with this socket?"),
    };
    let message = format!("no answer from {}: {why}; {hint}", socket.display());
    Failure::new(code, message)
}
