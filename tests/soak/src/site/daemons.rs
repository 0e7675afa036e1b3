//! One of the daemons, or relays: a process that is killed, frozen, stopped and started again under its name.

use std::fs::{self, File};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;
use shiftboss_testbed::clock;
use shiftboss_testbed::processes::send;
use shiftboss_testbed::proxy::Proxy;

/// Last lines of a log that are shown.
const LINES_SHOWN: usize = 15;
/// The exit codes of one that cannot reach its server when it starts, or whose name the last process seems to have; and when it
/// is started again.
const UNAVAILABLE: [i32; 2] = [69, 75];
const START_EVERY: Duration = Duration::from_millis(500);

/// With its directory and its proxy.
pub struct Daemon {
    pub name: String,
    /// Between it and its server, if it has one.
    pub proxy: Option<Proxy>,
    home: PathBuf,
    program: PathBuf,
    arguments: Vec<String>,
    /// How far its clock is off.
    clock: Option<&'static str>,
    child: Option<Child>,
    /// When it was started, until it accepts workers.
    starting: Option<Instant>,
}

impl Daemon {
    /// Makes its directory and starts it.
    pub fn new(
        name: &str,
        program: &Path,
        home: &Path,
        proxy: Option<Proxy>,
        arguments: Vec<String>,
        clock: Option<&'static str>,
    ) -> io::Result<Self> {
        let (name, home, program) = (name.to_owned(), home.join(name), program.to_owned());
        fs::create_dir_all(home.join("input"))?;
        let mut daemon =
            Self { name, proxy, home, program, arguments, clock, child: None, starting: None };
        daemon.run()?;
        Ok(daemon)
    }

    /// Starts it, if it does not run.
    pub fn run(&mut self) -> io::Result<()> {
        if self.child.is_some() {
            return Ok(());
        }
        let log = File::options().append(true).create(true).open(self.home.join("log"))?;
        let mut command = Command::new(&self.program);
        if let Some(offset) = self.clock {
            clock::set(&mut command, offset)?;
        }
        command.args(&self.arguments).current_dir(&self.home);
        self.child = Some(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?);
        self.starting = Some(Instant::now());
        Ok(())
    }

    /// Does what an init system does: one that could not reach its server when it started is started again.
    pub fn watch(&mut self) -> io::Result<()> {
        if self.starting.is_some() && UnixStream::connect(self.path("socket")).is_ok() {
            self.starting = None;
        }
        let Some(child) = &mut self.child else { return Ok(()) };
        let Some(status) = child.try_wait()? else { return Ok(()) };
        let is_away = status.code().is_some_and(|code| UNAVAILABLE.contains(&code));
        let starting = self.starting.filter(|_| is_away);
        if starting.is_some_and(|since| since.elapsed() <= START_EVERY) {
            return Ok(());
        }
        self.child = None;
        self.run()?;
        if starting.is_some() {
            return Ok(());
        }
        Err(io::Error::other(format!("{} ended with {status}:\n{}", self.name, self.log_end())))
    }

    /// Whether it accepts workers.
    pub fn is_up(&self) -> bool {
        self.starting.is_none()
    }

    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        self.child.as_ref().map_or(Ok(()), |child| send(Pid::from_child(child), signal))
    }

    /// Ends it by a signal, and waits for that.
    pub fn end(&mut self, signal: Signal, codes: &[i32]) -> io::Result<()> {
        self.signal(signal)?;
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let status = child.wait()?;
        if signal == Signal::KILL || status.code().is_some_and(|code| codes.contains(&code)) {
            return Ok(());
        }
        let text = format!("{} was told to stop: {status}\n{}", self.name, self.log_end());
        Err(io::Error::other(text))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    /// What `shiftboss status --json` says of its database.
    pub fn status(&self) -> io::Result<Value> {
        let mut status = Command::new(&self.program);
        status.args(["status", "-t", "state.db", "--json"]).current_dir(&self.home);
        serde_json::from_slice(&status.output()?.stdout).map_err(io::Error::other)
    }

    /// Resident memory in MB; none while it does not run.
    pub fn memory(&self) -> io::Result<f64> {
        let Some(child) = &self.child else { return Ok(0.0) };
        let status = fs::read_to_string(format!("/proc/{}/status", child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).unwrap_or("0");
        Ok(kib.parse::<f64>().unwrap_or(0.0) / 1024.0)
    }

    /// The last lines of its log.
    pub fn log_end(&self) -> String {
        let log = fs::read_to_string(self.home.join("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.end(Signal::KILL, &[]);
    }
}
