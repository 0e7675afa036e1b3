//! A PostgreSQL server of a test's own, in a temporary directory: started, frozen, stopped in each way, started again, copied.
//!
//! It is a child of the thread that started it, and ends with it. Run by root it is the user `postgres`, for a server refuses
//! to be root's.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::processes::{send, signal_all};

/// The role that owns all; others are made by who needs them.
pub const ADMIN: &str = "shiftboss";
/// A role that is no administrator, and its database: see [`PostgresServer::make_queue`].
pub const PLAIN: &str = "plain";
pub const QUEUE: &str = "queue";
/// How long a server may take to start, with its recovery, or to stop.
const PATIENCE: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(10);

/// How a server is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Transactions are rolled back, and all is written.
    Fast,
    /// At once: the next start recovers.
    Immediate,
    /// SIGKILL of all its processes.
    Kill,
}

/// Stopped, and deleted, when it is dropped.
pub struct PostgresServer {
    home: TempDir,
    programs: PathBuf,
    settings: Vec<String>,
    child: Option<Child>,
}

impl PostgresServer {
    /// Makes a server and starts it, with these settings (`name=value`) beside the usual ones.
    ///
    /// # Errors
    /// When PostgreSQL is not installed, or it does not start.
    pub fn start(settings: &[&str]) -> io::Result<Self> {
        let server = Self::new(settings)?;
        let data = server.data();
        let made = server.program("initdb").arg("-D").arg(&data).args(INITDB).output()?;
        checked("initdb", made)?;
        server.started()
    }

    /// A copy of this one, which follows it, with these settings.
    ///
    /// # Errors
    /// When the copy cannot be made, or it does not start.
    pub fn replica(&self, settings: &[&str]) -> io::Result<Self> {
        let server = Self::new(settings)?;
        let mut copy = server.program("pg_basebackup");
        let from = format!("host={} user={ADMIN} application_name=replica", self.home().display());
        copy.args(["-R", "-c", "fast", "-X", "stream", "-d", &from, "-D"]).arg(server.data());
        checked("pg_basebackup", copy.output()?)?;
        server.started()
    }

