//! A directory of its own for each test: database, input directory and socket, and the things
//! that fetchers do with files.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

use super::Daemon;
use super::nobody::{as_nobody, unprivileged};
use super::server::Database;

/// A daemon or a relay among others, and its place.
pub struct Peer {
    // Ended before its directory goes.
    pub daemon: Daemon,
    pub site: Site,
}

/// Where one test runs. All of it is deleted at the end.
pub struct Site {
    dir: TempDir,
    server: OnceLock<Option<Database>>,
}

impl Site {
    /// A place with an empty input directory.
    pub fn new() -> Self {
        let site = Self::bare();
        fs::create_dir(site.input()).unwrap();
        site
    }

    /// A place with nothing in it.
    pub fn bare() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), server: OnceLock::new() }
    }

    /// `name` in the directory of this test.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// SQLite's file. A test that asks for it is about files: where others of its module run on a server it is in a module
    /// `sqlite`.
    pub fn database(&self) -> PathBuf {
        assert!(self.server().is_none(), "this test is about SQLite: see tests/postgres.sh");
        self.path("state.db")
    }

    /// The database as commands take it: a file, or a URL where the tests have a server.
    pub fn target(&self) -> PathBuf {
        self.server().map_or_else(|| self.path("state.db"), |server| server.url().into())
    }

    /// The database on a server, where the tests have one.
    pub fn server(&self) -> Option<&Database> {
        self.server.get_or_init(Database::new).as_ref()
    }

    pub fn input(&self) -> PathBuf {
        self.path("input")
    }

    pub fn socket(&self) -> PathBuf {
        self.path("socket")
    }

    /// `name` in the input directory.
    pub fn file(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.input().join(Path::new(name.as_ref()))
    }

    /// Makes the input file `name` (or empties it) and writes `text` with one write.
    pub fn write(&self, name: impl AsRef<OsStr>, text: impl AsRef<[u8]>) {
        fs::write(self.file(name), text).unwrap();
    }

    /// Makes a file in the site's directory that nobody else may read.
    pub fn write_private(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Appends `text` to the input file `name` with one write; makes it if it is not there.
    pub fn append(&self, name: impl AsRef<OsStr>, text: impl AsRef<[u8]>) {
        let mut options = fs::OpenOptions::new();
        let mut file = options.append(true).create(true).open(self.file(name)).unwrap();
        file.write_all(text.as_ref()).unwrap();
    }

    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) {
        fs::rename(self.file(from), self.file(to)).unwrap();
    }

    pub fn remove(&self, name: impl AsRef<OsStr>) {
        fs::remove_file(self.file(name)).unwrap();
    }

    /// What a fetcher's script does with a whole list: writes the `.part`, removes its older
    /// complete lists, and renames (spec 1).
    pub fn deliver(&self, fetcher: &str, started: i64, text: impl AsRef<[u8]>) {
        let part = format!("{fetcher}.{started}.txt.part");
        self.write(&part, text);
        for entry in fs::read_dir(self.input()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.starts_with(&format!("{fetcher}.")) && name.ends_with(".txt") {
                self.remove(name);
            }
        }
        self.rename(&part, format!("{fetcher}.{started}.txt"));
    }

    /// `shiftboss` with this database as its target, and no other setting taken over from the environment.
    pub fn program(&self) -> Command {
        self.program_of(env!("CARGO_BIN_EXE_shiftboss"))
    }

    /// The same of another program.
    pub fn program_of(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for name in [
            "RUST_LOG",
            "NOTIFY_SOCKET",
            "WATCHDOG_USEC",
            "LISTEN_FDS",
            "SHIFTBOSS_CONFIG",
            "PGPASSWORD",
            "PGPASSFILE",
        ] {
            command.env_remove(name);
        }
        command.env("SHIFTBOSS_TARGET", self.target());
        command.stdin(Stdio::null()).current_dir(self.dir.path());
        command
    }

    /// As [`Site::serve`], but without root's right to read and write everything, which would
    /// make every test of permissions pass.
    pub fn serve_unprivileged(&self, options: &[&str]) -> Command {
        self.unprivileged(self.serve(options))
    }

    /// A command of ours as a user who has nothing to do with the site, but may look into it. Only root can play
    /// him.
    pub fn as_somebody_else(&self, arguments: &[&str]) -> Command {
        let is_root = rustix::process::geteuid().is_root();
        assert!(is_root, "this test plays another user: begin it with root!()");
        fs::set_permissions(self.path("."), fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = self.program();
        command.args(arguments);
        as_nobody(self.dir.path(), &command)
    }

    /// A command of ours with no more rights than a user has; all there is becomes that user's.
    pub fn unprivileged(&self, command: Command) -> Command {
        unprivileged(self.dir.path(), command)
    }

    /// The command line `shiftboss serve DATABASE INPUT_DIR SOCKET options...`.
    pub fn serve(&self, options: &[&str]) -> Command {
        let mut command = self.program();
        command.arg("serve").args([self.target(), self.input(), self.socket()]).args(options);
        command
    }

    /// The daemon run by `script`, a shell's, in which "$@" is the daemon's command line.
    pub fn through_shell(&self, script: &str, options: &[&str]) -> Command {
        let serve = self.serve(options);
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).arg(serve.get_program()).args(serve.get_args());
        shell.stdin(Stdio::null());
        shell
    }

    /// A place whose daemon has read a complete list of these lines.
    pub fn serving(list: &str, options: &[&str]) -> (Self, Daemon) {
        let site = Self::new();
        site.write("f.1.txt", list);
        let daemon = site.start_with(options);
        site.wait_count(list.lines().count());
        (site, daemon)
    }

    /// A place whose daemon has nothing to do yet.
    pub fn running(options: &[&str]) -> (Self, Daemon) {
        let site = Self::new();
        let daemon = site.start_with(options);
        (site, daemon)
    }

    /// Starts the daemon and waits until it accepts.
    pub fn start(&self) -> Daemon {
        self.start_with(&[])
    }

    /// Starts the daemon with `options` and waits until it accepts.
    pub fn start_with(&self, options: &[&str]) -> Daemon {
        self.spawn(self.serve(options)).ready()
    }

    /// Runs a daemon's command line without waiting for anything.
    pub fn spawn(&self, command: Command) -> Daemon {
        Daemon::spawn(command, self.dir.path(), &self.socket())
    }

    /// The same with standard output as the command has it: for what is on a terminal.
    pub fn spawn_shown(&self, command: Command) -> Daemon {
        Daemon::spawn_shown(command, self.dir.path(), &self.socket())
    }

    /// Runs a command that must end by itself, and returns its exit code and standard error.
    pub fn refused(&self, command: Command) -> (i32, String) {
        let mut daemon = self.spawn(command);
        let status = daemon.exit();
        (status.code().unwrap_or(-1), daemon.log())
    }

    /// Runs `shiftboss` with `arguments` to its end; `state.db` is the database, wherever that is.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let url = self.server().map(Database::url);
        let place = |word: &&str| match &url {
            Some(url) if *word == "state.db" => url.clone(),
            _ => (*word).to_owned(),
        };
        self.program().args(arguments.iter().map(place)).output().unwrap()
    }

    /// `shiftboss status --json -t TARGET`.
    pub fn status_of(&self, target: &str) -> Value {
        let output = self.run(&["status", "--json", "-t", target]);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The same of the database.
    pub fn status(&self) -> Value {
        self.status_of("state.db")
    }

    /// Its input directory is lost.
    pub fn is_input_lost(&self) -> bool {
        self.status()["directory_lost_since"].is_i64()
    }
}
