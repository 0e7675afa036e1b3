//! `shiftboss check`: reads fetcher files as the daemon would, and says what it would skip.
//!
//! It needs no database and changes nothing. Names, entries and lines are judged by the
//! daemon's own parts; here is only the walk over the directory, one file and 64 KiB at a time.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use shiftboss_actors::directory::{Directory, Entry};
use shiftboss_protocol::fetcher_file::{FileName, Line, LineReader, Named};
use shiftboss_protocol::model::Run;

use crate::exit::{self, ExitCode, Failure};
use report::{FileTotals, JsonReport, Report, TextReport, Totals};

pub mod config;
pub mod database;
mod needs;
mod report;

/// How much of a file is read at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// Checks every fetcher file in the directory.
pub fn run(input_dir: &Path, json: bool) -> Result<(), Failure> {
    let directory = Directory::open(input_dir).map_err(|why| unreadable(input_dir, &why))?;
    let mut names = directory.names().map_err(|why| unreadable(input_dir, &why))?;
    names.sort_unstable();
    let out = io::BufWriter::new(io::stdout().lock());
    let shown = if json {
        Check::new(&directory, JsonReport::new(out)).run(names)
    } else {
        Check::new(&directory, TextReport::new(out)).run(names)
    };
    shown.map_or_else(|error| exit::output_failed(&error), |totals| judge(input_dir, &totals))
}

/// Faulty input shows in the exit code too.
fn judge(directory: &Path, totals: &Totals) -> Result<(), Failure> {
    if totals.skipped_lines == 0 && totals.skipped_files == 0 {
        return Ok(());
    }
    let message = format!(
        "{} lines and {} files in {} would be skipped",
        totals.skipped_lines,
        totals.skipped_files,
        directory.display()
    );
    Err(Failure::new(ExitCode::BadData, message))
}

fn unreadable(directory: &Path, why: &io::Error) -> Failure {
    let message = format!(
        "cannot read the input directory {}: {why}; name the directory that fetchers write to",
        directory.display()
    );
    Failure::new(ExitCode::Configuration, message)
}

/// A walk over the directory's names, in order.
struct Check<'a, R> {
    directory: &'a Directory,
    report: R,
    totals: Totals,
    /// The run whose complete file was read last. Its growing file, if there is one too, comes
    /// next: no other fetcher file sorts between the two.
    complete: Option<Run>,
}

impl<'a, R: Report> Check<'a, R> {
    fn new(directory: &'a Directory, report: R) -> Self {
        Self { directory, report, totals: Totals::default(), complete: None }
    }

    fn run(mut self, names: Vec<OsString>) -> io::Result<Totals> {
        for name in names {
            match FileName::parse(&name) {
                Named::Fetcher(file) => self.fetcher_file(&name, file)?,
                Named::Bad(fault) => self.skip_file(&name, &fault.to_string())?,
                // The daemon's own are hidden.
                Named::Other if name.as_bytes().starts_with(b".") => {}
                Named::Other => self.report.ignored_file(&name)?,
            }
        }
        self.report.end(&self.totals)?;
        Ok(self.totals)
    }

    fn skip_file(&mut self, name: &OsStr, reason: &str) -> io::Result<()> {
        self.totals.skipped_files += 1;
        self.report.skipped_file(name, reason)
    }

    fn fetcher_file(&mut self, name: &OsStr, file: FileName) -> io::Result<()> {
        if file.growing && self.complete.as_ref() == Some(&file.run) {
            let reason =
                format!("{} is there too, and the complete file wins", file.spelled(false));
            return self.skip_file(name, &reason);
        }
        match self.open(name) {
            Ok(Some(opened)) => self.read(name, file, opened),
            Ok(None) => Ok(()),
            Err(reason) => self.skip_file(name, &reason),
        }
    }

    /// Opens what is to be read; nothing when it has gone since the directory was listed, as
    /// files there do; else says why it is not read.
    fn open(&self, name: &OsStr) -> Result<Option<File>, String> {
        let looked = match self.directory.look(name) {
            Ok(Entry::File(_)) => self.directory.open_file(name),
            Ok(Entry::Absent) => return Ok(None),
            Ok(Entry::Unfit(reason)) => return Err(reason),
            Err(error) => Err(error),
        };
        match looked {
            Ok((file, _)) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("it cannot be opened: {error}")),
        }
    }

    /// Reads one file to its end. A growing one may end within a line.
    fn read(&mut self, name: &OsStr, file: FileName, mut opened: File) -> io::Result<()> {
        self.report.begin_file(name)?;
        let mut totals = FileTotals { complete: !file.growing, ..FileTotals::default() };
        let mut reader = LineReader::new(true, 0);
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut lines = Vec::new();
        loop {
            match opened.read(&mut chunk) {
                Ok(0) if file.growing => break,
                Ok(0) => {
                    reader.finish(&mut lines);
                    self.count(name, &mut lines, &mut totals)?;
                    break;
                }
                Ok(read) => reader.feed(&chunk[..read], &mut lines),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    totals.error = Some(format!("it cannot be read on: {error}"));
                    break;
                }
            }
            self.count(name, &mut lines, &mut totals)?;
        }
        self.end_file(name, file, &totals)
    }

    fn end_file(&mut self, name: &OsStr, file: FileName, totals: &FileTotals) -> io::Result<()> {
        self.totals.add(totals);
        self.complete = (!file.growing).then_some(file.run);
        self.report.end_file(name, totals)
    }

    /// Counts lines and tells the skipped ones.
    fn count(
        &mut self,
        name: &OsStr,
        lines: &mut Vec<Line>,
        totals: &mut FileTotals,
    ) -> io::Result<()> {
        for line in lines.drain(..) {
            match line {
                Line::Row(_) => totals.accepted_lines += 1,
                Line::Skipped { number, reason } => {
                    totals.skipped_lines += 1;
                    self.report.skipped_line(name, number, &reason.to_string())?;
                }
            }
        }
        Ok(())
    }
}
