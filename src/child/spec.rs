//! What is to be run, and where its output goes. The owner fills it in; [`super::Guardian::start`]
//! carries it out.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

/// How long a command that was asked to end (TERM) has before it is killed, if nothing is said.
pub const GRACE: Duration = Duration::from_secs(10);

/// Which of its two outputs a command wrote to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
}

/// Takes what a command writes, in pieces as they are read (32 KiB at the most, at no particular
/// boundary). It is called on the runtime's thread: the command waits meanwhile, and all else too.
pub type Sink = Box<dyn FnMut(Stream, &[u8]) + Send>;

pub enum Output {
    /// Both streams into an open file, which the command itself holds.
    File(File),
    /// Both streams to us, through pipes.
    Sink(Sink),
}

/// A command with its limits: what `fetch`, `on-change`, the runner and the daemon's fetchers have run.
#[derive(Debug, Clone)]
pub struct CommandSpec {
    /// The program; looked for in `PATH` unless it has a slash.
    pub program: OsString,
    /// What it is called with, itself apart.
    pub arguments: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    /// Where it runs; `None`: where we do.
    pub directory: Option<PathBuf>,
    /// How long it may run; then it is ended, and the end is [`super::End::TimedOut`].
    pub time_limit: Option<Duration>,
    pub grace: Duration,
}

impl CommandSpec {
    /// `program` with nothing else said: no arguments, no limit, the usual grace.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
            time_limit: None,
            grace: GRACE,
        }
    }
}
