//! `shiftboss ask`: sends request lines as a worker would, and prints the answers.
//!
//! For trying things out, and for scripts. Of the protocol it knows only that each line is answered
//! by one: it writes lines, closes its write side, and copies what comes back until the daemon
//! closes.

use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::exit::{self, ExitCode, Failure};
use crate::socket::{PATH_MAX_BYTES, SocketError};

/// How much of an answer is copied at a time.
const CHUNK_BYTES: usize = 16 * 1024;

/// Asks on `socket`, and prints the answers.
///
/// # Errors
/// `Unavailable` when nobody answers, or not all within `timeout`; `Usage` when socket or
/// timeout cannot be used at all.
pub fn run(socket: &Path, lines: &[String], timeout: Duration) -> Result<(), Failure> {
    let length = socket.as_os_str().len();
    if length > PATH_MAX_BYTES {
        let error = SocketError::TooLong { path: socket.to_owned(), length };
        return Err(Failure::new(ExitCode::Usage, error.to_string()));
    }
    let end = Instant::now().checked_add(timeout).filter(|_| !timeout.is_zero());
    let Some(end) = end else {
        let timeout = humantime::format_duration(timeout);
        let message = format!("--timeout {timeout} cannot be used: give a time such as 5s");
        return Err(Failure::new(ExitCode::Usage, message));
    };
    let conversation = Conversation { socket, timeout, deadline: Deadline { end } };
    match conversation.hold(lines) {
        Ok(()) => Ok(()),
        Err(Trouble::Socket(error)) => Err(conversation.no_answer(&error)),
        Err(Trouble::Output(error)) => Err(unprinted(&error)),
    }
}

/// An answer that nobody saw was read from the socket all the same: the daemon takes its job for
/// delivered. So this is a failure even where a listing would end well.
fn unprinted(error: &io::Error) -> Failure {
    match exit::output_failed(error) {
        Ok(()) => Failure::silent(ExitCode::StoreIo),
        Err(failure) => failure,
    }
}

/// Which side of the copying failed.
enum Trouble {
    Socket(io::Error),
    Output(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

/// One connection, from connecting to the daemon's close.
struct Conversation<'a> {
    socket: &'a Path,
    timeout: Duration,
    deadline: Deadline,
}

impl Conversation<'_> {
    fn hold(&self, lines: &[String]) -> Result<(), Trouble> {
        let mut stream = self.connect()?;
        match self.send(&mut stream, &request(lines)) {
            // Closed on us while we wrote: what was answered before that is there to be read.
            Err(error) if is_close(&error) => {}
            sent => sent?,
        }
        let (answers, requests) = (self.copy(&mut stream)?, request(lines).lines().count());
        if answers < requests {
            let why = match answers {
                0 => "the daemon closed the connection without an answer".to_owned(),
                _ => format!(
                    "the daemon closed the connection after {answers} of {requests} answers"
                ),
            };
            return Err(io::Error::new(ErrorKind::UnexpectedEof, why).into());
        }
        Ok(())
    }

    /// Connects. A full backlog makes it wait, which the socket's send timeout bounds.
    fn connect(&self) -> io::Result<UnixStream> {
        let address = SocketAddrUnix::new(self.socket)?;
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&socket, Timeout::Send, Some(self.deadline.left()?))?;
        connect(&socket, &address)?;
        Ok(socket.into())
    }

    /// Sends everything, in one write if the socket takes it, and closes the write side.
    fn send(&self, stream: &mut UnixStream, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            stream.set_write_timeout(Some(self.deadline.left()?))?;
            match stream.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        stream.shutdown(Shutdown::Write)
    }

    /// Copies answers to standard output until the daemon closes. Returns how many lines came.
    fn copy(&self, stream: &mut UnixStream) -> Result<usize, Trouble> {
        let mut out = io::stdout().lock();
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut copied = 0;
        loop {
            stream.set_read_timeout(Some(self.deadline.left()?))?;
            match stream.read(&mut chunk) {
                Ok(0) => return Ok(copied),
                Ok(read) => {
                    let written = out.write_all(&chunk[..read]).and_then(|()| out.flush());
                    written.map_err(Trouble::Output)?;
                    copied += chunk[..read].iter().filter(|byte| **byte == b'\n').count();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_close(&error) => return Ok(copied),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Tells why there is no answer, and what may help.
    fn no_answer(&self, error: &io::Error) -> Failure {
        let doing = format!("no answer from {}", self.socket.display());
        let (why, hint) = match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => (
                format!("waited {}", humantime::format_duration(self.timeout)),
                "see the daemon's log, or give a longer --timeout",
            ),
            ErrorKind::UnexpectedEof => (error.to_string(), "see its log for what it minds"),
            ErrorKind::PermissionDenied => (
                error.to_string(),
                "the socket is for the daemon's user alone unless `serve` has --socket-mode or --socket-group",
            ),
            _ => (error.to_string(), "is `shiftboss serve` running with this socket?"),
        };
        Failure::new(ExitCode::Unavailable, format!("{doing}: {why}; {hint}"))
    }
}

/// All lines, each with its end.
fn request(lines: &[String]) -> Vec<u8> {
    lines.iter().flat_map(|line| [line.as_bytes(), b"\n"].concat()).collect()
}

/// Whether the peer's close shows as an error: it does when it left bytes of ours unread.
fn is_close(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

/// The end of the time for the whole conversation.
struct Deadline {
    end: Instant,
}

impl Deadline {
    /// What is left of it; an error when that is nothing.
    fn left(&self) -> io::Result<Duration> {
        match self.end.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => Ok(left),
            _ => Err(ErrorKind::TimedOut.into()),
        }
    }
}
