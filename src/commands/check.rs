//! `shiftboss check`: reads fetcher files as the daemon would, and says what it would skip.
//!
//! It needs no database and changes nothing. Names, entries and lines are judged by the
//! daemon's own parts; here is only the walk over the directory.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Serialize, Serializer};
use shiftboss_actors::directory::{Directory, Entry};
use shiftboss_protocol::fetcher_file::{FileName, Line, Named, SkipReason};

use super::output::show;
use super::text::counted;
use crate::escape::shown_bytes;
use crate::exit::{ExitCode, Failure};
use crate::fetch::read_lines;

pub mod config;
pub mod database;

/// Skipped lines that are listed: files of another format may have millions. All are counted.
const LISTED_MAX: usize = 100_000;

/// What was found in the directory.
#[derive(Default, Serialize)]
struct Checked {
    #[serde(serialize_with = "but_ignored")]
    files: Vec<NamedFound>,
    read_files: u64,
    /// Files that were not, or not to their end.
    skipped_files: u64,
    /// Lines that would enter the queue.
    accepted_lines: u64,
    skipped_lines: u64,
}

#[derive(Serialize)]
struct NamedFound {
    #[serde(serialize_with = "lossy")]
    name: OsString,
    #[serde(flatten)]
    found: Found,
}

/// What was found under a name.
#[derive(Serialize)]
#[serde(untagged)]
enum Found {
    Read(Content),
    /// Why it is not read.
    Unread {
        error: String,
    },
    /// It has nothing of a fetcher file's name. That is no fault.
    Ignored,
}

/// What was found in a file.
#[derive(Default, Serialize)]
struct Content {
    /// As many as are still listed.
    skipped: Vec<SkippedLine>,
    /// It is complete, not growing.
    complete: bool,
    /// Lines that would enter the queue.
    accepted_lines: u64,
    skipped_lines: u64,
    /// Why reading stopped before the file's end.
    error: Option<String>,
}

#[derive(Serialize)]
struct SkippedLine {
    line: u64,
    #[serde(serialize_with = "in_words")]
    reason: SkipReason,
}

impl Checked {
    fn add(&mut self, name: OsString, found: Found) {
        match &found {
            Found::Read(content) => {
                self.read_files += 1;
                self.skipped_files += u64::from(content.error.is_some());
                self.accepted_lines += content.accepted_lines;
                self.skipped_lines += content.skipped_lines;
            }
            Found::Unread { .. } => self.skipped_files += 1,
            Found::Ignored => {}
        }
        self.files.push(NamedFound { name, found });
    }
}

fn but_ignored<S: Serializer>(files: &[NamedFound], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(files.iter().filter(|file| !matches!(file.found, Found::Ignored)))
}

fn lossy<S: Serializer>(name: &OsStr, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&name.to_string_lossy())
}

fn in_words<S: Serializer>(reason: &SkipReason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(reason)
}

/// Checks every fetcher file in the directory. Faulty input shows in the exit code too.
pub fn run(input_dir: &Path, json: bool) -> Result<(), Failure> {
    let path = input_dir.display();
    let checked = check(input_dir).map_err(|why| {
        let text = format!(
            "cannot read the input directory {path}: {why}; name the directory that fetchers write to"
        );
        Failure::new(ExitCode::Configuration, text)
    })?;
    let is_read = show(&checked, json, text)?;
    let Checked { skipped_lines: lines, skipped_files: files, .. } = checked;
    if !is_read || lines + files == 0 {
        return Ok(());
    }
    let text = format!("{lines} lines and {files} files in {path} would be skipped");
    Err(Failure::new(ExitCode::BadData, text))
}

