//! The servers under measurement: started, filled, stopped.
//!
//! Called by the rows. Each server lives in a temporary directory of the row's.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::bare::key;
use tempfile::TempDir;

use crate::protocol::Protocol;

/// How long a server may take to be ready, or to have read a list.
const PATIENCE: Duration = Duration::from_secs(900);
/// How soon is looked whether it is; then half as often each time, for a look disturbs what is
/// measured.
const GLANCE: Duration = Duration::from_millis(5);
const GLANCE_MAX: Duration = Duration::from_millis(300);
/// The daemon's queue in its home, if it is a file.
const FILE: &str = "state.db";
/// Jobs that are put into beanstalkd in one write.
const PUT_AT_ONCE: usize = 1000;

/// A running server.
pub struct Server {
    child: Child,
    /// What it speaks.
    pub protocol: Protocol,
    /// Where it listens.
    pub socket: PathBuf,
    /// The directory of everything that is its own.
    home: PathBuf,
    /// Where its queue is: a file in that directory, or a URL.
    database: String,
    /// The program that was started.
    program: PathBuf,
}

impl Server {
    /// Starts shiftboss in `home`, which may hold a database and lists already.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn shiftboss(program: &Path, home: &Path, flags: &[&str]) -> io::Result<Self> {
        Self::serve(program, home, FILE, flags, Protocol::Classic)
    }

    /// The same with a queue on a PostgreSQL server, under a name of its own. It is spoken to as `shiftboss work` does.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn on_postgres(
        program: &Path,
        home: &Path,
        url: &str,
        name: &str,
        flags: &[&str],
    ) -> io::Result<Self> {
        let flags = [&["--daemon-name", name], flags].concat();
        Self::serve(program, home, url, &flags, Protocol::Leased)
    }

    /// A relay of the daemon that has this prefix on the broker. It is spoken to as `shiftboss work` does.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn relay(
        program: &Path,
        home: &Path,
        broker: &str,
        prefix: &str,
        flags: &[&str],
    ) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(["relay", "--name", "bench", "--broker-prefix", prefix]);
        command.args([broker, "input", "socket"]).args(flags);
        Self::start(command, program, Protocol::Leased, home, "")
    }

    fn serve(
        program: &Path,
        home: &Path,
        database: &str,
        flags: &[&str],
        protocol: Protocol,
    ) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(["serve", database, "input", "socket"]).args(flags);
        Self::start(command, program, protocol, home, database)
    }

    /// Starts beanstalkd in `home` with the given flags; `-b .` keeps its log there.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn beanstalkd(home: &Path, flags: &[&str]) -> io::Result<Self> {
        let program = Path::new("beanstalkd");
        let mut command = Command::new(program);
        command.arg("-l").arg(format!("unix:{}", home.join("socket").display()));
        command.args(flags);
        Self::start(command, program, Protocol::Beanstalkd, home, "")
    }

    fn start(
        mut command: Command,
        program: &Path,
        protocol: Protocol,
        home: &Path,
        database: &str,
    ) -> io::Result<Self> {
        let log = File::create(home.join("server.log"))?;
        let child = command.current_dir(home).stdout(Stdio::null()).stderr(log).spawn()?;
        let (socket, home) = (home.join("socket"), home.to_owned());
        let (program, database) = (program.to_owned(), database.to_owned());
        let mut server = Self { child, protocol, socket, home, database, program };
        server.wait(|server| Ok(UnixStream::connect(&server.socket).is_ok()))?;
        Ok(server)
    }

    /// Waits until something holds.
    ///
    /// # Errors
    /// When the server ended, or patience did.
    pub fn wait(&mut self, holds: impl Fn(&Self) -> io::Result<bool>) -> io::Result<()> {
        let (since, mut glance) = (Instant::now(), GLANCE);
        while !holds(self)? {
            self.check_running()?;
            if since.elapsed() > PATIENCE {
                return Err(self.failed()?);
            }
            std::thread::sleep(glance);
            glance = (glance * 2).min(GLANCE_MAX);
        }
        Ok(())
    }

    /// Looks whether it runs.
    ///
    /// # Errors
    /// When it has ended; with its log.
    pub fn check_running(&mut self) -> io::Result<()> {
        if self.child.try_wait()?.is_some() { Err(self.failed()?) } else { Ok(()) }
    }

    /// What it said.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn log(&self) -> io::Result<String> {
        fs::read_to_string(self.home.join("server.log"))
    }

    fn failed(&self) -> io::Result<io::Error> {
        let log = self.log()?;
        Ok(io::Error::other(format!("{:?} failed: {log}", self.program)))
    }

    /// Gives it `jobs` jobs and waits until it has them.
    ///
    /// # Errors
    /// When it does not take them.
    pub fn fill(&mut self, jobs: usize) -> io::Result<()> {
        match self.protocol {
            Protocol::Classic | Protocol::Leased => self.list("bench", jobs),
            Protocol::Beanstalkd => put(&self.socket, jobs),
        }
    }

    /// Has a fetcher list so many jobs.
    ///
    /// # Errors
    /// When the list is not read.
    pub fn list(&mut self, fetcher: &str, jobs: usize) -> io::Result<()> {
        let [part, whole] =
            ["txt.part", "txt"].map(|end| self.input(&format!("{fetcher}.1.{end}")));
        write_list(&part, jobs)?;
        fs::rename(part, whole)?;
        self.wait(|server| Ok(server.run(fetcher)?["complete"] == true))
    }

    /// The path of an input file.
    #[must_use]
    pub fn input(&self, name: &str) -> PathBuf {
        self.home.join("input").join(name)
    }

    /// What `status` tells of a fetcher.
    ///
    /// # Errors
    /// When `status` cannot be run.
    pub fn run(&self, fetcher: &str) -> io::Result<serde_json::Value> {
        let status = self.status()?;
        let fetchers = status["fetchers"].as_array().cloned().unwrap_or_default();
        Ok(fetchers.into_iter().find(|run| run["name"] == fetcher).unwrap_or_default())
    }

    /// What `shiftboss status --json` tells.
    ///
    /// # Errors
    /// When it cannot be run.
    pub fn status(&self) -> io::Result<serde_json::Value> {
        let mut status = Command::new(&self.program);
        status.current_dir(&self.home).args(["status", "-t", &self.database, "--json"]);
        let told = status.output()?;
        serde_json::from_slice(&told.stdout).map_err(io::Error::other)
    }

    /// Resident memory in MB: now, and the most it ever was.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn memory(&self) -> io::Result<(f64, f64)> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name));
            let kib = line.and_then(|line| line.split_whitespace().nth(1)).unwrap_or("0");
            kib.parse::<f64>().unwrap_or(0.0) / 1024.0
        };
        Ok((field("VmRSS:"), field("VmHWM:")))
    }

    /// Kills it, and returns when it is gone.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Stops it cleanly.
    ///
    /// # Errors
    /// When it cannot be told, or ends otherwise than with exit code 0.
    pub fn stop(mut self) -> io::Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let status = self.child.wait()?;
        let text = || format!("{:?} was told to stop and ended with {status}", self.program);
        if status.success() { Ok(()) } else { Err(io::Error::other(text())) }
    }
}

