//! `shiftboss add` and `shiftboss cancel`: single tasks, by a running daemon.
//!
//! Tasks to add are read and checked here first, by the rules of lists, so that a faulty line is named with its number.
//! Many lines are sent in bounded batches, the next one only when all of the last are answered.

use std::io::{self, Read, Write};
use std::path::Path;

use serde_json::json;
use shiftboss_protocol::fetcher_file::{LINE_MAX_BYTES, Line, LineReader};
use shiftboss_protocol::model::{Key, Row};
use shiftboss_protocol::task_line::single_task;
use shiftboss_protocol::verbs::{self, Cancel, Name};
use shiftboss_protocol::wire::session::Addition;

use super::show;
use crate::cli::{Add, DaemonArguments};
use crate::client::{Answer, BATCH_BYTES, Session};
use crate::commands::input;
use crate::commands::printing::print;
use crate::exit::{ExitCode, Failure};
use crate::orders::{line_of, text};
use crate::text::{counted, shown};

/// Most lines that are sent before their answers are read, within [`BATCH_BYTES`].
const BATCH_LINES: usize = 100;
const CHUNK_BYTES: usize = 64 * 1024;

pub(super) fn add(add: Add) -> Result<(), Failure> {
    let Add { daemon, key, payload, id, file, lines } = add;
    let Some(key) = key.filter(|_| !lines) else {
        return add_lines(&daemon, id, file.as_deref().unwrap_or(Path::new("-")));
    };
    let task = match file {
        Some(file) => task_of(&key, &payload_in(&file)?, ExitCode::BadData)?,
        None => task_of(&key, payload.unwrap_or_default().as_bytes(), ExitCode::Usage)?,
    };
    super::tell(&daemon, Addition { task, id })
}

fn task_of(key: &str, payload: &[u8], code: ExitCode) -> Result<Row, Failure> {
    let refused = |why: String| {
        let text = format!("{} cannot be a single task: {why}", shown(key));
        Failure::new(code, text)
    };
    Key::new(key).map_err(|error| refused(error.to_string()))?;
    if payload.is_empty() {
        return Err(refused("the payload is empty".to_owned()));
    }
    let line = [key.as_bytes(), b" ", payload].concat();
    single_task(&line).map_err(|reason| refused(reason.to_string()))
}

/// The input, and its name for messages; `-` is standard input.
fn open(path: &Path) -> Result<(Box<dyn Read>, String), Failure> {
    let (name, input) = input::open(Some(path).filter(|path| *path != Path::new("-")));
    Ok((input.map_err(|error| unreadable(&name, &error))?, name))
}

fn unreadable(name: &str, error: &io::Error) -> Failure {
    Failure::new(ExitCode::BadData, format!("cannot read {name}: {error}; nothing more was added"))
}

/// A file's text, without the line end at its end.
fn payload_in(file: &Path) -> Result<Vec<u8>, Failure> {
    let (input, name) = open(file)?;
    let mut bytes = Vec::new();
    // A little more than there may be is enough to see that it is too much.
    let read = input.take(LINE_MAX_BYTES as u64 + 2).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(&name, &error))?;
    bytes.pop_if(|last| *last == b'\n');
    bytes.pop_if(|last| *last == b'\r');
    Ok(bytes)
}

fn add_lines(daemon: &DaemonArguments, id: Option<Name>, path: &Path) -> Result<(), Failure> {
    let (mut input, name) = open(path)?;
    let socket = daemon.target.socket("add")?;
    let session = Session::begin::<verbs::Add>(&socket, &[], daemon.timeout())?;
    let mut sender = Sender::new(session, id, &name, daemon.json);
    let (mut reader, mut lines) = (LineReader::new(true, 0), Vec::new());
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let length = match input.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read.map_err(|error| unreadable(&name, &error))?,
        };
        match length {
            0 => reader.finish(&mut lines),
            _ => reader.feed(&chunk[..length], &mut lines),
        }
        lines.drain(..).try_for_each(|line| sender.take(line))?;
        sender.send()?;
        if length == 0 {
            return sender.end();
        }
    }
}

