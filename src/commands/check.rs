//! `shiftboss check`: reads fetcher files as the daemon would, and says what it would skip.
//!
//! It needs no database and changes nothing. The names and lines are judged by the daemon's
//! own reader; here is only the walk over the directory, one file and 64 KiB at a time.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use shiftboss_actors::fetcher_file::{FileName, Line, LineReader, Named};
use shiftboss_actors::model::Run;

use crate::cli::CheckArgs;
use crate::exit::{ExitCode, Failure};
use report::{FileTotals, JsonReport, Report, TextReport, Totals};

mod report;

/// How much of a file is read at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// Checks every fetcher file in the directory.
///
/// # Errors
/// `Configuration` when the directory cannot be read, `BadData` when a line or a file would be
/// skipped.
pub fn run(args: &CheckArgs) -> Result<(), Failure> {
    let directory = open_directory(&args.input_dir).map_err(|why| unreadable(args, why))?;
    let names = list(&directory).map_err(|why| unreadable(args, why))?;
    let out = io::BufWriter::new(io::stdout().lock());
    let totals = if args.json {
        Check::new(&directory, JsonReport::new(out)).run(names)
    } else {
        Check::new(&directory, TextReport::new(out)).run(names)
    };
    judge(
        &args.input_dir,
        &totals.map_err(|error| Failure::output(&error))?,
    )
}

/// Faulty input is told by the exit code too.
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

fn unreadable(args: &CheckArgs, why: Errno) -> Failure {
    let doing = format!(
        "cannot read the input directory {}",
        args.input_dir.display()
    );
    let hint = "name the directory that fetchers write to";
    Failure::because(ExitCode::Configuration, doing, why, hint)
}

fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// The names of all that is in the directory, sorted by their bytes.
fn list(directory: &OwnedFd) -> Result<Vec<OsString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        names.push(OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned());
    }
    names.sort_unstable();
    Ok(names)
}

/// A walk over the directory's names, in order.
struct Check<'a, R> {
    directory: &'a OwnedFd,
    report: R,
    totals: Totals,
    /// The run whose complete file was read last. Its growing file, if there is one too, comes
    /// next: no other fetcher file sorts between the two.
    complete: Option<Run>,
}

impl<'a, R: Report> Check<'a, R> {
    fn new(directory: &'a OwnedFd, report: R) -> Self {
        Self {
            directory,
            report,
            totals: Totals::default(),
            complete: None,
        }
    }

    fn run(mut self, names: Vec<OsString>) -> io::Result<Totals> {
        for name in names {
            match FileName::parse(&name) {
                Named::Fetcher(file) => self.fetcher_file(&name, file)?,
                Named::Bad(bad) => self.skip_file(&name, &format!("a bad name: {}", bad.fault))?,
                Named::Other => {}
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
            let reason = format!(
                "{} is there too, and the complete file wins",
                file.complete_name()
            );
            return self.skip_file(name, &reason);
        }
        match open_regular(self.directory, name) {
            Ok(opened) => self.read(name, file, opened),
            Err(Refusal::Gone) => Ok(()),
            Err(Refusal::Reason(reason)) => self.skip_file(name, &reason),
        }
    }

    /// Reads one file to its end. A growing one may end within a line.
    fn read(&mut self, name: &OsStr, file: FileName, mut opened: File) -> io::Result<()> {
        self.report.begin_file(name)?;
        let mut totals = FileTotals {
            complete: !file.growing,
            ..FileTotals::default()
        };
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
                    totals.error = Some(format!("cannot be read on: {error}"));
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
        to: &mut FileTotals,
    ) -> io::Result<()> {
        for line in lines.drain(..) {
            match line {
                Line::Row(_) => to.accepted_lines += 1,
                Line::Skipped { number, reason } => {
                    to.skipped_lines += 1;
                    self.report
                        .skipped_line(name, number, &reason.to_string())?;
                }
            }
        }
        Ok(())
    }
}

/// Why a file is not read.
enum Refusal {
    /// It has gone since the directory was listed, as files there do.
    Gone,
    /// It is no file to read.
    Reason(String),
}

impl From<Errno> for Refusal {
    fn from(why: Errno) -> Self {
        match why {
            Errno::NOENT => Self::Gone,
            why => Self::Reason(format!("cannot be opened: {why}")),
        }
    }
}

/// Opens a regular file without following a link, waiting for a FIFO's writer or touching a
/// device.
fn open_regular(directory: &OwnedFd, name: &OsStr) -> Result<File, Refusal> {
    require_regular(&rustix::fs::statat(
        directory,
        name,
        AtFlags::SYMLINK_NOFOLLOW,
    )?)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::openat(directory, name, flags | OFlags::CLOEXEC, Mode::empty())?;
    // Another may have taken its place in between.
    require_regular(&rustix::fs::fstat(&file)?)?;
    Ok(file.into())
}

fn require_regular(stat: &Stat) -> Result<(), Refusal> {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::BlockDevice | FileType::CharacterDevice => "a device",
        FileType::Unknown => "of an unknown kind",
    };
    Err(Refusal::Reason(format!(
        "it is {kind}; only regular files are read"
    )))
}
