//! Commands whose output nobody reads, as behind a pager that waits.

use std::fs;
use std::io::{PipeReader, PipeWriter, Write};
use std::process::{Child, Command};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{Action, tcflow};

use super::terminal::terminal;
use super::wait_within;

/// A pipe without room, so that whoever writes to it at all is stopped.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'\n'; 4096]).is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, writer)
}

/// A command whose output nobody reads; killed when dropped.
pub struct Unread<R> {
    child: Child,
    pub reader: R,
}

impl Unread<PipeReader> {
    pub fn start(mut command: Command) -> Self {
        let (reader, writer) = full_pipe();
        command.stdout(writer.try_clone().unwrap()).stderr(writer);
        Self { child: command.spawn().unwrap(), reader }
    }
}

impl Unread<fs::File> {
    /// On a terminal that is stopped (Ctrl-S).
    pub fn start_on_terminal(mut command: Command) -> Self {
        let (given, reader) = terminal();
        tcflow(&given, Action::OOff).unwrap();
        command.env("TERM", "xterm").stdout(given.try_clone().unwrap()).stderr(given);
        Self { child: command.spawn().unwrap(), reader }
    }
}

impl<R> Unread<R> {
    /// SIGTERM, after which it ends.
    pub fn stop(&mut self, what: &str) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let child = &mut self.child;
        wait_within(Duration::from_secs(15), what, || child.try_wait().unwrap().is_some());
    }
}

impl<R> Drop for Unread<R> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
