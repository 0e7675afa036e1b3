//! A command's process: what is done in it before its program is executed, and what may be done to it
//! until it is reaped. As long as it is not, its number and its group's belong to nobody else.
//!
//! [`super::guardian`] makes it, [`super::attend`] attends to it. No waiting here.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal as StandardSignal};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use super::end::End;
use super::guard::Record;
use super::guardian::Guardian;

/// Has the command's process, before it executes its program: die with us, register with the
/// guardian under `token`, and take back what we have set for signals.
#[allow(unsafe_code)]
pub fn prepare(command: &mut Command, pipe: Arc<OwnedFd>, token: u64) {
    let parent = rustix::process::getpid();
    let before_exec = move || {
        // A guardian that is gone shows as an error, not by a signal to the new process.
        dispose(StandardSignal::SIGPIPE, SigHandler::SigIgn)?;
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if rustix::process::getppid() != Some(parent) {
            return Err(Errno::SRCH.into());
        }
        let group = rustix::process::getpid();
        rustix::io::write(&pipe, &Record::Add { token, group }.encode())?;
        default_signals()
    };
    command.process_group(0);
    // SAFETY: between fork and exec the closure makes nothing but system calls (prctl, getppid,
    // getpid, write, sigaction, sigprocmask): it takes no lock and allocates nothing, and an
    // error is a bare number.
    unsafe { command.pre_exec(before_exec) };
}

/// Has the guardian's process, before it executes our program: leave our session, and outlive the
/// signals that end us.
#[allow(unsafe_code)]
pub fn prepare_guardian(command: &mut Command) {
    let before_exec = || {
        rustix::process::setsid()?;
        default_signals()?;
        use StandardSignal::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};
        for signal in [SIGHUP, SIGINT, SIGPIPE, SIGTERM] {
            dispose(signal, SigHandler::SigIgn)?;
        }
        Ok(())
    };
    // SAFETY: as above; setsid too is a system call and nothing else.
    unsafe { command.pre_exec(before_exec) };
}

/// Nothing blocked and nothing ignored, whatever we were started with.
fn default_signals() -> io::Result<()> {
    for signal in StandardSignal::iterator() {
        if !matches!(signal, StandardSignal::SIGKILL | StandardSignal::SIGSTOP) {
            dispose(signal, SigHandler::SigDfl)?;
        }
    }
    Ok(SigSet::empty().thread_set_mask()?)
}

#[allow(unsafe_code)]
fn dispose(signal: StandardSignal, handler: SigHandler) -> io::Result<()> {
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: the callers ignore a signal or give it its default; no code runs on it.
    unsafe { nix::sys::signal::sigaction(signal, &action) }?;
    Ok(())
}

/// A process that was started and is not reaped yet.
pub struct Process {
    pid: Pid,
    token: u64,
    guardian: Guardian,
    is_reaped: bool,
}

impl Process {
    /// The process that was registered under `token`.
    pub fn new(pid: Pid, token: u64, guardian: Guardian) -> Self {
        Self { pid, token, guardian, is_reaped: false }
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Asks everything in its group to end. What is stopped is woken up to hear it.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// The group is there as long as the process is not reaped; but a program that has taken another
    /// user's rights need not obey.
    fn signal(&self, signal: Signal) {
        if let Err(error) = rustix::process::kill_process_group(self.pid, signal) {
            tracing::debug!(pid = self.pid.as_raw_pid(), ?signal, %error, "The signal was not sent.");
        }
    }

    /// How the process ended, if it has.
    pub fn ended(&self) -> Option<End> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match rustix::process::waitid(WaitId::Pid(self.pid), options) {
            Ok(status) => status.as_ref().map(End::of),
            Err(Errno::INTR) => None,
            // Somebody else has reaped it, and knows its end.
            Err(_) => Some(End::Code(u8::MAX)),
        }
    }

    /// Kills what an ended process left in its group, and only then lets go of its number.
    pub fn reap(mut self) {
        self.kill();
        self.guardian.forget(self.token);
        self.try_reap();
    }

    fn try_reap(&mut self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let _ = rustix::process::waitid(WaitId::Pid(self.pid), options);
        self.is_reaped = true;
    }
}

impl Drop for Process {
    /// The runtime is being taken down, and with it, as a rule, our process. The group stays
    /// registered.
    fn drop(&mut self) {
        if !self.is_reaped {
            self.kill();
            self.try_reap();
        }
    }
}
