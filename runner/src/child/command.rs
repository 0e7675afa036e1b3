//! A command: what to run and where its output goes, its start, and what may be done with it until its end.
//! [`super::guardian`] makes the process.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::env;
use std::ffi::{CString, NulError, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use tokio::net::unix::pipe::Receiver;
use tokio::signal::unix;
use tokio::time::{Instant, sleep_until};

use super::end::{End, StartError};
use super::guardian::{Guardian, Process, child_signals};
use super::program::candidates;
use super::pump::{Pump, pipe};
use super::spawn::Image;

/// How long, by default, a command that was asked to end (TERM) has before it is killed.
pub const GRACE: Duration = Duration::from_secs(10);
/// Variables that an init system sets for us, and for us alone.
const INIT_SYSTEMS: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
];

/// Our environment without those, by names. It never changes, and is kept because building it for each command took as
/// long as making the process.
static INHERITED: LazyLock<Vec<(OsString, CString)>> = LazyLock::new(|| {
    let is_theirs = |name: &OsStr| INIT_SYSTEMS.iter().any(|theirs| name == *theirs);
    let ours = env::vars_os().filter(|(name, _)| !is_theirs(name));
    ours.filter_map(|(name, value)| variable(&name, &value).ok().map(|it| (name, it))).collect()
});

fn variable(name: &OsStr, value: &OsStr) -> Result<CString, NulError> {
    CString::new([name.as_bytes(), value.as_bytes()].join(&b'='))
}

/// Which of its two outputs a command wrote to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
}

/// Takes what a command writes, in pieces as they are read (at most 32 KiB, at no particular boundary). It is called on
/// the runtime's thread: the command waits meanwhile, and so does everything else.
pub type Sink = Box<dyn FnMut(Stream, &[u8]) + Send>;

pub enum Output {
    /// Both streams into an open file, which the command itself holds.
    File(File),
    /// Both streams to us, through pipes.
    Sink(Sink),
    /// Standard output to where ours goes, standard error to us.
    Stderr(Sink),
}

/// A command with its limits, as `fetch`, `on-change`, the runner and the daemon's fetchers run it.
#[derive(Debug, Clone)]
pub struct CommandSpec {
    /// The program; looked for in `PATH` unless it has a slash.
    pub program: OsString,
    /// Its arguments, without its own name.
    pub arguments: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    /// Where it runs; `None`: where we do.
    pub directory: Option<PathBuf>,
    /// How long it may run; then it is terminated, and its end is [`End::TimedOut`].
    pub time_limit: Option<Duration>,
    pub grace: Duration,
}

impl CommandSpec {
    /// `program` with the defaults: no arguments, no limit, the usual grace.
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

    /// The image to execute: with our environment, and with its own.
    fn image(&self) -> Result<Image, NulError> {
        let mut own: BTreeMap<&OsStr, &OsStr> =
            self.environment.iter().map(|(name, value)| (&**name, &**value)).collect();
        INIT_SYSTEMS.iter().for_each(|name| _ = own.remove(OsStr::new(name)));
        let ours = INHERITED.iter().filter(|(name, _)| !own.contains_key(&**name));
        let ours = ours.map(|(_, variable)| Ok(Cow::Borrowed(&**variable)));
        let own_ones = own.iter().map(|(name, value)| variable(name, value).map(Cow::Owned));
        let environment = ours.chain(own_ones).collect::<Result<_, _>>()?;
        let path = own.get(OsStr::new("PATH")).map(|path| (*path).to_owned());
        let paths = candidates(&self.program, path.or_else(|| env::var_os("PATH")).as_deref());
        let arguments = [&self.program].into_iter().chain(&self.arguments).map(OsString::as_os_str);
        let directory = self.directory.as_ref().map(|path| path.as_os_str());
        Image::new(paths, arguments, environment, directory)
    }
}

/// A command that was started. If dropped, it is killed. It must be waited for, or its time limit is not kept.
pub struct Running {
    process: Process,
    guardian: Guardian,
    /// Signals of ended children, subscribed to before the process was made.
    children: unix::Signal,
    /// One for each stream that comes to us.
    pumps: Vec<Pump>,
    /// When to ask it to end; after that, when to kill it.
    deadline: Option<Instant>,
    grace: Duration,
    is_ending: bool,
    timed_out: bool,
    end: Option<End>,
}