/// Many tasks on their way, from a file of this name.
struct Sender<'a> {
    session: Session,
    /// The prefix of all IDs.
    id: Option<Name>,
    name: &'a str,
    json: bool,
    /// The requests of a batch, their bytes, and the numbers of their lines.
    batch: Vec<Addition>,
    bytes: usize,
    numbers: Vec<u64>,
    /// Lines that were read, and their results.
    lines: u64,
    added: u64,
    known: u64,
    faulty: u64,
}

impl<'a> Sender<'a> {
    fn new(session: Session, id: Option<Name>, name: &'a str, json: bool) -> Self {
        let (batch, numbers) = (Vec::new(), Vec::new());
        let (bytes, lines, added, known, faulty) = (0, 0, 0, 0, 0);
        Self { session, id, name, json, batch, bytes, numbers, lines, added, known, faulty }
    }

    fn take(&mut self, line: Line) -> Result<(), Failure> {
        self.lines += 1;
        let task = match line {
            Line::Row(task) => task,
            Line::Skipped { number, reason } => {
                self.faulty += 1;
                let name = shown(self.name);
                // There may be no reader.
                let _ = writeln!(io::stderr(), "{name}: line {number} was not added: {reason}");
                return Ok(());
            }
        };
        let bytes = task.key.as_str().len() + task.payload.len();
        if self.batch.len() == BATCH_LINES || self.bytes + bytes > BATCH_BYTES {
            self.send()?;
        }
        self.bytes += bytes;
        let id = self.id.as_ref().map(|id| Name::resembling(&format!("{id}.{}", self.lines)));
        self.batch.push(Addition { task, id });
        self.numbers.push(self.lines);
        Ok(())
    }

    fn send(&mut self) -> Result<(), Failure> {
        self.session.send(&self.batch)?;
        (self.batch, self.bytes) = (Vec::new(), 0);
        for number in std::mem::take(&mut self.numbers) {
            let answer = self.session.answer::<verbs::Add>().map_err(|failure| {
                let text = format!("line {number}: {failure}; it and those behind it may not have been added, and adding them again is harmless");
                Failure::new(failure.code(), text)
            })?;
            *(if answer.object.added { &mut self.added } else { &mut self.known }) += 1;
            if self.json {
                print(answer.line + "\n")?;
            }
        }
        Ok(())
    }

    fn end(self) -> Result<(), Failure> {
        if !self.json {
            let known = match self.known {
                0 => String::new(),
                known => format!("; {} added before", counted(known, "task")),
            };
            print(format!("Added {}{known}.\n", counted(self.added, "task")))?;
        }
        if self.faulty == 0 {
            return Ok(());
        }
        let text = format!("not added: {}; see above", counted(self.faulty, "faulty line"));
        Err(Failure::new(ExitCode::BadData, text))
    }
}

/// Deletes a key's single tasks, as many rounds as that takes.
pub(super) fn cancel(daemon: &DaemonArguments, key: Key) -> Result<(), Failure> {
    let requests = [Cancel { key }];
    let socket = daemon.target.socket("cancel")?;
    let mut session = Session::begin(&socket, &requests, daemon.timeout())?;
    let mut answer = session.answer::<Cancel>()?.object;
    let mut deleted = answer.deleted;
    while answer.more {
        session.send(&requests)?;
        answer = match session.answer::<Cancel>() {
            Ok(next) => next.object,
            // All were gone.
            Err(failure) if failure.code() == ExitCode::BadData => break,
            Err(failure) => return Err(failure),
        };
        deleted += answer.deleted;
    }
    let is_in_flight = answer.in_flight;
    let object = json!({"key": answer.key, "deleted": deleted, "in_flight": is_in_flight});
    let (name, stop) = (text(&answer.key), line_of("cancel --running", &answer.key));
    let said = format!("Deleted {} of {name}.", counted(deleted, "single task"));
    show(&Answer { line: object.to_string(), object }, daemon.json, said)?;
    if !is_in_flight {
        return Ok(());
    }
    let text = format!("one of {name} is in flight and stays: {stop} stops it");
    Err(Failure::new(ExitCode::AlreadyRunning, text))
}
