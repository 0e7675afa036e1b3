//! The built daemon as a process: start, signals, kill, log, memory.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{wait_until, wait_within};

/// A running `shiftboss serve`; killed when dropped. Shows its log when the test fails.
pub struct Daemon {
    child: Child,
    log: PathBuf,
    socket: PathBuf,
}

impl Daemon {
    /// Runs `command`, its standard error going to a file in `dir`.
    pub fn spawn(mut command: Command, dir: &Path, socket: &Path) -> Self {
        command.stdout(Stdio::null());
        Self::spawn_shown(command, dir, socket)
    }

    /// The same with standard output as the command has it.
    pub fn spawn_shown(mut command: Command, dir: &Path, socket: &Path) -> Self {
        let mut builder = tempfile::Builder::new();
        let file = builder.prefix("stderr").tempfile_in(dir).unwrap();
        let (file, log) = file.keep().unwrap();
        command.stderr(file);
        let child = command.spawn().unwrap();
        let socket = socket.to_path_buf();
        Self { child, log, socket }
    }

    /// Waits until the socket accepts.
    pub fn ready(mut self) -> Self {
        wait_until("the daemon accepts", || {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the daemon ended at its start: {status}\n{}", self.log());
            }
            UnixStream::connect(&self.socket).is_ok()
        });
        self
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Freezes the process; returns when the kernel says that it is stopped.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        wait_until("the daemon is stopped", || self.status("State:") == "T");
    }

    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// `kill -9`, and waits for the end.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM; the daemon must end with code 0 within five seconds. Returns its log.
    pub fn stop(mut self) -> String {
        self.signal(Signal::TERM);
        let status = self.exit_within(Duration::from_secs(5));
        assert_eq!(status.code(), Some(0), "{}", self.log());
        self.log()
    }

    /// Waits until the process ends by itself.
    pub fn exit(&mut self) -> ExitStatus {
        self.exit_within(super::wait::DEADLINE)
    }

    pub fn exit_within(&mut self, limit: Duration) -> ExitStatus {
        let mut status = None;
        wait_within(limit, "the daemon ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Standard error so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap()).into_owned()
    }

    /// The log's warnings that contain all of `words`.
    pub fn warnings(&self, words: &[&str]) -> Vec<String> {
        let log = self.log();
        let has_all = |line: &&str| line.contains("WARN") && words.iter().all(|w| line.contains(w));
        log.lines().filter(has_all).map(str::to_owned).collect()
    }

    /// Memory in KiB: now (`VmRSS:`), or at most until now (`VmHWM:`).
    pub fn memory_kib(&self, field: &str) -> u64 {
        self.status(field).parse().unwrap()
    }

    /// Whether it has a handler of a signal.
    pub fn handles(&self, signal: Signal) -> bool {
        let mask = u64::from_str_radix(&self.status("SigCgt:"), 16).unwrap_or(0);
        mask >> (signal.as_raw() - 1) & 1 == 1
    }

    /// The first word of a field of `/proc/PID/status`.
    fn status(&self, field: &str) -> String {
        let path = format!("/proc/{}/status", self.pid().as_raw_nonzero());
        let text = fs::read_to_string(path).unwrap_or_default();
        let value = text.lines().find_map(|line| line.strip_prefix(field));
        let word = value.and_then(|value| value.split_whitespace().next());
        word.unwrap_or("?").to_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let from = log.len().saturating_sub(6_000);
            let from = (from..log.len()).find(|&i| log.is_char_boundary(i));
            eprintln!("--- the daemon's log:\n{}\n---", &log[from.unwrap_or(0)..]);
        }
    }
}
