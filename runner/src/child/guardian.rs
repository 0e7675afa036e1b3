//! Our side of the guardian: it makes the processes of commands, so that none of them outlives us.
//!
//! The guardian is our own program again (its hidden command `guardian`, [`super::guard()`]) that holds the read end of a
//! pipe to which we alone hold the write end. Each command registers its process group before its program is executed,
//! and is unregistered before it is reaped, so that what is registered is always ours. The pipe's end shows the
//! guardian that we are gone, for whatever reason; it then kills what is registered. There is one guardian for each
//! handle and its clones, made with the first command; if it is killed, another takes its place. [`super::command`]
//! decides what runs, and until when.

use std::collections::HashMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal as StandardSignal};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus};
use tokio::signal::unix::{self, SignalKind};
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use super::end::{End, StartError};
use super::guard::Record;
use super::spawn::{Image, detach, ignore_broken_pipes, spawn};

/// Our own program, also after an upgrade has replaced its file.
const OUR_PROGRAM: &str = "/proc/self/exe";
/// How long a guardian may leave the pipe full before it counts as gone.
const PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Pause between two guardians, in case they die as fast as they are made.
const PAUSE: Duration = Duration::from_secs(1);

/// Starts commands that do not outlive us. A process needs one; clones are the same one.
#[derive(Clone)]
pub struct Guardian(Arc<Mutex<Register>>);

impl Default for Guardian {
    /// A guardian that is our own program. Nothing is started yet.
    fn default() -> Self {
        Self::of(OUR_PROGRAM)
    }
}

impl Guardian {
    /// A guardian that is the program at this path: for programs without such a command, such as tests.
    pub fn of(program: impl Into<OsString>) -> Self {
        let (groups, dropped) = (HashMap::new(), Vec::new());
        let (program, handle, next_token, watch) = (program.into(), None, 0, None);
        Self(Arc::new(Mutex::new(Register { program, handle, groups, dropped, next_token, watch })))
    }

