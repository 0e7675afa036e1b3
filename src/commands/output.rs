//! `shiftboss output`: what a key's jobs wrote, from the files of workers with `--log-dir`; an attempt of it, to its end.
//!
//! It asks no daemon: the files say which attempts there are, and how they ended. For all keys: [`all_keys`].

mod all_keys;
mod follow;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Seek, SeekFrom};
use std::time::SystemTime;

use super::printing::{offer, print};
use crate::cli::OutputArguments;
use crate::exit::{ExitCode, Failure};
use crate::outputs::attempts::{Ending, Part};
use crate::outputs::screen::{Colours, line};
use crate::outputs::{Outputs, days_until};
use crate::text::{columns, shown};

/// Bytes that are read at once.
const PIECE_BYTES: u64 = 64 * 1024;

pub fn run(typed: OutputArguments) -> Result<(), Failure> {
    fs::read_dir(&typed.log_dir).map_err(|error| {
        let directory = typed.log_dir.display();
        let text = format!("cannot read {directory}: {error}; give the --log-dir of the workers");
        Failure::new(ExitCode::Unavailable, text)
    })?;
    let outputs = Outputs::of_log_dir(typed.log_dir.clone());
    let Some(key) = typed.key.clone() else { return all_keys::run(&typed) };
    if typed.list {
        return list(&outputs, &key, &typed);
    }
    let mut found = Found::find(&outputs, &key, &typed)?;
    let screen = Screen::new(typed.raw);
    let to = found.end()?;
    let begin = found.begin();
    let from = match typed.lines {
        Some(lines) => last_lines(&mut found.file, begin, to, lines).map_err(unreadable)?,
        None => begin,
    };
    if !screen.copy(&mut found.file, from, to)? || !typed.follow {
        return Ok(());
    }
    follow::to_its_end(&outputs, &key, found, to, screen)
}

/// An attempt, or a whole file in which no worker wrote where one begins.
struct Found {
    file: File,
    day: String,
    part: Option<Part>,
}

impl Found {
    fn find(outputs: &Outputs, key: &str, typed: &OutputArguments) -> Result<Self, Failure> {
        for day in days(typed.day.as_ref()) {
            let Some(file) = outputs.open(key, &day).map_err(unreadable)? else { continue };
            let mut parts = outputs.parts(key, &day, &file).map_err(unreadable)?;
            let part = match typed.attempt {
                Some(number) => match parts.into_iter().rfind(|it| it.attempt == Some(number)) {
                    None => continue,
                    found => found,
                },
                None => parts.pop(),
            };
            return Ok(Self { file, day, part });
        }
        Err(none(key, typed))
    }

    fn begin(&self) -> u64 {
        self.part.as_ref().map_or(0, |part| part.begin)
    }

    /// The end of its present content.
    fn end(&self) -> Result<u64, Failure> {
        let length = self.file.metadata().map_err(unreadable)?.len();
        Ok(self.part.as_ref().map_or(length, |part| part.end(length)))
    }
}

/// Why there is nothing to show: a directory without days is not one of workers.
fn none(key: &str, typed: &OutputArguments) -> Failure {
    let of = typed.attempt.map(|number| format!("attempt {number} of ")).unwrap_or_default();
    let on = typed.day.as_ref().map(|day| format!(" on {day}")).unwrap_or_default();
    let what = match all_keys::days(&typed.log_dir) {
        Ok(days) if days.is_empty() => "no worker wrote there: is it their --log-dir?",
        _ => "`--all-keys` shows what there is of others",
    };
    let (key, directory) = (shown(key), typed.log_dir.display());
    let text = format!("there is no output of {of}{key} in {directory}{on}: {what}");
    Failure::new(ExitCode::Unavailable, text)
}

fn days(asked: Option<&String>) -> Box<dyn Iterator<Item = String> + '_> {
    match asked {
        Some(day) => Box::new(std::iter::once(day.clone())),
        None => Box::new(days_until(SystemTime::now())),
    }
}

fn unreadable(error: io::Error) -> Failure {
    Failure::new(ExitCode::StoreIo, format!("the output cannot be read: {error}"))
}

