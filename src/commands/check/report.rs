//! How `check` tells what it found: as lines for people, or as one JSON object. Both write as
//! they go, so a file with a million faulty lines takes no more memory than one with none.

use std::ffi::OsStr;
use std::io::{self, Write};

use serde_json::json;

use crate::escape::shown_bytes;

/// What was found in one file.
#[derive(Debug, Default)]
pub struct FileTotals {
    /// The file is complete, not growing.
    pub complete: bool,
    /// Lines that would enter the queue.
    pub accepted_lines: u64,
    pub skipped_lines: u64,
    /// Why reading stopped before the file's end.
    pub error: Option<String>,
}

/// What was found in the directory.
#[derive(Debug, Default)]
pub struct Totals {
    pub files: u64,
    /// Files that were not, or not to their end.
    pub skipped_files: u64,
    /// Lines that would enter the queue.
    pub accepted_lines: u64,
    pub skipped_lines: u64,
}

impl Totals {
    /// Counts one file that was read.
    pub fn add(&mut self, file: &FileTotals) {
        self.files += 1;
        self.skipped_files += u64::from(file.error.is_some());
        self.accepted_lines += file.accepted_lines;
        self.skipped_lines += file.skipped_lines;
    }
}

/// Shows what `check` finds, in order: files, each with its lines between begin and end.
pub trait Report {
    /// A file that is not read, and why.
    fn skipped_file(&mut self, name: &OsStr, reason: &str) -> io::Result<()>;
    /// A file that has nothing of a fetcher file's name. That is no fault.
    fn ignored_file(&mut self, name: &OsStr) -> io::Result<()>;
    /// A file is being read.
    fn begin_file(&mut self, name: &OsStr) -> io::Result<()>;
    /// A line of it would be skipped.
    fn skipped_line(&mut self, name: &OsStr, number: u64, reason: &str) -> io::Result<()>;
    fn end_file(&mut self, name: &OsStr, totals: &FileTotals) -> io::Result<()>;
    fn end(&mut self, totals: &Totals) -> io::Result<()>;
}

/// Lines for people; skipped ones as `FILE:LINE: reason`, which editors can jump to.
pub struct TextReport<W>(W);

impl<W: Write> TextReport<W> {
    pub fn new(out: W) -> Self {
        Self(out)
    }
}

impl<W: Write> Report for TextReport<W> {
    fn skipped_file(&mut self, name: &OsStr, reason: &str) -> io::Result<()> {
        writeln!(self.0, "{}: skipped: {reason}", shown_bytes(name.as_encoded_bytes()))
    }

    fn ignored_file(&mut self, name: &OsStr) -> io::Result<()> {
        let name = shown_bytes(name.as_encoded_bytes());
        writeln!(self.0, "{name}: ignored: a fetcher file is named FETCHER.NUMBER.txt")
    }

    fn begin_file(&mut self, _name: &OsStr) -> io::Result<()> {
        Ok(())
    }

    fn skipped_line(&mut self, name: &OsStr, number: u64, reason: &str) -> io::Result<()> {
        writeln!(self.0, "{}:{number}: skipped: {reason}", shown_bytes(name.as_encoded_bytes()))
    }

    fn end_file(&mut self, name: &OsStr, totals: &FileTotals) -> io::Result<()> {
        let name = shown_bytes(name.as_encoded_bytes());
        let FileTotals { complete, accepted_lines, skipped_lines, error } = totals;
        let state = if *complete { "complete" } else { "growing" };
        let accepted = counted(*accepted_lines, "line");
        writeln!(self.0, "{name}: {state}, {accepted} accepted, {skipped_lines} skipped")?;
        error.iter().try_for_each(|error| writeln!(self.0, "{name}: {error}"))
    }

    fn end(&mut self, totals: &Totals) -> io::Result<()> {
        let Totals { files, skipped_files, accepted_lines, skipped_lines } = totals;
        let (files, accepted) = (counted(*files, "file"), counted(*accepted_lines, "line"));
        writeln!(
            self.0,
            "in all: {files}, {skipped_files} skipped; {accepted} accepted, {skipped_lines} skipped"
        )?;
        self.0.flush()
    }
}

/// One JSON object, written piece by piece.
pub struct JsonReport<W> {
    out: W,
    files: Separator,
    lines: Separator,
}

impl<W: Write> JsonReport<W> {
    pub fn new(out: W) -> Self {
        Self { out, files: Separator("{\"files\":["), lines: Separator("") }
    }
}

/// What stands before the next item of an array: its opening, then commas.
struct Separator(&'static str);

impl Separator {
    fn next(&mut self) -> &'static str {
        std::mem::replace(&mut self.0, ",")
    }

    /// The array's end; its opening too, if it had no item.
    fn end(&mut self) -> String {
        format!("{}]", self.next().trim_start_matches(','))
    }
}

impl<W: Write> Report for JsonReport<W> {
    fn skipped_file(&mut self, name: &OsStr, reason: &str) -> io::Result<()> {
        let file = json!({"name": name.to_string_lossy(), "error": reason});
        write!(self.out, "{}{file}", self.files.next())
    }

    fn ignored_file(&mut self, _name: &OsStr) -> io::Result<()> {
        Ok(())
    }

    fn begin_file(&mut self, name: &OsStr) -> io::Result<()> {
        let name = json!(name.to_string_lossy());
        self.lines = Separator("\"skipped\":[");
        write!(self.out, "{}{{\"name\":{name},", self.files.next())
    }

    fn skipped_line(&mut self, _name: &OsStr, number: u64, reason: &str) -> io::Result<()> {
        write!(self.out, "{}{}", self.lines.next(), json!({"line": number, "reason": reason}))
    }

    fn end_file(&mut self, _name: &OsStr, totals: &FileTotals) -> io::Result<()> {
        let FileTotals { complete, accepted_lines, skipped_lines, error } = totals;
        write!(
            self.out,
            "{},\"complete\":{complete},\"accepted_lines\":{accepted_lines},\
             \"skipped_lines\":{skipped_lines},\"error\":{}}}",
            self.lines.end(),
            json!(error)
        )
    }

    fn end(&mut self, totals: &Totals) -> io::Result<()> {
        let Totals { files, skipped_files, accepted_lines, skipped_lines } = totals;
        writeln!(
            self.out,
            "{},\"read_files\":{files},\"skipped_files\":{skipped_files},\
             \"accepted_lines\":{accepted_lines},\"skipped_lines\":{skipped_lines}}}",
            self.files.end()
        )?;
        self.out.flush()
    }
}

/// A number with its noun: `1 line`, `2 lines`.
fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
