//! Our side of the guardian: a handle that starts commands, so that none of them outlives us.
//!
//! The guardian is a process (`shiftboss guardian`, [`super::guard()`]) that holds the read end of a
//! pipe to which we alone hold the write end. Each command registers its process group before its program
//! is executed, and is taken off before it is reaped, so that what is registered is always ours. The
//! pipe's end tells the guardian that we are gone, however that came about; it kills what is registered.
//! There is one for each handle and its clones, made when the first command is; should it be killed,
//! another takes its place.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::pipe::PipeFlags;
use rustix::process::Pid;
use tokio::net::unix::pipe::Receiver;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use super::attend::{self, Running};
use super::end::StartError;
use super::guard::Record;
use super::process::{self, Process};
use super::pump::{Pump, pipe};
use super::spec::{CommandSpec, Output, Sink, Stream};

/// Our own program, also after an upgrade has replaced its file.
const OUR_PROGRAM: &str = "/proc/self/exe";
/// What an init system says to us, and to us alone.
const INIT_SYSTEMS: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
];
/// How long a guardian may leave the pipe full before it counts as gone.
const PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Between two guardians, should they die as fast as they are made.
const PAUSE: Duration = Duration::from_secs(1);

/// Starts commands that do not outlive us. A process needs one; clones are the same one.
#[derive(Clone)]
pub struct Guardian(Arc<Mutex<Shared>>);

impl Default for Guardian {
    fn default() -> Self {
        Self::new()
    }
}

impl Guardian {
    /// A guardian that is our own program. Nothing is started yet.
    pub fn new() -> Self {
        Self::of(OUR_PROGRAM)
    }

    /// A guardian that is the shiftboss at `program`: for those who are another program, as tests.
    pub fn of(program: impl Into<OsString>) -> Self {
        let program = program.into();
        let (groups, next_token) = (HashMap::new(), 0);
        Self(Arc::new(Mutex::new(Shared {
            program,
            handle: None,
            groups,
            next_token,
            watch: None,
        })))
    }

