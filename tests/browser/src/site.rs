//! A daemon, work of its own, and its page: processes in a temporary directory, which end with it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The token of the page.
pub const TOKEN: &str = "0123456789abcdef";

pub struct Site {
    /// `http://127.0.0.1:PORT/`.
    pub address: String,
    directory: TempDir,
    processes: Vec<Child>,
}

/// Waits until something holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        #[allow(clippy::disallowed_methods)] // No actor is here.
        sleep(Duration::from_millis(20));
    }
}

impl Site {
    /// A daemon with a list of four keys, of which one was done, one failed, one is in flight and one waits; a single task that failed
    /// and is tried again; a fetcher that failed; and its page.
    #[must_use]
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("input")).unwrap();
        let mut site = Self { address: String::new(), directory, processes: Vec::new() };
        let fetcher = "[[fetcher]]\nname = 'broken'\ncommand = ['false']\nevery = '9h'\n";
        fs::write(site.path("fetchers.toml"), fetcher).unwrap();
        site.start("serve", &["--config", "fetchers.toml", "state.db", "input", "socket"]);
        let socket = site.path("socket");
        wait_until("the daemon listens", || socket.exists());
        site.run(&["add", "-t", "socket", "single", "5"]);
        site.run(&["work", "--once", "-t", "socket", "--", "false"]);
        let list = "alpha https://example.org/1\nbravo 2\nbravado 3\n<b>&\"quoted\" 4\n";
        fs::write(site.path("input/list.1.txt.part"), list).unwrap();
        fs::rename(site.path("input/list.1.txt.part"), site.path("input/list.1.txt")).unwrap();
        wait_until("the list is in", || {
            site.run(&["status", "-t", "socket"]).contains("4 waiting")
        });
        let script = "echo \"$SHIFTBOSS_KEY wrote this\"; [ \"$SHIFTBOSS_KEY\" != bravo ]";
        site.run(&[
            "work",
            "--max-jobs",
            "2",
            "--log-dir",
            "logs",
            "-t",
            "socket",
            "--",
            "sh",
            "-c",
            script,
        ]);
        site.run(&["ask", "-t", "socket", "READY"]);
        fs::write(site.path("token"), TOKEN).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(site.path("token"), mode).unwrap();
        site.start_page();
        site
    }

    fn start_page(&mut self) {
        let listen = ["--listen", "127.0.0.1:0", "--output", "logs/{day}/{key}.log"];
        self.start("web", &[&listen[..], &["--token-file", "token", "-t", "socket"]].concat());
        let log = self.path("web.log");
        wait_until("the page listens", || {
            let said = fs::read_to_string(&log).unwrap();
            let found =
                said.split("Listening: ").nth(1).and_then(|rest| rest.split_whitespace().next());
            self.address = found.unwrap_or_default().to_owned();
            !self.address.is_empty()
        });
    }

    fn start(&mut self, command: &str, arguments: &[&str]) {
        let log = File::create(self.path(&format!("{command}.log"))).unwrap();
        let started =
            self.program().arg(command).args(arguments).stdout(Stdio::null()).stderr(log).spawn();
        self.processes.push(started.unwrap());
    }

    /// Runs a command to its end; what it printed.
    pub fn run(&self, arguments: &[&str]) -> String {
        let output = self.program().args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn program(&self) -> Command {
        let program = std::env::var_os("SHIFTBOSS").expect("make test-browser names the program");
        let mut command = Command::new(program);
        command.current_dir(self.directory.path());
        command
    }

    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        Path::new(self.directory.path()).join(name)
    }
}

impl Default for Site {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for mut process in self.processes.drain(..).rev() {
            // It may have ended by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
