//! The command that is run for an entry: its arguments, its environment, its output.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

use thiserror::Error;

use super::settle::Settling;
use crate::child::{Guardian, LinePrefixer, Order, Output, Running, StartError, Stream};
use crate::cli::SpoolRunArguments;
use crate::exit::{ExitCode, Failure};
use crate::spool::{EntryName, Guard, Spool};

/// A longer line of a command's is shown in pieces.
const LINE_BYTES_MAX: usize = 8 * 1024;
/// Longer metadata is in no environment: the kernel takes 128 KiB a variable, name and all.
const META_BYTES_MAX: usize = 120 * 1024;

/// What is run, and what becomes of entries.
pub struct Workshop {
    guardian: Guardian,
    program: OsString,
    arguments: Vec<OsString>,
    /// The spool's directory.
    dir: OsString,
    time_limit: Option<Duration>,
    grace: Duration,
    pub settling: Settling,
}

/// Why a command was not started.
#[derive(Debug, Error)]
pub enum Fault {
    /// This entry cannot be put on a command line.
    #[error("{0}; what has a zero byte, or 128 KiB and more, cannot be passed to a command")]
    Entry(#[source] StartError),
    /// The program cannot be run, for any entry.
    #[error(transparent)]
    Program(StartError),
    /// The system has no room at present.
    #[error(transparent)]
    System(StartError),
}

impl From<StartError> for Fault {
    fn from(error: StartError) -> Self {
        use io::ErrorKind::{ArgumentListTooLong, InvalidInput};
        match &error {
            StartError::NotExecutable { source, .. }
                if matches!(source.kind(), ArgumentListTooLong | InvalidInput) =>
            {
                Self::Entry(error)
            }
            StartError::System { .. } => Self::System(error),
            _ => Self::Program(error),
        }
    }
}

impl Workshop {
    /// One for what was typed.
    ///
    /// # Errors
    /// When there is no command.
    pub fn new(
        spool: &Spool,
        typed: SpoolRunArguments,
        settling: Settling,
    ) -> Result<Self, Failure> {
        let mut words = typed.command.into_iter();
        let program =
            words.next().ok_or_else(|| Failure::new(ExitCode::Usage, "there is no COMMAND"))?;
        Ok(Self {
            guardian: Guardian::new(),
            program,
            arguments: words.collect(),
            dir: spool.path().into(),
            time_limit: typed.timeout,
            grace: typed.grace.into(),
            settling,
        })
    }

    /// Starts the command for an entry. In a runtime, on a thread that stays.
    ///
    /// # Errors
    /// When nothing was started.
    pub fn start(&self, guard: &Guard) -> Result<Running, Fault> {
        let data = guard.data().path();
        let places: [(&[u8], &[u8]); 3] = [
            (b"{name}", guard.name().as_bytes()),
            (b"{meta}", guard.metadata()),
            (b"{data}", data.as_os_str().as_bytes()),
        ];
        let arguments = self.arguments.iter().map(|argument| fill(argument, &places)).collect();
        let order = Order {
            program: self.program.clone(),
            arguments,
            environment: self.environment(guard, data.into()),
            output: Output::Sink(Box::new(printer(guard.name()))),
            time_limit: self.time_limit,
            grace: self.grace,
        };
        Ok(self.guardian.start(order)?)
    }

    fn environment(&self, guard: &Guard, data: OsString) -> Vec<(OsString, OsString)> {
        let mut variables = vec![
            ("DIR", self.dir.clone()),
            ("QUEUE", guard.queue().as_os_str().into()),
            ("NAME", guard.name().as_os_str().into()),
            ("META_FILE", guard.metadata_path().into()),
            ("DATA", data),
            ("ATTEMPT", guard.attempt().to_string().into()),
        ];
        let metadata = guard.metadata();
        if metadata.len() <= META_BYTES_MAX && !metadata.contains(&0) {
            variables.push(("META", OsStr::from_bytes(metadata).into()));
        }
        let named = |(name, value)| (format!("SHIFTBOSS_SPOOL_{name}").into(), value);
        variables.into_iter().map(named).collect()
    }
}

/// Replaces places wherever they stand. What was put in is not looked at again.
fn fill(argument: &OsStr, places: &[(&[u8], &[u8])]) -> OsString {
    let mut rest = argument.as_bytes();
    let mut filled = Vec::with_capacity(rest.len());
    while let Some(first) = rest.first() {
        match places.iter().find(|(place, _)| rest.starts_with(place)) {
            Some((place, value)) => {
                filled.extend_from_slice(value);
                rest = &rest[place.len()..];
            }
            None => {
                filled.push(*first);
                rest = &rest[1..];
            }
        }
    }
    OsString::from_vec(filled)
}

/// Standard output, shared by all commands: whole lines, each with its entry's name.
struct Lines {
    out: LinePrefixer,
    err: LinePrefixer,
}

impl Lines {
    fn write(prefixed: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) {
        let mut lines = Vec::new();
        // Writing to memory does not fail; and nobody may be reading what is written.
        let _ = prefixed(&mut lines);
        if !lines.is_empty() {
            let _ = io::stdout().lock().write_all(&lines);
        }
    }
}

impl crate::child::Sink for Lines {
    fn take(&mut self, stream: Stream, piece: &[u8]) {
        let lines = match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        };
        Self::write(|out| lines.feed(piece, out));
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        for lines in [&mut self.out, &mut self.err] {
            Self::write(|out| lines.finish(out));
        }
    }
}

fn printer(name: &EntryName) -> Lines {
    let lines = || LinePrefixer::new(format!("{name}: "), LINE_BYTES_MAX);
    Lines { out: lines(), err: lines() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places are filled once, wherever they stand; what only looks like one stays.
    #[test]
    fn places_are_filled() {
        let places: [(&[u8], &[u8]); 2] = [(b"{name}", b"a{data}"), (b"{data}", b"\xff $(id)")];
        let filled = |text: &str| fill(OsStr::new(text), &places).into_vec();
        assert_eq!(filled("x={data};{name}{name}"), b"x=\xff $(id);a{data}a{data}");
        for same in ["", "{Name}", "{name", "name}", "{}", "{{name"] {
            assert_eq!(filled(same), same.as_bytes());
        }
    }
}