    fn new(settings: &[&str]) -> io::Result<Self> {
        let home = tempfile::tempdir()?;
        // Its name is not guessed, and it may be entered: the server is another user.
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o711))?;
        if let Some((user, group)) = other_user()? {
            chown(home.path(), Some(user), Some(group))?;
        }
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        Ok(Self { home, programs: programs()?, settings, child: None })
    }

    fn started(mut self) -> io::Result<Self> {
        self.run()?;
        Ok(self)
    }

    /// Starts it after it was stopped, and waits until it lets somebody in.
    ///
    /// # Errors
    /// When it does not start, with its log.
    pub fn run(&mut self) -> io::Result<()> {
        let log = fs::File::options().append(true).create(true).open(self.home().join("log"))?;
        let mut command = self.program("postgres");
        command.arg("-D").arg(self.data()).arg("-k").arg(self.home());
        for setting in USUAL.iter().copied().chain(self.settings.iter().map(String::as_str)) {
            command.args(["-c", setting]);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?;
        let (since, pid) = (Instant::now(), child.id().to_string());
        self.child = Some(child);
        while !self.lets_in(&pid) {
            let ended = self.child.as_mut().map(Child::try_wait).transpose()?.flatten();
            if ended.is_some() || since.elapsed() > PATIENCE {
                return Err(io::Error::other(format!("the server does not start: {}", self.log())));
            }
            thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// A replica that is not a server of its own yet lets readers in.
    fn lets_in(&self, pid: &str) -> bool {
        let told = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let mut lines = told.lines();
        let is_own = lines.next() == Some(pid);
        is_own && matches!(lines.nth(6).map(str::trim), Some("ready" | "standby"))
    }

    /// Stops it, and returns when it is gone.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(&mut self, how: Stop) -> io::Result<()> {
        let pid = self.pid()?;
        match how {
            Stop::Fast => send(pid, Signal::INT)?,
            Stop::Immediate => send(pid, Signal::QUIT)?,
            Stop::Kill => signal_all(pid, Signal::KILL)?,
        }
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let since = Instant::now();
        while child.try_wait()?.is_none() {
            if since.elapsed() > PATIENCE {
                signal_all(pid, Signal::KILL)?;
            }
            thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// Freezes all its processes: it accepts connections in its kernel, and answers nothing.
    ///
    /// # Errors
    /// When it is not running.
    pub fn freeze(&self) -> io::Result<()> {
        signal_all(self.pid()?, Signal::STOP)
    }

    /// # Errors
    /// When it is not running.
    pub fn thaw(&self) -> io::Result<()> {
        signal_all(self.pid()?, Signal::CONT)
    }

    /// Makes a replica a server of its own.
    ///
    /// # Errors
    /// When it does not become one.
    pub fn promote(&self) -> io::Result<()> {
        checked("promote", self.sql("postgres", "SELECT pg_promote()")?).map(drop)
    }

    /// The URL of a database for a role, by the server's socket.
    #[must_use]
    pub fn url(&self, role: &str, database: &str) -> String {
        let host = self.home().display().to_string().replace('/', "%2F");
        format!("postgres://{role}@{host}/{database}")
    }

    /// Makes the database [`QUEUE`] for the role [`PLAIN`]; on this disk, if one is given.
    ///
    /// # Errors
    /// What the server or the disk says.
    pub fn make_queue(&self, disk: Option<&Path>) -> io::Result<()> {
        let sql = |statement: &str| self.query("postgres", statement);
        sql(&format!("CREATE ROLE {PLAIN} LOGIN"))?;
        let mut place = "";
        if let Some(disk) = disk {
            let tables = disk.join("tables");
            fs::create_dir(&tables)?;
            if let Some((user, group)) = other_user()? {
                chown(&tables, Some(user), Some(group))?;
            }
            let location = tables.display();
            sql(&format!("CREATE TABLESPACE small OWNER {PLAIN} LOCATION '{location}'"))?;
            place = "TABLESPACE small";
        }
        sql(&format!("CREATE DATABASE {QUEUE} OWNER {PLAIN} TEMPLATE template0 {place}")).map(drop)
    }

    /// Ends all connections of a role.
    ///
    /// # Errors
    /// What the server says.
    pub fn end_connections(&self, role: &str) -> io::Result<()> {
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename";
        self.query("postgres", &format!("{end} = '{role}'")).map(drop)
    }

    /// Runs statements as an administrator, and returns the rows: a line each, columns separated by `|`.
    ///
    /// # Errors
    /// What the server says.
    pub fn query(&self, database: &str, statements: &str) -> io::Result<String> {
        checked(statements, self.sql(database, statements)?)
    }

    fn sql(&self, database: &str, statements: &str) -> io::Result<Output> {
        self.psql(ADMIN, database, statements).output()
    }

    /// A client that runs these statements, to be started.
    #[must_use]
    pub fn psql(&self, role: &str, database: &str, statements: &str) -> Command {
        let mut command = Command::new(self.programs.join("psql"));
        command.args(["-XqAt", "-F", "|", "-v", "ON_ERROR_STOP=1", "-c", statements]);
        command.arg(self.url(role, database)).stdin(Stdio::null());
        command
    }

    /// The directory that all of it is in.
    #[must_use]
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// What it said.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.home().join("log")).unwrap_or_default()
    }

    /// # Errors
    /// When it is not running.
    pub fn pid(&self) -> io::Result<Pid> {
        let child = self.child.as_ref().map(Pid::from_child);
        child.ok_or_else(|| io::Error::other("the server is stopped"))
    }

    fn data(&self) -> PathBuf {
        self.home().join("data")
    }

    /// A program of the server's, which ends with the thread that starts it.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "QUIT"]).current_dir("/");
        if rustix::process::geteuid().is_root() {
            command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]);
        }
        command.arg("--").arg(self.programs.join(name));
        command
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if self.pid().is_ok() {
            // It may be frozen, and ends anyhow.
            let _ = self.thaw();
            let _ = self.stop(Stop::Kill);
        }
    }
}

const USER: &str = "postgres";
const INITDB: [&str; 5] = ["-U", ADMIN, "-Atrust", "--encoding=UTF8", "--locale=C.UTF-8"];
const USUAL: [&str; 3] =
    ["listen_addresses=", "shared_buffers=64MB", "log_line_prefix=%m [%p] %a "];

/// Fills a disk to its last page with a file there.
///
/// # Errors
/// When the file cannot be made.
pub fn fill(filler: &Path) -> io::Result<()> {
    let mut file = fs::File::create(filler)?;
    let mut block = vec![0; 1 << 16];
    while !block.is_empty() {
        if file.write_all(&block).is_err() {
            block.truncate(block.len() / 2);
        }
    }
    Ok(())
}

/// The newest programs of a server that Debian has installed, or those in the path.
fn programs() -> io::Result<PathBuf> {
    let version = |path: &PathBuf| {
        let version = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        version.and_then(|version| version.parse::<u32>().ok())
    };
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let places = debian.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    let newest = places.filter(|place| place.join("initdb").exists()).max_by_key(version);
    let path = std::env::var_os("PATH").unwrap_or_default();
    newest
        .or_else(|| std::env::split_paths(&path).find(|place| place.join("initdb").exists()))
        .ok_or_else(|| {
            io::Error::other("there is no PostgreSQL server: install Debian's postgresql")
        })
}

/// The user and the group that a server is when root starts it.
fn other_user() -> io::Result<Option<(u32, u32)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd")?;
    let mut entries = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = entries.find(|entry| entry.first() == Some(&USER));
    let number = |at: usize| found.as_ref()?.get(at)?.parse().ok();
    let both = number(2).zip(number(3));
    both.map(Some).ok_or_else(|| io::Error::other(format!("there is no user {USER}")))
}

/// What a command printed.
fn checked(what: &str, output: Output) -> io::Result<String> {
    if output.status.success() && output.status.signal().is_none() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{what}: {said}")))
}