impl Guardian {
    /// Starts a command; without an input it gets an empty one. Call it in a tokio runtime with time and IO, on a
    /// thread that lives as long as the process: the kernel kills the command when the thread ends.
    pub fn start(
        &self,
        spec: &CommandSpec,
        input: Option<File>,
        output: Output,
    ) -> Result<Running, StartError> {
        let children = child_signals()?;
        let is_removed =
            || env::current_dir().is_err_and(|it| it.kind() == io::ErrorKind::NotFound);
        match &spec.directory {
            Some(path) if !path.is_dir() => return Err(StartError::Directory(path.clone())),
            None if is_removed() => return Err(StartError::WorkingDirectory),
            _ => {}
        }
        let unfit = |error: NulError| StartError::of(&spec.program, error.into());
        let image = spec.image().map_err(unfit)?;
        let input = input.map_or_else(|| File::open("/dev/null"), Ok);
        let input = input.map_err(StartError::system("open /dev/null"))?;
        let (pumps, [out, err]) =
            outlet(output).map_err(StartError::system("make the pipes for its output"))?;
        let process =
            self.spawn(&spec.program, &image, [input.as_fd(), out.as_fd(), err.as_fd()])?;
        drop((out, err));
        // A time beyond the clock's range is no limit.
        let deadline = spec.time_limit.and_then(|limit| Instant::now().checked_add(limit));
        Ok(Running {
            process,
            guardian: self.clone(),
            children,
            pumps: pumps.map_or_else(Vec::new, |(sink, pipes)| start_pumps(sink, pipes)),
            deadline,
            grace: spec.grace,
            is_ending: false,
            timed_out: false,
            end: None,
        })
    }
}

/// Our ends of a command's pipes.
type Pipes = Vec<(Stream, Receiver)>;

/// The sink with our ends of a command's pipes, unless it has a file; and its own ends.
type Outlet = (Option<(Sink, Pipes)>, [OwnedFd; 2]);

/// Where a command's output goes.
fn outlet(output: Output) -> io::Result<Outlet> {
    match output {
        Output::File(file) => Ok((None, [file.try_clone()?.into(), file.into()])),
        Output::Sink(sink) => {
            let ((out, stdout), (err, stderr)) = (pipe()?, pipe()?);
            let pipes = vec![(Stream::Out, out), (Stream::Err, err)];
            Ok((Some((sink, pipes)), [stdout.into(), stderr.into()]))
        }
        Output::Stderr(sink) => {
            let (stdout, (err, stderr)) = (io::stdout().as_fd().try_clone_to_owned()?, pipe()?);
            Ok((Some((sink, vec![(Stream::Err, err)])), [stdout, stderr.into()]))
        }
    }
}

/// Passes all streams on to one sink.
fn start_pumps(sink: Sink, pipes: Pipes) -> Vec<Pump> {
    let sink = Arc::new(Mutex::new(sink));
    let pump = |(stream, pipe)| {
        let sink = Arc::clone(&sink);
        Pump::start(pipe, move |piece| {
            if !piece.is_empty() {
                (sink.lock().unwrap_or_else(PoisonError::into_inner))(stream, piece);
            }
            std::future::ready(())
        })
    };
    pipes.into_iter().map(pump).collect()
}

impl Running {
    /// Waits for the command's end. When it returns, all output has been passed on, nothing of the group is left, and
    /// the process is reaped. May be dropped and called again; the end stays the same.
    pub async fn wait(&mut self) -> End {
        let end = match self.end {
            Some(end) => end,
            None => self.reaped().await,
        };
        // Every pump learns that the command has ended before we wait for the first one.
        self.pumps.iter_mut().for_each(Pump::command_ended);
        for pump in &mut self.pumps {
            pump.end().await;
        }
        end
    }

    async fn reaped(&mut self) -> End {
        let end = loop {
            if let Some(end) = self.process.ended() {
                break end;
            }
            let deadline = self.deadline.unwrap_or_else(Instant::now);
            tokio::select! {
                _ = self.children.recv() => {}
                () = sleep_until(deadline), if self.deadline.is_some() => self.time_is_over(),
            }
        };
        self.guardian.reap(self.process);
        *self.end.insert(if self.timed_out { End::TimedOut } else { end })
    }

    fn time_is_over(&mut self) {
        if self.is_ending {
            self.kill();
        } else {
            self.timed_out = true;
            self.terminate();
        }
    }

    /// The same, but asks it to end once `stop` resolves.
    pub async fn wait_or_stop(&mut self, stop: impl Future<Output = ()>) -> End {
        tokio::select! {
            end = self.wait() => return end,
            () = stop => {}
        }
        self.terminate();
        self.wait().await
    }

    /// Asks the command to end (TERM to its group), and kills it when its grace is over. Its end depends on how it
    /// reacts.
    pub fn terminate(&mut self) {
        if !std::mem::replace(&mut self.is_ending, true) {
            self.deadline = Instant::now().checked_add(self.grace);
            self.signal(Signal::TERM);
            // A stopped process must be continued to get the signal.
            self.signal(Signal::CONT);
        }
    }

    pub fn kill(&mut self) {
        (self.is_ending, self.deadline) = (true, None);
        self.signal(Signal::KILL);
    }

    /// After the end no signal is sent: the number may belong to another process.
    fn signal(&self, signal: Signal) {
        if self.end.is_none() {
            self.process.signal(signal);
        }
    }

    /// The process id, which is also that of the group; after the end it may belong to another process.
    pub fn pid(&self) -> u32 {
        self.process.pid.as_raw_pid().unsigned_abs()
    }

    /// How the command ended, if it is known yet.
    pub fn end(&self) -> Option<End> {
        self.end
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.end.is_none() {
            self.kill();
            self.guardian.reap_later(self.process);
        }
    }
}
