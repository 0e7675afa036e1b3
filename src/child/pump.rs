//! Passes a command's output on, from the pipes it writes to, in memory that does not depend on what
//! it writes. Driven by [`super::attend`].

use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::time::{Instant, timeout_at};

use super::spec::{Output, Sink, Stream};

/// The longest piece that a sink is given.
const PIECE_BYTES: usize = 64 * 1024;
/// How long the pipes of an ended command may stay open, held by a process that left its group.
const DRAIN: Duration = Duration::from_millis(500);
/// What is read after that: all that pipes can hold, so that nothing of the command's is lost where
/// reading takes long.
const LATE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// What we do about a command's output.
pub enum Outlet {
    /// Nothing: it has a file.
    Unattended,
    Pump(Box<Pump>),
}

impl Outlet {
    pub fn of(output: Output, command: &mut Command) -> io::Result<Self> {
        match output {
            Output::File(file) => {
                command.stdout(file.try_clone()?).stderr(file);
                Ok(Self::Unattended)
            }
            Output::Sink(sink) => {
                let (out, stdout) = Half::new()?;
                let (err, stderr) = Half::new()?;
                command.stdout(stdout).stderr(stderr);
                Ok(Self::Pump(Box::new(Pump { out, err, sink })))
            }
        }
    }

    /// Passes the next piece on; never resolves when there will be none.
    pub async fn step(&mut self) {
        match self {
            Self::Pump(pump) if pump.is_open() => {
                pump.step().await;
            }
            _ => std::future::pending().await,
        }
    }

    /// Passes on what an ended command has left in the pipes.
    pub async fn drain(self) {
        if let Self::Pump(mut pump) = self {
            // Undisturbed by the runtime's turns, the deadline is looked at only when nothing is there.
            tokio::task::coop::unconstrained(pump.drain()).await;
        }
    }
}

/// Both streams of a command.
pub struct Pump {
    out: Half,
    err: Half,
    sink: Sink,
}

impl Pump {
    fn is_open(&self) -> bool {
        self.out.pipe.is_some() || self.err.pipe.is_some()
    }

    /// Passes one piece on, and returns its length. What is not passed on when this is dropped is
    /// still in the pipe.
    async fn step(&mut self) -> usize {
        let (stream, length) = tokio::select! {
            length = self.out.read() => (Stream::Out, length),
            length = self.err.read() => (Stream::Err, length),
        };
        let half = if stream == Stream::Out { &self.out } else { &self.err };
        if length > 0 {
            (self.sink)(stream, &half.piece[..length]);
        }
        length
    }

    async fn drain(&mut self) {
        let deadline = Instant::now() + DRAIN;
        let mut late = 0;
        while self.is_open() && late < LATE_BYTES_MAX {
            let Ok(length) = timeout_at(deadline, self.step()).await else {
                return;
            };
            late += if Instant::now() < deadline { 0 } else { length };
        }
    }
}

struct Half {
    /// None once it has ended.
    pipe: Option<Receiver>,
    piece: Vec<u8>,
}

impl Half {
    fn new() -> io::Result<(Self, Stdio)> {
        let (ours, theirs) = io::pipe()?;
        let pipe = Some(Receiver::from_owned_fd(ours.into())?);
        Ok((Self { pipe, piece: vec![0; PIECE_BYTES] }, theirs.into()))
    }

    /// The length of the next piece; 0 at the end, and never again after it.
    async fn read(&mut self) -> usize {
        let Some(pipe) = &mut self.pipe else {
            return std::future::pending().await;
        };
        let length = pipe.read(&mut self.piece).await.unwrap_or(0);
        if length == 0 {
            self.pipe = None;
        }
        length
    }
}
