//! The first process of a container (PID 1): processes whose parent has ended become its children, and it must reap
//! them. So it runs the command in a child, passes signals on to that child, reaps every child that ends, and ends as
//! the command does. Everything else happens in the child, which waits only for its own children.
//!
//! [`crate::program`] calls it before anything else. If we are not the first process it does nothing.

use std::env;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, wait};
use tokio::signal::unix::{SignalKind, signal};

use shiftboss_runner::signals::{Listener, SIGNAL_BASE};

const OUR_PROGRAM: &str = "/proc/self/exe";
/// Variables of an init system that name the process they are for: the child has another process id.
const FOR_PROCESS: [&str; 2] = ["LISTEN_PID", "WATCHDOG_PID"];
/// Signals that a container's engine or its user sends.
const PASSED_ON: [Signal; 6] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];

/// Runs this command line in a child if we are the first process, and returns its exit code. `None`: run the command
/// here, because we are not the first, or because no child can be made.
#[must_use]
pub fn run() -> Option<u8> {
    if !getpid().is_init() {
        return None;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(attend()).ok()
}

async fn attend() -> io::Result<u8> {
    let mut ended = signal(SignalKind::child())?;
    let kind = |signal: Signal| SignalKind::from_raw(signal.as_raw());
    let heard = PASSED_ON.map(|signal| Ok((signal, Listener::new(kind(signal))?)));
    let heard: Vec<(Signal, Listener)> = heard.into_iter().collect::<io::Result<_>>()?;
    // By its own path if that still exists: a process gets its name from that.
    let path = env::current_exe().ok().filter(|path| path.exists());
    let mut command = Command::new(path.unwrap_or_else(|| OUR_PROGRAM.into()));
    let mut words = env::args_os();
    command.arg0(words.next().unwrap_or_default()).args(words);
    let is_ours = |name: &&&str| env::var_os(name).is_some_and(|pid| pid == "1");
    FOR_PROCESS.iter().filter(is_ours).for_each(|name| _ = command.env_remove(name));
    let child = Pid::from_child(&command.spawn()?);
    for (signal, mut listener) in heard {
        tokio::spawn(async move {
            loop {
                listener.recv().await;
                // The child exists until it is reaped below, and then we end.
                let _ = kill_process(child, signal);
            }
        });
    }
    loop {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == child {
                return Ok(exit_code(status));
            }
        }
        ended.recv().await;
    }
}

fn exit_code(status: WaitStatus) -> u8 {
    let signalled = || status.terminating_signal().map(|number| SIGNAL_BASE + number);
    status
        .exit_status()
        .or_else(signalled)
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
}
