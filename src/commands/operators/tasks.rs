//! `shiftboss add` and `shiftboss cancel`: single tasks, by a running daemon.
//!
//! What is to be added is read and checked here first, by the rules of lists, so that a faulty line is named
//! with its number. Many lines are sent in bounded batches, and the next one only when all of the last are
//! answered.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;
use shiftboss_protocol::fetcher_file::{LINE_MAX_BYTES, Line, LineReader};
use shiftboss_protocol::model::{Key, Row};
use shiftboss_protocol::task_line::single_task;

use super::session::Session;
use super::{Answer, print};
use crate::cli::{Add, DaemonArguments};

use crate::client;
use crate::commands::text::{counted, shown};
use crate::exit::{ExitCode, Failure};
use crate::target::{move_up, socket};

/// Lines that are sent before their answers are read, and bytes of them (but for one line that is longer):
/// so many answers fit into the socket, and neither side waits for the other.
const BATCH_LINES: usize = 100;
const BATCH_BYTES: usize = 32 * 1024;
/// Bytes that are read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// Adds one task, or those of many lines.
pub(super) fn add(add: Add) -> Result<(), Failure> {
    let Add { mut arguments, key, payload, file, lines } = add;
    if lines {
        if key.is_some() {
            return Err(usage("with --lines the lines name the keys: give the socket alone"));
        }
        let input = file.unwrap_or_else(|| PathBuf::from("-"));
        let (input, name) = open(&input)?;
        return add_lines(&arguments, input, &name);
    }
    let task = match file {
        None => {
            let (target, [key, payload]) =
                move_up(arguments.socket.take(), [key, payload], ["KEY", "PAYLOAD"])?;
            arguments.socket = target;
            task_of(&key, payload.as_bytes(), ExitCode::Usage)?
        }
        Some(_) if payload.is_some() => {
            return Err(usage("give PAYLOAD or --file, not both"));
        }
        Some(file) => {
            let (target, [key]) = move_up(arguments.socket.take(), [key], ["KEY"])?;
            arguments.socket = target;
            task_of(&key, &payload_in(&file)?, ExitCode::BadData)?
        }
    };
    let line = request(&task);
    super::tell(&arguments, "add", line.trim_end(), added)
}

fn usage(text: &str) -> Failure {
    Failure::new(ExitCode::Usage, text)
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

/// What is read, and its name for messages.
fn open(path: &Path) -> Result<(Box<dyn Read>, String), Failure> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin()), "standard input".to_owned()));
    }
    match File::open(path) {
        Ok(file) => Ok((Box::new(file), path.display().to_string())),
        Err(error) => Err(unreadable(&path.display().to_string(), &error)),
    }
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

/// What became of many lines.
#[derive(Default)]
struct Sums {
    added: i64,
    known: i64,
    faulty: i64,
}

/// Adds the tasks of lines as they are read.
fn add_lines(
    arguments: &DaemonArguments,
    mut input: Box<dyn Read>,
    name: &str,
) -> Result<(), Failure> {
    let mut sender = Sender::connect(arguments)?;
    let (mut reader, mut lines) = (LineReader::new(true, 0), Vec::new());
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let length = match input.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read.map_err(|error| unreadable(name, &error))?,
        };
        if length == 0 {
            reader.finish(&mut lines);
        } else {
            reader.feed(&chunk[..length], &mut lines);
        }
        for line in lines.drain(..) {
            sender.take(line, name)?;
        }
        sender.send()?;
        if length == 0 {
            return sender.end();
        }
    }
}

struct Sender<'a> {
    arguments: &'a DaemonArguments,
    session: Session,
    /// The lines of a batch, and their numbers.
    batch: String,
    numbers: Vec<u64>,
    lines: u64,
    sums: Sums,
}

impl<'a> Sender<'a> {
    fn connect(arguments: &'a DaemonArguments) -> Result<Self, Failure> {
        let socket = socket(arguments.socket.clone(), "add")?;
        client::check_path(&socket)?;
        let deadline = client::deadline(arguments.timeout)?;
        let session = Session::greet(&socket, "add", "", arguments.timeout, deadline)?;
        let (batch, numbers) = (String::new(), Vec::new());
        Ok(Self { arguments, session, batch, numbers, lines: 0, sums: Sums::default() })
    }

    fn take(&mut self, line: Line, name: &str) -> Result<(), Failure> {
        self.lines += 1;
        match line {
            Line::Skipped { number, reason } => {
                self.sums.faulty += 1;
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
        let deadline = client::deadline(self.arguments.timeout)?;
        let lines = std::mem::take(&mut self.batch);
        self.session.send(&lines, self.arguments.timeout, deadline)?;
        for number in std::mem::take(&mut self.numbers) {
            let answer = self.session.answer(self.arguments.timeout, deadline);
            let answer = answer.map_err(|failure| {
                let text = format!("line {number}: {failure}; it and those behind it may not have been added, and adding them again is harmless");
                Failure::new(failure.exit_code(), text)
            })?;
            let is_new = answer.object["added"] == true;
            *(if is_new { &mut self.sums.added } else { &mut self.sums.known }) += 1;
            if self.arguments.json {
                print(&answer, true, |_| String::new())?;
            }
        }
        Ok(())
    }

    fn end(self) -> Result<(), Failure> {
        let Sums { added, known, faulty } = self.sums;
        if !self.arguments.json {
            let known = match known {
                0 => String::new(),
                known => format!("; {} waited already", counted(known, "task")),
            };
            super::say(&format!("Added {}{known}.", counted(added, "task")))?;
        }
        if faulty == 0 {
            return Ok(());
        }
        let text = format!("not added: {}; see above", counted(faulty, "faulty line"));
        Err(Failure::new(ExitCode::BadData, text))
    }
}

/// Deletes a key's single tasks, as many rounds as that takes.
pub(super) fn cancel(mut arguments: DaemonArguments, key: Option<String>) -> Result<(), Failure> {
    let (target, [key]) = move_up(arguments.socket.take(), [key], ["KEY"])?;
    let key =
        Key::new(&key).map_err(|error| usage(&format!("{} is no key: {error}", shown(&key))))?;
    let socket = socket(target, "cancel")?;
    client::check_path(&socket)?;
    let request = format!("CANCEL {key}");
    let deadline = client::deadline(arguments.timeout)?;
    let (mut session, mut answer) =
        Session::begin(&socket, "cancel", &request, arguments.timeout, deadline)?;
    let mut deleted = answer.object["deleted"].as_i64().unwrap_or(0);
    while answer.object["more"] == true {
        let deadline = client::deadline(arguments.timeout)?;
        session.send(&format!("{request}\n"), arguments.timeout, deadline)?;
        let Ok(next) = session.answer(arguments.timeout, deadline) else {
            // All were gone.
            break;
        };
        deleted += next.object["deleted"].as_i64().unwrap_or(0);
        answer = next;
    }
    let is_in_flight = answer.object["in_flight"] == true;
    let object =
        serde_json::json!({"key": key.as_str(), "deleted": deleted, "in_flight": is_in_flight});
    let answer = Answer { line: object.to_string(), object };
    let key = shown(key.as_str());
    print(&answer, arguments.json, |_| {
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