fn list(outputs: &Outputs, key: &str, typed: &OutputArguments) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for day in days(typed.day.as_ref()) {
        let Some(file) = outputs.open(key, &day).map_err(unreadable)? else { continue };
        let found = outputs.parts(key, &day, &file).map_err(unreadable)?;
        let row = |part: &Part| {
            let number = part.attempt.map_or("-".to_owned(), |number| number.to_string());
            let words = match &part.ending {
                None => "no end yet",
                Some(Ending { told: None, .. }) => "ended without a word",
                Some(Ending { told: Some(told), .. }) => &told.words,
            };
            [number, part.begun.clone(), words.to_owned()]
        };
        rows.extend(found.iter().rev().map(row));
    }
    if rows.is_empty() {
        return Err(none(key, typed));
    }
    print(columns(["Attempt", "begun", "ended"], rows))
}

/// Where the last lines before a place begin.
fn last_lines(file: &mut File, from: u64, to: u64, count: usize) -> io::Result<u64> {
    file.seek(SeekFrom::Start(from))?;
    let mut reader = BufReader::new(file.take(to - from));
    let (mut begins, mut at) = (VecDeque::new(), from);
    loop {
        match reader.skip_until(b'\n')? {
            0 => return Ok(begins.front().copied().unwrap_or(to)),
            length => {
                begins.push_back(at);
                at += length as u64;
            }
        }
        if begins.len() > count {
            begins.pop_front();
        }
    }
}

/// Shows a part of a file, in pieces that are whole lines if that is wanted, in the form of `shown`; returns where they
/// end. `None`: there is no reader.
fn show(
    file: &mut File,
    mut at: u64,
    to: u64,
    whole_lines: bool,
    shown: impl Fn(&[u8]) -> Vec<u8>,
) -> Result<Option<u64>, Failure> {
    loop {
        file.seek(SeekFrom::Start(at)).map_err(unreadable)?;
        let mut bytes = Vec::new();
        let mut piece = file.by_ref().take(PIECE_BYTES.min(to.saturating_sub(at)));
        piece.read_to_end(&mut bytes).map_err(unreadable)?;
        match bytes.iter().rposition(|byte| *byte == b'\n') {
            _ if !whole_lines => {}
            Some(end) => bytes.truncate(end + 1),
            // A line as long as that is shown in pieces.
            None if bytes.len() as u64 == PIECE_BYTES => {}
            None => bytes.clear(),
        }
        if bytes.is_empty() {
            return Ok(Some(at));
        }
        at += bytes.len() as u64;
        if !offer(shown(&bytes))? {
            return Ok(None);
        }
    }
}

/// Standard output, and how bytes are shown on it.
#[derive(Debug, Clone, Copy)]
struct Screen {
    is_plain: bool,
}

impl Screen {
    /// Bytes go out as they are, but on a terminal, unless that is asked for.
    fn new(raw: bool) -> Self {
        Self { is_plain: raw || !io::stdout().is_terminal() }
    }

    /// Shows the present content of a part of a file; on a terminal in whole lines. Returns where it ends; `None`:
    /// there is no reader.
    fn follow(self, file: &mut File, from: u64, to: u64) -> Result<Option<u64>, Failure> {
        show(file, from, to, !self.is_plain, |bytes| self.made(bytes))
    }

    fn copy(self, file: &mut File, from: u64, to: u64) -> Result<bool, Failure> {
        let Some(at) = self.follow(file, from, to)? else { return Ok(false) };
        Ok(show(file, at, to, false, |bytes| self.made(bytes))?.is_some())
    }

    fn made(self, bytes: &[u8]) -> Vec<u8> {
        if self.is_plain {
            return bytes.to_vec();
        }
        let lines = bytes.split_inclusive(|byte| *byte == b'\n').map(|text| {
            let (text, end) = text.strip_suffix(b"\n").map_or((text, ""), |text| (text, "\n"));
            line(text, Colours::Kept) + end
        });
        lines.collect::<String>().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Lines are counted from the end, whether or not the last one is whole.
    #[test]
    fn the_last_lines() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"before\none\ntwo\nthree").unwrap();
        let mut last = |to, count| last_lines(&mut file, 7, to, count).unwrap();
        assert_eq!((last(20, 1), last(20, 2), last(20, 9)), (15, 11, 7));
        assert_eq!((last(15, 1), last(15, 2), last(15, 0)), (11, 7, 15));
        assert_eq!(last(7, 3), 7);
    }
}
