//! `shiftboss ask`: sends request lines as a worker would, and prints the answers.
//!
//! For trying things out, and for scripts. Of the protocol it knows that each line is answered by one,
//! and how a job looks, so that nobody takes one unawares: it writes lines, closes its write side, and copies what comes back until the daemon
//! closes.

use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

use shiftboss_protocol::client::{Connection, within};

use super::printing::offer;
use crate::client::no_answer;
use crate::exit::{ExitCode, Failure};
use crate::text::{quoted, shown};

pub fn run(socket: &Path, lines: &[String], timeout: Duration) -> Result<(), Failure> {
    let mut heard = Vec::new();
    let held = hold(socket, lines, timeout, &mut heard);
    let speaks_2 = lines.first().is_some_and(|line| line.starts_with("HELLO "));
    jobs(&String::from_utf8_lossy(&heard), speaks_2).for_each(|key| warn_of(key, socket));
    held
}

/// The keys of the jobs among the answers; in protocol 2 an attempt stands before the key.
fn jobs(heard: &str, speaks_2: bool) -> impl Iterator<Item = &str> {
    let jobs = heard.lines().filter_map(|line| line.strip_prefix("JOB "));
    jobs.filter_map(move |job| job.split(' ').nth(usize::from(speaks_2)))
}

/// Who only wanted to see whether the daemon answers must know that a job was taken.
fn warn_of(key: &str, socket: &Path) {
    // One that begins so would be taken for an option.
    let end = if key.starts_with('-') { "-- " } else { "" };
    let (name, key, socket) = (shown(key), quoted(key), quoted(&socket.to_string_lossy()));
    // Nobody may be reading.
    let _ = writeln!(
        io::stderr(),
        "shiftboss: this took the job of {name}: nobody else gets it until its DONE or the end of its \
         lease; `shiftboss requeue {end}{socket} {key}` puts it back, a DONE takes the next job as well"
    );
}

/// One connection, from connecting to the daemon's close.
fn hold(
    socket: &Path,
    lines: &[String],
    timeout: Duration,
    heard: &mut Vec<u8>,
) -> Result<(), Failure> {
    let deadline = within(timeout);
    let failed = |error: io::Error| no_answer(socket, timeout, &error);
    let mut connection = Connection::connect(socket, deadline).map_err(failed)?;
    let request: String = lines.iter().map(|line| format!("{line}\n")).collect();
    connection.send(request.as_bytes(), deadline).map_err(failed)?;
    connection.end_sending();
    loop {
        let read = connection.read(deadline).map_err(failed)?;
        if read.is_empty() {
            break;
        }
        heard.extend_from_slice(&read);
        // An answer that nobody saw was read from the socket all the same: the daemon takes its job for delivered. So
        // this is a failure even where a listing would end well.
        if !offer(&read)? {
            return Err(Failure::silent(ExitCode::StoreIo));
        }
    }
    let (answers, requests) = (line_ends(heard), line_ends(request.as_bytes()));
    if answers >= requests {
        return Ok(());
    }
    // The line may be wrong, or the daemon, or what a relay needs for an answer, away.
    let why = match requests {
        1 => "it closed the connection".to_owned(),
        _ => format!("it closed the connection at line {} of {requests}", answers + 1),
    };
    Err(failed(io::Error::new(ErrorKind::UnexpectedEof, why)))
}

fn line_ends(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}
