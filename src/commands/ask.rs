//! `shiftboss ask`: sends request lines as a worker would, and prints the answers.
//!
//! For trying things out, and for scripts. Of the protocol it knows only that each line is answered
//! by one: it writes lines, closes its write side, and copies what comes back until the daemon
//! closes.

use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

use crate::client::{self, Client, Deadline};
use crate::exit::{self, ExitCode, Failure};

/// Asks on `socket`, and prints the answers.
///
/// # Errors
/// `Unavailable` when nobody answers, or not all within `timeout`; `Usage` when socket or
/// timeout cannot be used at all.
pub fn run(socket: &Path, lines: &[String], timeout: Duration) -> Result<(), Failure> {
    client::check_path(socket)?;
    let deadline = Deadline::after(timeout)?;
    match hold(socket, lines, deadline) {
        Ok(()) => Ok(()),
        Err(Trouble::Socket(error)) => Err(client::no_answer(socket, timeout, &error)),
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
fn hold(socket: &Path, lines: &[String], deadline: Deadline) -> Result<(), Trouble> {
    let mut client = Client::connect(socket, deadline)?;
    let request: Vec<u8> =
        lines.iter().flat_map(|line| [line.as_bytes(), b"\n"].concat()).collect();
    client.send(&request, deadline)?;
    client.end_sending();
    let (answers, requests) = (copy(&mut client, deadline)?, line_ends(&request));
    if answers >= requests {
        return Ok(());
    }
    let why = match answers {
        _ if requests == 1 => "the daemon rejected the line".to_owned(),
        _ => format!("the daemon rejected line {} of {requests}", answers + 1),
    };
    Err(io::Error::new(ErrorKind::UnexpectedEof, why).into())
}

/// Copies answers to standard output until the daemon closes. Returns how many lines came.
fn copy(client: &mut Client, deadline: Deadline) -> Result<usize, Trouble> {
    let mut out = io::stdout().lock();
    let mut copied = 0;
    loop {
        let read = client.read(deadline)?;
        if read.is_empty() {
            return Ok(copied);
        }
        out.write_all(&read).and_then(|()| out.flush()).map_err(Trouble::Output)?;
        copied += line_ends(&read);
    }
}

fn line_ends(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}