    /// Makes a command's process, which leads a group that is registered.
    pub(super) fn spawn(
        &self,
        program: &OsStr,
        image: &Image,
        streams: [BorrowedFd<'_>; 3],
    ) -> Result<Process, StartError> {
        let mut register = self.lock();
        let failed = StartError::system("start the guardian (our own program, from /proc)");
        let pipe = register.pipe().map_err(failed)?;
        if register.watch.as_ref().is_none_or(JoinHandle::is_finished) {
            let watch = watch(Arc::downgrade(&self.0), child_signals()?);
            register.watch = Some(tokio::spawn(watch));
        }
        let token = register.next_token;
        register.next_token += 1;
        let parent = rustix::process::getpid();
        match spawn(image, streams, || enlist(parent, pipe.as_fd(), token)) {
            Ok(pid) => {
                register.groups.insert(token, pid);
                Ok(Process { pid, token })
            }
            Err(error) => {
                // It may have registered before the execution of its program failed.
                register.forget(token);
                Err(StartError::of(program, error))
            }
        }
    }

    /// Kills what an ended process left in its group, and only then frees its number.
    pub(super) fn reap(&self, process: Process) {
        self.lock().reap(process);
    }

    /// Reaps a process that was killed, when it has ended.
    pub(super) fn reap_later(&self, process: Process) {
        let mut register = self.lock();
        register.dropped.push((process, self.clone()));
        register.reap_dropped();
    }

    /// A panic while the lock was held leaves nothing half-done that matters here.
    fn lock(&self) -> MutexGuard<'_, Register> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends of children, also if we were started with the signal blocked.
pub(super) fn child_signals() -> Result<unix::Signal, StartError> {
    let listen = || {
        let children = unix::signal(SignalKind::child())?;
        let mut set = SigSet::empty();
        set.add(StandardSignal::SIGCHLD);
        set.thread_unblock()?;
        Ok(children)
    };
    listen().map_err(StartError::system::<io::Error>("listen for ended children"))
}

/// A command's process that is not reaped yet. So its number and its group's cannot belong to another.
#[derive(Clone, Copy)]
pub(super) struct Process {
    pub pid: Pid,
    /// The number under which its group is registered.
    token: u64,
}

impl Process {
    /// Signals its group. A program that now runs as another user may not receive it.
    pub fn signal(self, signal: Signal) {
        if let Err(error) = rustix::process::kill_process_group(self.pid, signal) {
            debug!(pid = self.pid.as_raw_pid(), ?signal, %error, "The signal was not sent.");
        }
    }

    pub fn ended(self) -> Option<End> {
        match self.wait(WaitIdOptions::NOWAIT) {
            Ok(status) => status.as_ref().map(End::of),
            Err(Errno::INTR) => None,
            // Something else has reaped it, and only that knows its end.
            Err(_) => Some(End::Code(u8::MAX)),
        }
    }

    fn wait(self, more: WaitIdOptions) -> Result<Option<WaitIdStatus>, Errno> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | more;
        rustix::process::waitid(WaitId::Pid(self.pid), options)
    }
}

/// What a command's process does before it executes its program: it registers with the guardian under `token`, and
/// makes sure that it dies with us.
fn enlist(parent: Pid, pipe: BorrowedFd<'_>, token: u64) -> Result<(), Errno> {
    // A guardian that is gone shows as an error, not by a signal to the new process.
    ignore_broken_pipes()?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() != Some(parent) {
        return Err(Errno::SRCH);
    }
    let group = Some(rustix::process::getpid());
    rustix::io::write(pipe, &Record { token, group }.encode()).map(drop)
}

/// Reaps what was dropped, and replaces a guardian that was killed, as soon as it is.
async fn watch(register: Weak<Mutex<Register>>, mut children: unix::Signal) {
    while let Some(guardian) = register.upgrade().map(Guardian) {
        let is_well = guardian.lock().mend();
        drop(guardian);
        if is_well {
            children.recv().await;
        } else {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// What the clones of a handle share.
struct Register {
    program: OsString,
    handle: Option<GuardianHandle>,
    /// The process groups that run, by the number they are registered under.
    groups: HashMap<u64, Pid>,
    /// Processes that were killed, and whose end is no longer awaited; each keeps this register until it is reaped.
    dropped: Vec<(Process, Guardian)>,
    next_token: u64,
    watch: Option<JoinHandle<()>>,
}

impl Register {
    /// The pipe to a guardian that is there.
    fn pipe(&mut self) -> io::Result<Arc<OwnedFd>> {
        match &self.handle {
            Some(handle) if handle.has_room() => Ok(Arc::clone(&handle.pipe)),
            _ => self.renew(),
        }
    }

    /// Starts a guardian and registers what runs. The former one, if any, is killed.
    fn renew(&mut self) -> io::Result<Arc<OwnedFd>> {
        let handle = GuardianHandle::start(&self.program)?;
        for (token, group) in &self.groups {
            handle.send(Record { token: *token, group: Some(*group) })?;
        }
        let pipe = Arc::clone(&handle.pipe);
        self.handle = Some(handle);
        Ok(pipe)
    }

    fn forget(&mut self, token: u64) {
        self.groups.remove(&token);
        let record = Record { token, group: None };
        let sent = self.handle.as_ref().map(|handle| handle.send(record));
        if let Some(Err(error)) = sent {
            debug!(%error, "The guardian of running commands does not listen.");
            self.replace();
        }
    }

    fn reap(&mut self, process: Process) {
        process.signal(Signal::KILL);
        self.forget(process.token);
        let _ = process.wait(WaitIdOptions::empty());
    }

    fn reap_dropped(&mut self) {
        let has_ended = |(process, _): &mut (Process, _)| process.ended().is_some();
        let ended: Vec<_> = self.dropped.extract_if(.., has_ended).collect();
        ended.into_iter().for_each(|(process, _)| self.reap(process));
    }

    /// Whether the guardian is there, or was never needed; if not, it is replaced.
    fn mend(&mut self) -> bool {
        self.reap_dropped();
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

struct GuardianHandle {
    process: Child,
    pipe: Arc<OwnedFd>,
}

impl GuardianHandle {
    fn start(program: &OsStr) -> io::Result<Self> {
        let (theirs, ours) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // The two ends do not share this flag: the guardian's reads block, our writes never do.
        rustix::fs::fcntl_setfl(&ours, rustix::fs::OFlags::NONBLOCK)?;
        let mut command = Command::new(program);
        command.arg0(env::args_os().next().unwrap_or_default()).arg("guardian").current_dir("/");
        command.stdin(theirs).stdout(Stdio::null()).stderr(Stdio::null());
        detach(&mut command);
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
    /// It must be gone before the pipe is closed: it would take the close for our end.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::guard::RECORD_BYTES;
    use super::super::{CommandSpec, End, Output, Running};
    use super::*;

    /// The records of a guardian that writes everything it reads to a file, once there are `count`.
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

    /// Each command is registered from before its program runs until its end; one that could not be executed is
    /// unregistered again.
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
        let tokens: Vec<_> = records.iter().map(|it| (it.token, it.group.is_some())).collect();
        assert_eq!(tokens, [(0, true), (0, false), (1, true), (1, false), (2, true)]);
        let group = |running: &Running| Pid::from_raw(running.pid() as i32);
        assert_eq!((records[0].group, records[4].group), (group(&first), group(&third)));
    }
}
