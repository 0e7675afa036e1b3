//! Makes a command's process: everything in [`super`] that needs `unsafe`. [`super::guardian`] calls it, and knows what
//! the process must do before it executes its program.
//!
//! As with `vfork` and `posix_spawn` the new process has our memory until it executes its program, on a stack of its
//! own, and our thread waits meanwhile. A fork copies our memory map, which takes half as long as `true` runs. But
//! `posix_spawn` cannot do what a command's process has to, and `vfork` may not be called from Rust, because it returns
//! twice. So there are rules: everything the process needs is made before, and no handler of ours may run in it.

use std::borrow::Cow;
use std::ffi::{CStr, CString, NulError, OsStr, OsString, c_char};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

use nix::libc;
use nix::sched::{CloneFlags, clone};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions};

use crate::descriptors;

/// The stack of a process until it executes its program. It makes system calls, a few functions deep.
const STACK_BYTES: usize = 32 * 1024;
/// Executes a program that is a script without `#!`, as `execvp` does.
const SHELL: &CStr = c"/bin/sh";

/// What is executed, and with what.
pub(super) struct Image {
    /// Where the program may be; the first that exists counts.
    paths: Vec<CString>,
    /// Its arguments, its own name first.
    arguments: Vec<CString>,
    environment: Vec<Cow<'static, CStr>>,
    directory: Option<CString>,
}

impl Image {
    pub fn new<'a>(
        paths: Vec<OsString>,
        arguments: impl Iterator<Item = &'a OsStr>,
        environment: Vec<Cow<'static, CStr>>,
        directory: Option<&OsStr>,
    ) -> Result<Self, NulError> {
        let string = |string: &OsStr| CString::new(string.as_bytes());
        let paths = paths.into_iter().map(|path| CString::new(path.into_vec()));
        Ok(Self {
            paths: paths.collect::<Result<_, _>>()?,
            arguments: arguments.map(string).collect::<Result<_, _>>()?,
            environment,
            directory: directory.map(string).transpose()?,
        })
    }
}