    /// Starts a command; without an input it has an empty one. To be called in a tokio runtime with time and IO, and on
    /// a thread that lives as long as the process: the kernel kills the command when the thread ends.
    pub fn start(
        &self,
        spec: &CommandSpec,
        input: Option<File>,
        output: Output,
    ) -> Result<Running, StartError> {
        let children = child_signals().map_err(StartError::system("listen for ended children"))?;
        let mut command = Command::new(&spec.program);
        command
            .args(&spec.arguments)
            .envs(spec.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(input.map_or_else(Stdio::null, Stdio::from));
        INIT_SYSTEMS.iter().for_each(|name| _ = command.env_remove(name));
        if let Some(directory) = &spec.directory {
            if !directory.is_dir() {
                return Err(StartError::Directory(directory.clone()));
            }
            command.current_dir(directory);
        }
        let outlet = outlet(output, &mut command)
            .map_err(StartError::system("make the pipes for its output"))?;
        let process = self.spawn(command, &spec.program)?;
        let pumps = outlet.map(|(sink, pipes)| pumps(sink, pipes));
        Ok(attend::attend(process, pumps, children, spec.time_limit, spec.grace))
    }

    fn spawn(&self, mut command: Command, program: &OsStr) -> Result<Process, StartError> {
        let mut shared = self.lock();
        let failed = StartError::system("start the guardian (our own program, from /proc)");
        let pipe = shared.pipe().map_err(failed)?;
        self.watch(&mut shared)?;
        let token = shared.next_token;
        shared.next_token += 1;
        process::prepare(&mut command, pipe, token);
        match command.spawn() {
            Ok(child) => {
                let pid = Pid::from_child(&child);
                shared.groups.insert(token, pid);
                drop(shared);
                Ok(Process::new(pid, token, self.clone()))
            }
            Err(error) => {
                // It may have registered before its program could not be executed.
                shared.forget(token);
                Err(StartError::of(program, error))
            }
        }
    }

    /// Takes a group off the guardian's list.
    pub(super) fn forget(&self, token: u64) {
        self.lock().forget(token);
    }

    /// A panic elsewhere leaves nothing half-done that matters here.
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a task look whether the guardian lives.
    fn watch(&self, shared: &mut Shared) -> Result<(), StartError> {
        if shared.watch.as_ref().is_none_or(JoinHandle::is_finished) {
            let children =
                child_signals().map_err(StartError::system("listen for ended children"))?;
            shared.watch = Some(tokio::spawn(watch(Arc::downgrade(&self.0), children)));
        }
        Ok(())
    }
}

/// Our ends of a command's pipes.
type Pipes = [(Stream, Receiver); 2];

/// Has a command's output go where it is to go. The sink and our ends of its pipes, unless it has a file.
fn outlet(output: Output, command: &mut Command) -> io::Result<Option<(Sink, Pipes)>> {
    match output {
        Output::File(file) => {
            command.stdout(file.try_clone()?).stderr(file);
            Ok(None)
        }
        Output::Sink(sink) => {
            let ((out, stdout), (err, stderr)) = (pipe()?, pipe()?);
            command.stdout(stdout).stderr(stderr);
            Ok(Some((sink, [(Stream::Out, out), (Stream::Err, err)])))
        }
    }
}

/// Passes both streams on to one sink.
fn pumps(sink: Sink, pipes: Pipes) -> [Pump; 2] {
    let sink = Arc::new(Mutex::new(sink));
    pipes.map(|(stream, pipe)| {
        let sink = Arc::clone(&sink);
        Pump::start(pipe, move |piece| {
            if !piece.is_empty() {
                (sink.lock().unwrap_or_else(PoisonError::into_inner))(stream, piece);
            }
            std::future::ready(())
        })
    })
}

/// Ends of children, also if we were started with the signal blocked.
fn child_signals() -> io::Result<Signal> {
    let children = signal(SignalKind::child())?;
    let mut set = nix::sys::signal::SigSet::empty();
    set.add(nix::sys::signal::Signal::SIGCHLD);
    set.thread_unblock()?;
    Ok(children)
}

/// Replaces a guardian that was killed, as soon as it is.
async fn watch(shared: Weak<Mutex<Shared>>, mut children: Signal) {
    while let Some(shared) = shared.upgrade() {
        let is_well = shared.lock().unwrap_or_else(PoisonError::into_inner).mend();
        drop(shared);
        if is_well {
            children.recv().await;
        } else {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// What the clones of a handle share.
struct Shared {
    program: OsString,
    handle: Option<GuardianHandle>,
    /// The process groups that run, by the number they are registered under.
    groups: HashMap<u64, Pid>,
    next_token: u64,
    watch: Option<JoinHandle<()>>,
}

impl Shared {
    /// The pipe to a guardian that is there.
    fn pipe(&mut self) -> io::Result<Arc<OwnedFd>> {
        match &self.handle {
            Some(handle) if handle.has_room() => Ok(Arc::clone(&handle.pipe)),
            _ => self.renew(),
        }
    }

    /// Starts a guardian and tells it what runs. The former one, if any, is killed.
    fn renew(&mut self) -> io::Result<Arc<OwnedFd>> {
        let handle = GuardianHandle::start(&self.program)?;
        for (token, group) in &self.groups {
            handle.send(Record::Add { token: *token, group: *group })?;
        }
        let pipe = Arc::clone(&handle.pipe);
        self.handle = Some(handle);
        Ok(pipe)
    }

    fn forget(&mut self, token: u64) {
        self.groups.remove(&token);
        let sent = self.handle.as_ref().map(|handle| handle.send(Record::Remove { token }));
        if let Some(Err(error)) = sent {
            debug!(%error, "The guardian of running commands does not listen.");
            self.replace();
        }
    }

    /// Whether nothing had to be done: the guardian is there, or was never needed.
    fn mend(&mut self) -> bool {
        let is_well = self.handle.as_ref().is_none_or(GuardianHandle::is_there);
        if !is_well {
            self.replace();
        }
        is_well
    }

    fn replace(&mut self) {
        match self.renew() {
            Ok(_) => warn!("The guardian of running commands was gone; another took its place."),
            Err(error) => {
                warn!(%error, "The guardian of running commands is gone, and another could not be started; the next try is in a second.");
            }
        }
    }
}

/// A guardian at its handle.
struct GuardianHandle {
    process: Child,
    pipe: Arc<OwnedFd>,
}

impl GuardianHandle {
    fn start(program: &OsStr) -> io::Result<Self> {
        let (theirs, ours) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // The two ends do not share this: the guardian waits, we never do.
        rustix::fs::fcntl_setfl(&ours, rustix::fs::OFlags::NONBLOCK)?;
        let mut command = Command::new(program);
        command.arg0("shiftboss").arg("guardian").current_dir("/");
        command.stdin(theirs).stdout(Stdio::null()).stderr(Stdio::null());
        process::prepare_guardian(&mut command);
        Ok(Self { process: command.spawn()?, pipe: Arc::new(ours) })
    }

    fn is_there(&self) -> bool {
        !self.poll(&Timespec::default()).contains(PollFlags::ERR)
    }

    fn has_room(&self) -> bool {
        self.poll(&PATIENCE) == PollFlags::OUT
    }

    fn poll(&self, patience: &Timespec) -> PollFlags {
        let mut polled = [PollFd::new(&self.pipe, PollFlags::OUT)];
        match rustix::event::poll(&mut polled, Some(patience)) {
            Ok(_) => polled[0].revents(),
            Err(_) => PollFlags::empty(),
        }
    }

    fn send(&self, record: Record) -> io::Result<()> {
        if !self.has_room() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        rustix::io::write(&self.pipe, &record.encode())?;
        Ok(())
    }
}

impl Drop for GuardianHandle {
    /// It must be gone before the pipe is closed: it would take that for our end.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::guard::RECORD_BYTES;
    use super::super::{End, Output};
    use super::*;

    /// What a guardian that writes all it hears to a file has heard, once it is `count` records.
    async fn heard(file: &std::path::Path, count: usize) -> Vec<Record> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        loop {
            assert!(tokio::time::Instant::now() < deadline, "{count} records do not come");
            let bytes = std::fs::read(file).unwrap_or_default();
            if bytes.len() >= count * RECORD_BYTES {
                let records = bytes.chunks_exact(RECORD_BYTES);
                return records.filter_map(|r| Record::decode(r.try_into().ok()?)).collect();
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    }

    /// Each command is on the list from before its program runs until its end, and one that could
    /// not be executed is taken off again.
    #[tokio::test]
    async fn the_guardian_knows_what_runs() {
        let directory = tempfile::tempdir().unwrap();
        let (script, file) = (directory.path().join("guardian"), directory.path().join("heard"));
        std::fs::write(&script, format!("#!/bin/sh\nexec cat > {}\n", file.display())).unwrap();
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o700)).unwrap();
        let guardian = Guardian::of(script);
        let nowhere = || Output::Sink(Box::new(|_, _: &[u8]| {}));
        let start = |spec: &CommandSpec| guardian.start(spec, None, nowhere());
        let mut first = start(&CommandSpec::new("true")).unwrap();
        assert_eq!(first.wait().await, End::Code(0));
        let missing = start(&CommandSpec::new("/nowhere/program"));
        assert!(matches!(missing, Err(StartError::NotFound(_))));
        let mut cat = CommandSpec::new("sleep");
        cat.arguments.push("1000".into());
        let third = start(&cat).unwrap();
        let records = heard(&file, 5).await;
        let group = |running: &Running| Pid::from_raw(running.pid() as i32).unwrap();
        assert_eq!(
            records[..2],
            [Record::Add { token: 0, group: group(&first) }, Record::Remove { token: 0 },]
        );
        assert!(matches!(records[2], Record::Add { token: 1, .. }), "{records:?}");
        assert_eq!(
            records[3..],
            [Record::Remove { token: 1 }, Record::Add { token: 2, group: group(&third) },]
        );
    }
}
