//! `shiftboss check`: reads fetcher files as the daemon would, and reports what it would skip.
//!
//! It needs no database and changes nothing. Names, entries and lines are judged by the daemon's own code; this module
//! only walks over the directory.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Serialize, Serializer};
use shiftboss_actors::directory::{Directory, Entry};
use shiftboss_protocol::fetcher_file::{FileName, Line, Named};

use super::printing::show;
use super::text::counted;
use crate::escape::shown_bytes;
use crate::exit::{ExitCode, Failure};
use crate::fetch::read_lines;

pub mod config;
pub mod database;
mod groups;

/// Most skipped lines that are listed: files of another format may have millions. All are counted.
const LISTED_MAX: usize = 100_000;

#[derive(Default, Serialize)]
struct Checked {
    #[serde(serialize_with = "but_ignored")]
    files: Vec<Found>,
    read_files: u64,
    /// Files that were not, or not to their end.
    skipped_files: u64,
    /// Lines that would enter the queue.
    accepted_lines: u64,
    skipped_lines: u64,
}

/// What was found under a name. With neither a content nor an error, the name is not meant as a fetcher file's, and is
/// not a fault.
#[derive(Serialize)]
struct Found {
    #[serde(serialize_with = "lossy")]
    name: OsString,
    #[serde(flatten)]
    content: Option<Content>,
    /// Why it is not read, or not to its end.
    error: Option<String>,
}

#[derive(Serialize)]
struct Content {
    /// As many as are still listed.
    skipped: Vec<SkippedLine>,
    /// It is complete, not growing.
    complete: bool,
    /// Lines that would enter the queue.
    accepted_lines: u64,
    skipped_lines: u64,
}

#[derive(Serialize)]
struct SkippedLine {
    line: u64,
    reason: String,
}

impl Checked {
    fn add(&mut self, found: Found) {
        self.skipped_files += u64::from(found.error.is_some());
        if let Some(content) = &found.content {
            self.read_files += 1;
            self.accepted_lines += content.accepted_lines;
            self.skipped_lines += content.skipped_lines;
        }
        self.files.push(found);
    }
}

fn but_ignored<S: Serializer>(files: &[Found], serializer: S) -> Result<S::Ok, S::Error> {
    let is_named = |file: &&Found| file.content.is_some() || file.error.is_some();
    serializer.collect_seq(files.iter().filter(is_named))
}

fn lossy<S: Serializer>(name: &OsStr, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&name.to_string_lossy())
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
        let (content, error) = match FileName::parse(&name) {
            Named::Fetcher(file) if file.growing && complete.as_ref() == Some(&file.run) => {
                let whole = file.run.file_name(false);
                (None, Some(format!("{whole} is there too, and the complete file wins")))
            }
            Named::Fetcher(file) => match open(&directory, &name) {
                Ok(None) => continue,
                Ok(Some(opened)) => {
                    complete = (!file.growing).then_some(file.run);
                    let (content, error) = read(opened, file.growing, room);
                    room -= content.skipped.len();
                    (Some(content), error)
                }
                Err(error) => (None, Some(error)),
            },
            Named::Bad(fault) => (None, Some(fault.to_string())),
            Named::Hidden => continue,
            // The daemon's own are hidden.
            Named::Other if name.as_bytes().starts_with(b".") => continue,
            Named::Other => (None, None),
        };
        checked.add(Found { name, content, error });
    }
    Ok(checked)
}

/// Opens a file to read; `None` if it has gone since the directory was listed, as is normal there; an error says why it
/// is not read.
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

/// Reads one file to its end, and lists at most `room` skipped lines; also returns why it stopped early. A growing file
/// may end within a line.
fn read(file: File, is_growing: bool, room: usize) -> (Content, Option<String>) {
    let (skipped, complete) = (Vec::new(), !is_growing);
    let mut content = Content { skipped, complete, accepted_lines: 0, skipped_lines: 0 };
    let read = read_lines(file, is_growing, |line| match line {
        Line::Row(_) => content.accepted_lines += 1,
        Line::Skipped { number: line, reason } => {
            content.skipped_lines += 1;
            if content.skipped.len() < room {
                content.skipped.push(SkippedLine { line, reason: reason.to_string() });
            }
        }
    });
    (content, read.err().map(|error| format!("it cannot be read on: {error}")))
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

fn file(Found { name, content, error }: &Found) -> String {
    let name = shown_bytes(name.as_encoded_bytes());
    let Some(content) = content else {
        return error.as_ref().map_or_else(
            || format!("{name}: ignored: a fetcher file is named FETCHER.NUMBER.txt\n"),
            |error| format!("{name}: skipped: {error}\n"),
        );
    };
    let line = |SkippedLine { line, reason }: &_| format!("{name}:{line}: skipped: {reason}\n");
    let mut out: String = content.skipped.iter().map(line).collect();
    if content.skipped.len() as u64 != content.skipped_lines {
        out += &format!("{name}: more lines are skipped: {LISTED_MAX} are listed, no more\n");
    }
    let state = if content.complete { "complete" } else { "growing" };
    let (accepted, skipped) = (counted(content.accepted_lines, "line"), content.skipped_lines);
    out += &format!("{name}: {state}, {accepted} accepted, {skipped} skipped\n");
    out.extend(error.iter().map(|error| format!("{name}: {error}\n")));
    out
}