fn check(input_dir: &Path) -> io::Result<Checked> {
    let directory = Directory::open(input_dir)?;
    let mut names = directory.names()?;
    names.sort_unstable();
    let mut checked = Checked::default();
    // The run whose complete file was read last. Its growing file, if there is one too, comes next: no other fetcher
    // file sorts between the two.
    let mut complete = None;
    let mut room = LISTED_MAX;
    for name in names {
        let found = match FileName::parse(&name) {
            Named::Fetcher(file) if file.growing && complete.as_ref() == Some(&file.run) => {
                let whole = file.spelled(false);
                Found::Unread { error: format!("{whole} is there too, and the complete file wins") }
            }
            Named::Fetcher(file) => match open(&directory, &name) {
                Ok(None) => continue,
                Ok(Some(opened)) => {
                    complete = (!file.growing).then_some(file.run);
                    let content = read(opened, file.growing, room);
                    room -= content.skipped.len();
                    Found::Read(content)
                }
                Err(error) => Found::Unread { error },
            },
            Named::Bad(fault) => Found::Unread { error: fault.to_string() },
            // The daemon's own are hidden.
            Named::Other if name.as_bytes().starts_with(b".") => continue,
            Named::Other => Found::Ignored,
        };
        checked.add(name, found);
    }
    Ok(checked)
}

/// Opens what is to be read; nothing when it has gone since the directory was listed, as
/// files there do; else says why it is not read.
fn open(directory: &Directory, name: &OsStr) -> Result<Option<File>, String> {
    let opened = match directory.look(name) {
        Ok(Entry::File(_)) => directory.open_file(name),
        Ok(Entry::Absent) => return Ok(None),
        Ok(Entry::Unfit(reason)) => return Err(reason),
        Err(error) => Err(error),
    };
    match opened {
        Ok((file, _)) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("it cannot be opened: {error}")),
    }
}

/// Reads one file to its end, and lists at most `room` skipped lines. A growing one may end within a line.
fn read(file: File, is_growing: bool, room: usize) -> Content {
    let mut content = Content { complete: !is_growing, ..Content::default() };
    let read = read_lines(file, is_growing, |line| match line {
        Line::Row(_) => content.accepted_lines += 1,
        Line::Skipped { number: line, reason } => {
            content.skipped_lines += 1;
            if content.skipped.len() < room {
                content.skipped.push(SkippedLine { line, reason });
            }
        }
    });
    content.error = read.err().map(|error| format!("it cannot be read on: {error}"));
    content
}

/// Lines for people; skipped ones as `FILE:LINE: reason`, which editors can jump to.
fn text(checked: &Checked) -> String {
    let mut out: String = checked.files.iter().map(file).collect();
    let Checked { read_files, skipped_files, accepted_lines, skipped_lines, .. } = checked;
    let (files, accepted) = (counted(read_files, "file"), counted(accepted_lines, "line"));
    out += &format!(
        "in all: {files}, {skipped_files} skipped; {accepted} accepted, {skipped_lines} skipped\n"
    );
    out
}

fn file(NamedFound { name, found }: &NamedFound) -> String {
    let name = shown_bytes(name.as_encoded_bytes());
    let content = match found {
        Found::Read(content) => content,
        Found::Unread { error } => return format!("{name}: skipped: {error}\n"),
        Found::Ignored => {
            return format!("{name}: ignored: a fetcher file is named FETCHER.NUMBER.txt\n");
        }
    };
    let line = |skipped: &SkippedLine| {
        let SkippedLine { line, reason } = skipped;
        format!("{name}:{line}: skipped: {reason}\n")
    };
    let mut out: String = content.skipped.iter().map(line).collect();
    if content.skipped.len() as u64 != content.skipped_lines {
        out += &format!("{name}: more lines are skipped: {LISTED_MAX} are listed, no more\n");
    }
    let state = if content.complete { "complete" } else { "growing" };
    let (accepted, skipped) = (counted(content.accepted_lines, "line"), content.skipped_lines);
    out += &format!("{name}: {state}, {accepted} accepted, {skipped} skipped\n");
    out.extend(content.error.iter().map(|error| format!("{name}: {error}\n")));
    out
}
