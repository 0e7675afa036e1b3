//! A blocking connection to the daemon's socket: lines out, lines in, each with a deadline.
//!
//! Used by [`Worker`](super::Worker) and by the program's own commands. It does not know what a line says.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

const CHUNK_BYTES: usize = 16 * 1024;
/// Longest line that is read: a status with 1,000 holders of keys of 4 KiB fits, escaped.
const LINE_MAX_BYTES: usize = 64 * 1024 * 1024;

/// When the time for something ends; `None`: never.
pub type Deadline = Option<Instant>;

pub fn within(timeout: Duration) -> Deadline {
    Instant::now().checked_add(timeout)
}

/// The time left until then, `None` if unlimited; an error if none is left.
fn left(deadline: Deadline) -> io::Result<Option<Duration>> {
    match deadline.map(|end| end.saturating_duration_since(Instant::now())) {
        Some(Duration::ZERO) => Err(ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

/// A connection to the daemon, which knows lines and not what they say.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    /// Bytes that were read and belong to no line yet.
    unread: Vec<u8>,
}

impl Connection {
    /// Connects. A full backlog makes it wait, which the socket's send timeout bounds.
    ///
    /// # Errors
    /// The system's error; `TimedOut` if the connection was not accepted in time.
    pub fn connect(socket: &Path, deadline: Deadline) -> io::Result<Self> {
        let address = SocketAddrUnix::new(socket)?;
        let stream =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&stream, Timeout::Send, left(deadline)?)?;
        connect(&stream, &address)?;
        Ok(Self { stream: stream.into(), unread: Vec::new() })
    }

    /// Sends everything, in one write if the socket takes it. If the daemon has closed, reading its answers shows that.
    pub fn send(&mut self, mut bytes: &[u8], deadline: Deadline) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(left(deadline)?)?;
            match self.stream.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_close(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub fn end_sending(&self) {
        // Fails only if the daemon has closed, which the next read shows.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Reads what has come; empty: the daemon has closed.
    pub fn read(&mut self, deadline: Deadline) -> io::Result<Vec<u8>> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            self.stream.set_read_timeout(left(deadline)?)?;
            match self.stream.read(&mut chunk) {
                Ok(read) => {
                    chunk.truncate(read);
                    return Ok(chunk);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_close(&error) => return Ok(Vec::new()),
                Err(error) if is_timeout(&error) => return Err(ErrorKind::TimedOut.into()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads a line, and returns it without its end; `None`: the daemon has closed.
    ///
    /// # Errors
    /// The system's error, `TimedOut`, `UnexpectedEof` if it closed within a line, or `InvalidData` if a line is too
    /// long or not UTF-8.
    pub fn line(&mut self, deadline: Deadline) -> io::Result<Option<String>> {
        let line = self.line_bytes(deadline)?.map(String::from_utf8);
        line.transpose().map_err(|_| ErrorKind::InvalidData.into())
    }

    /// As [`Connection::line`], with any bytes.
    pub fn line_bytes(&mut self, deadline: Deadline) -> io::Result<Option<Vec<u8>>> {
        let mut searched = 0;
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.unread[searched..]) {
                let mut line: Vec<u8> = self.unread.drain(..=searched + end).collect();
                line.pop();
                self.unread.shrink_to(CHUNK_BYTES);
                return Ok(Some(line));
            }
            searched = self.unread.len();
            if searched > LINE_MAX_BYTES {
                return Err(ErrorKind::InvalidData.into());
            }
            let read = self.read(deadline)?;
            match read.is_empty() {
                false => self.unread.extend_from_slice(&read),
                true if searched > 0 => return Err(ErrorKind::UnexpectedEof.into()),
                true => return Ok(None),
            }
        }
    }
}

/// Whether an error means that the peer has closed: so it does if it left our bytes unread.
pub fn is_close(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

pub fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}
