//! `shiftboss ask`: sends request lines as a worker would, and prints the answers.
//!
//! For trying things out, and for scripts. It writes lines, closes its write side, and copies what comes back until the daemon
//! closes. Each line gets one line as its answer; a warning names the jobs that were handed out.

use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

use shiftboss_protocol::client::{Connection, within};
use shiftboss_protocol::wire::answers::Answer as Line;

use super::printing::offer;
use crate::client::no_answer;
use crate::exit::{ExitCode, Failure};
use crate::hint::hint;
use crate::text::{quoted, shown};

/// Bytes kept of a line: they contain a job's attempt and key.
const LINE_BEGIN_BYTES: usize = 8 * 1024;
/// Most jobs whose keys are named.
const JOBS_MAX: usize = 1_000;

pub fn run(socket: &Path, lines: &[String], timeout: Duration) -> Result<(), Failure> {
    let mut heard = Heard::default();
    let held = hold(socket, lines, timeout, &mut heard);
    heard.end_line();
    let speaks_2 = lines.first().is_some_and(|line| line.starts_with("HELLO "));
    // No request is answered by more than one.
    let read = if speaks_2 { Line::read } else { Line::read_classic };
    for line in heard.jobs.iter().take(lines.len()) {
        if let Some(Line::Job(job)) = read(line) {
            warn_of(&job.shown_key());
        }
    }
    held
}

/// What is kept of the answers, in bounded memory.
#[derive(Default)]
struct Heard {
    /// Line ends so far.
    answers: usize,
    /// How the line begins that is being read.
    line: Vec<u8>,
    /// How lines with jobs begin.
    jobs: Vec<Vec<u8>>,
}

impl Heard {
    fn add(&mut self, read: &[u8]) {
        for piece in read.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_BEGIN_BYTES.saturating_sub(self.line.len());
            self.line.extend(piece.iter().take(room));
            if piece.ends_with(b"\n") {
                self.answers += 1;
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if line.starts_with(b"JOB ") && self.jobs.len() < JOBS_MAX {
            self.jobs.push(line.trim_ascii_end().to_owned());
        }
    }
}

/// Who only wanted to see whether the daemon answers must know that a job was taken.
fn warn_of(key: &str) {
    // One that begins so would be taken for an option.
    let end = if key.starts_with('-') { "-- " } else { "" };
    let (name, requeue) = (shown(key), hint(format_args!("requeue {end}{}", quoted(key))));
    // There may be no reader.
    let _ = writeln!(
        io::stderr(),
        "shiftboss: this took the job of {name}: nobody else gets it until its DONE or the end of its \
         lease; {requeue} puts it back, a DONE takes the next job as well"
    );
}

/// One connection, from connecting to the daemon's close.
fn hold(
    socket: &Path,
    lines: &[String],
    timeout: Duration,
    heard: &mut Heard,
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
        heard.add(&read);
        // An answer that could not be printed was read from the socket all the same, so the daemon takes its job for
        // delivered. So this is a failure, unlike with a listing.
        if !offer(&read)? {
            return Err(Failure::silent(ExitCode::StoreIo));
        }
    }
    let answers = heard.answers;
    let requests = request.bytes().filter(|byte| *byte == b'\n').count();
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