/// A new directory for a daemon.
///
/// # Errors
/// When it cannot be made.
pub fn new_home() -> io::Result<TempDir> {
    let home = tempfile::tempdir()?;
    fs::create_dir(home.path().join("input"))?;
    Ok(home)
}

/// Writes a list of `lines` lines of 50 bytes.
///
/// # Errors
/// When the disk does not take it.
pub fn write_list(path: &Path, lines: usize) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    for index in 0..lines {
        writeln!(out, "{} 1.{:07} -> 2.{:06}", key(index), index % 1_000, index % 777)?;
    }
    out.flush()
}

fn put(socket: &Path, jobs: usize) -> io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    let mut answers = BufReader::new(stream.try_clone()?).lines();
    for from in (0..jobs).step_by(PUT_AT_ONCE) {
        let until = jobs.min(from + PUT_AT_ONCE);
        let puts = (from..until).map(|index| {
            let body = format!("{} 1.0 -> 2.0", key(index));
            format!("put 1 0 600 {}\r\n{body}\r\n", body.len())
        });
        stream.write_all(puts.collect::<String>().as_bytes())?;
        for _ in from..until {
            let answer = answers.next().ok_or(io::ErrorKind::UnexpectedEof)??;
            if !answer.starts_with("INSERTED") {
                return Err(io::Error::other(format!("put: {answer}")));
            }
        }
    }
    Ok(())
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; its directory goes anyway.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