/// Makes a process that leads a session and a group of its own, and so has no terminal, has these as its standard
/// input, output and error, calls `before`, and then executes a program. An error says why that failed; then there is
/// no process.
///
/// `before` must do nothing but system calls on what already exists: it takes no lock, allocates nothing, and does not
/// panic.
#[allow(unsafe_code)]
pub(super) fn spawn(
    image: &Image,
    streams: [BorrowedFd<'_>; 3],
    mut before: impl FnMut() -> Result<(), Errno>,
) -> io::Result<Pid> {
    let mut execution = Execution::new(image);
    let (mut stack, mut failed) = (vec![0; STACK_BYTES], None);
    let mut run = || {
        let prepared = prepare(image, streams).and_then(|()| before());
        prepared.and_then(|()| default_signals()).err().unwrap_or_else(|| execution.execute())
    };
    let child = Box::new(|| {
        failed = Some(run());
        1
    });
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let flags = CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK;
    // SAFETY: our thread waits until the process has a program or is gone, so the stack and all that is borrowed
    // outlive its use of them, and nobody else touches them. All signals are blocked in it until none has a handler.
    // What it runs allocates nothing and takes no lock, so nothing of ours stays half-done if it is killed.
    let made = unsafe { clone(child, &mut stack, flags, Some(libc::SIGCHLD)) };
    mask.thread_set_mask()?;
    let pid = made.map(|pid| Pid::from_raw(pid.as_raw()))?.ok_or(Errno::SRCH)?;
    match failed {
        None => Ok(pid),
        Some(reason) => {
            // It is gone already.
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
            Err(reason.into())
        }
    }
}

/// What a process does first, before its guardian's part.
fn prepare(image: &Image, [input, out, err]: [BorrowedFd<'_>; 3]) -> Result<(), Errno> {
    // If it shared our terminal, it would be stopped when it reads from that, and nothing would continue it.
    rustix::process::setsid()?;
    rustix::stdio::dup2_stdin(input)?;
    rustix::stdio::dup2_stdout(out)?;
    rustix::stdio::dup2_stderr(err)?;
    descriptors::restore()?;
    image.directory.as_deref().map_or(Ok(()), rustix::process::chdir)
}

/// An [`Image`] as the system takes it.
struct Execution<'a> {
    paths: &'a [CString],
    arguments: Vec<*const c_char>,
    /// The arguments of the shell, in case the program is a script. The second one is the script's path.
    script: Vec<*const c_char>,
    environment: Vec<*const c_char>,
}

impl<'a> Execution<'a> {
    fn new(image: &'a Image) -> Self {
        let pointers = |strings: &mut dyn Iterator<Item = *const c_char>| -> Vec<_> {
            strings.chain([ptr::null()]).collect()
        };
        let arguments = pointers(&mut image.arguments.iter().map(|string| string.as_ptr()));
        let environment = pointers(&mut image.environment.iter().map(|string| string.as_ptr()));
        let script = [SHELL.as_ptr(), ptr::null()];
        let script = script.into_iter().chain(arguments.iter().skip(1).copied()).collect();
        Self { paths: &image.paths, arguments, script, environment }
    }

    /// Executes the program, as `execvp` looks for it; returns why that failed.
    fn execute(&mut self) -> Errno {
        let mut reason = Errno::NOENT;
        for path in self.paths {
            let mut error = execute(path, &self.arguments, &self.environment);
            if error == Errno::NOEXEC {
                self.script[1] = path.as_ptr();
                error = execute(SHELL, &self.script, &self.environment);
            }
            match error {
                Errno::ACCESS => reason = error,
                absent if is_absent(absent) && reason == Errno::ACCESS => {}
                absent if is_absent(absent) => reason = absent,
                other => return other,
            }
        }
        reason
    }
}

/// Whether the next place is looked at, too.
fn is_absent(error: Errno) -> bool {
    let absent = [Errno::NOENT, Errno::NOTDIR, Errno::STALE, Errno::NODEV, Errno::TIMEDOUT];
    absent.contains(&error)
}

#[allow(unsafe_code)]
fn execute(path: &CStr, arguments: &[*const c_char], environment: &[*const c_char]) -> Errno {
    // SAFETY: both arrays end with a null pointer, and what they point to is borrowed by whoever waits for us.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    Errno::from_raw_os_error(nix::errno::Errno::last_raw())
}

/// Makes a process leave our session, and ignore the signals that end us, before it executes our program.
#[allow(unsafe_code)]
pub(super) fn detach(command: &mut Command) {
    let before_exec = || {
        rustix::process::setsid()?;
        default_signals()?;
        for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGPIPE, Signal::SIGTERM] {
            dispose(signal, SigHandler::SigIgn)?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes nothing but system calls (setsid, sigaction, sigprocmask): it
    // takes no lock and allocates nothing, and an error is a bare number.
    unsafe { command.pre_exec(before_exec) };
}

/// Makes a write to a pipe without a reader fail, instead of ending the process.
pub(super) fn ignore_broken_pipes() -> Result<(), Errno> {
    dispose(Signal::SIGPIPE, SigHandler::SigIgn)
}

/// Nothing blocked and nothing ignored, whatever we were started with.
fn default_signals() -> Result<(), Errno> {
    for signal in Signal::iterator() {
        if !matches!(signal, Signal::SIGKILL | Signal::SIGSTOP) {
            dispose(signal, SigHandler::SigDfl)?;
        }
    }
    SigSet::empty().thread_set_mask().map_err(errno)
}

#[allow(unsafe_code)]
fn dispose(signal: Signal, handler: SigHandler) -> Result<(), Errno> {
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: the callers ignore a signal or give it its default; no code runs on it.
    unsafe { nix::sys::signal::sigaction(signal, &action) }.map(drop).map_err(errno)
}

fn errno(error: nix::errno::Errno) -> Errno {
    Errno::from_raw_os_error(error as i32)
}
