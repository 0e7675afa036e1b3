//! `shiftboss add` and `shiftboss cancel`: single tasks, by a running daemon.
//!
//! What is to be added is read and checked here first, by the rules of lists, so that a faulty line is named
//! with its number. Many lines are sent in bounded batches, and the next one only when all of the last are
//! answered.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use shiftboss_protocol::fetcher_file::{LINE_MAX_BYTES, Line, LineReader};
use shiftboss_protocol::model::{Key, Row};
use shiftboss_protocol::task_line::single_task;

use super::{begin, key, show, word};
use crate::cli::{Add, DaemonArguments, KeyArguments};
use crate::client::{Answer, Session};
use crate::commands::input;
use crate::commands::output::print;
use crate::exit::{ExitCode, Failure};
use crate::target::move_up;
use crate::text::{counted, shown};

/// Lines that are sent before their answers are read, and bytes of them (but for one line that is longer):
/// so many answers fit into the socket, and neither side waits for the other.
const BATCH_LINES: usize = 100;
const BATCH_BYTES: usize = 32 * 1024;
const CHUNK_BYTES: usize = 64 * 1024;

pub(super) fn add(add: Add) -> Result<(), Failure> {
    let Add { mut daemon, key, payload, file, lines } = add;
    let (daemon, task) = match file {
        file if lines => {
            if key.is_some() {
                let text = "with --lines the lines name the keys: give the socket alone";
                return Err(Failure::usage(text));
            }
            return add_lines(&daemon, &file.unwrap_or_else(|| PathBuf::from("-")));
        }
        None => {
            let (socket, [key, payload]) =
                move_up(daemon.socket.take(), [key, payload], ["KEY", "PAYLOAD"])?;
            daemon.socket = socket;
            (daemon, task_of(&key, payload.as_bytes(), ExitCode::Usage)?)
        }
        Some(_) if payload.is_some() => {
            return Err(Failure::usage("give PAYLOAD or --file, not both"));
        }
        Some(file) => {
            let (daemon, key) = word(daemon, key, "KEY")?;
            (daemon, task_of(&key, &payload_in(&file)?, ExitCode::BadData)?)
        }
    };
    super::tell(&daemon, request(&task).trim_end(), added)
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

/// What is read, and its name for messages; `-` is standard input.
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
    for end in [b"\n", b"\r"] {
        if bytes.ends_with(end) {
            bytes.pop();
        }
    }
    Ok(bytes)
}

fn request(task: &Row) -> String {
    format!("ADD {} {}\n", task.key, task.payload)
}

fn added(answer: &Value) -> String {
    let key = shown(answer["key"].as_str().unwrap_or_default());
    if answer["added"] == false {
        return format!("{key} waits with this payload already; nothing was added.");
    }
    format!("Added {key}{}.", turn(answer))
}

/// When its turn is expected.
fn turn(answer: &Value) -> String {
    let count = |name: &str| answer[name].as_i64();
    let more = if answer["exact"] == true { "" } else { "more than " };
    let tasks = match count("tasks_before") {
        Some(tasks) if tasks > 0 => format!(", after {}", counted(tasks, "other task of this key")),
        _ => String::new(),
    };
    let keys = match count("keys_before") {
        Some(0) => "; it is the next key".to_owned(),
        Some(keys) => format!("; {more}{} before it", counted(keys, "key")),
        None => String::new(),
    };
    format!("{keys}{tasks}")
}

fn add_lines(daemon: &DaemonArguments, path: &Path) -> Result<(), Failure> {
    let (mut input, name) = open(path)?;
    let session = begin(daemon, "add", "")?;
    let mut sender = Sender::new(session, daemon.json);
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
        lines.drain(..).try_for_each(|line| sender.take(line, &name))?;
        sender.send()?;
        if length == 0 {
            return sender.end();
        }
    }
}

struct Sender {
    session: Session,
    json: bool,
    /// The lines of a batch, and their numbers.
    batch: String,
    numbers: Vec<u64>,
    /// Lines that were read, and what became of them.
    lines: u64,
    added: u64,
    known: u64,
    faulty: u64,
}

impl Sender {
    fn new(session: Session, json: bool) -> Self {
        let (batch, numbers) = (String::new(), Vec::new());
        Self { session, json, batch, numbers, lines: 0, added: 0, known: 0, faulty: 0 }
    }

    fn take(&mut self, line: Line, name: &str) -> Result<(), Failure> {
        self.lines += 1;
        match line {
            Line::Skipped { number, reason } => {
                self.faulty += 1;
                eprintln!("{name}: line {number} was not added: {reason}");
            }
            Line::Row(task) => {
                let request = request(&task);
                if self.batch.len() + request.len() > BATCH_BYTES {
                    self.send()?;
                }
                self.batch.push_str(&request);
                self.numbers.push(self.lines);
            }
        }
        if self.numbers.len() >= BATCH_LINES { self.send() } else { Ok(()) }
    }

    /// Sends the batch, and reads all its answers.
    fn send(&mut self) -> Result<(), Failure> {
        self.session.send(&std::mem::take(&mut self.batch))?;
        for number in std::mem::take(&mut self.numbers) {
            let answer = self.session.answer().map_err(|failure| {
                let text = format!("line {number}: {failure}; it and those behind it may not have been added, and adding them again is harmless");
                Failure::new(failure.code(), text)
            })?;
            *(if answer.object["added"] == true { &mut self.added } else { &mut self.known }) += 1;
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
                known => format!("; {} waited already", counted(known, "task")),
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
pub(super) fn cancel(of: KeyArguments) -> Result<(), Failure> {
    let (daemon, key) = key(of)?;
    let request = format!("CANCEL {key}\n");
    let mut session = begin(&daemon, "cancel", &request)?;
    let mut answer = session.answer()?;
    let mut deleted = answer.object["deleted"].as_i64().unwrap_or(0);
    while answer.object["more"] == true {
        session.send(&request)?;
        let Ok(next) = session.answer() else {
            // All were gone.
            break;
        };
        deleted += next.object["deleted"].as_i64().unwrap_or(0);
        answer = next;
    }
    let is_in_flight = answer.object["in_flight"] == true;
    let object = json!({"key": key.as_str(), "deleted": deleted, "in_flight": is_in_flight});
    let key = shown(key.as_str());
    show(&Answer { line: object.to_string(), object }, daemon.json, |_| {
        format!("Deleted {} of {key}.", counted(deleted, "single task"))
    })?;
    if is_in_flight {
        let text = format!(
            "one of {key} is in flight and stays: cancel it again when its job has ended (`shiftboss why` tells)"
        );
        return Err(Failure::new(ExitCode::AlreadyRunning, text));
    }
    Ok(())
}
