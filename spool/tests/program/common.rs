//! A directory of its own for each test, and what these tests share with those of `shiftboss`.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

#[path = "../../../tests/common/left.rs"]
#[allow(dead_code, reason = "each program's tests use their own part")]
pub mod left;
#[path = "../../../tests/common/random.rs"]
pub mod random;
#[path = "../../../tests/common/terminal.rs"]
pub mod terminal;
#[path = "../../../tests/common/wait.rs"]
#[allow(dead_code, reason = "each program's tests use their own part")]
pub mod wait;

pub use wait::{wait_until, wait_within};

/// The user without rights that tests of permissions run as when they are root.
const NOBODY: u32 = 65_534;

/// Where one test runs. All of it is deleted at the end.
pub struct Site(TempDir);

impl Site {
    pub fn bare() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `shiftspool`, in the site's directory.
    pub fn program(&self) -> Command {
        self.command(env!("CARGO_BIN_EXE_shiftspool").as_ref())
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_remove("RUST_LOG").stdin(Stdio::null()).current_dir(self.0.path());
        command
    }

    /// A command of ours with no more rights than a user has; all there is becomes that user's.
    pub fn unprivileged(&self, command: Command) -> Command {
        if !rustix::process::geteuid().is_root() {
            return command;
        }
        let program = self.path("program");
        if !program.exists() {
            fs::copy(command.get_program(), &program).unwrap();
        }
        give_away(self.0.path());
        let mut unprivileged = self.command(&program);
        unprivileged.args(command.get_args()).uid(NOBODY).gid(NOBODY);
        unprivileged
    }
}

fn give_away(path: &Path) {
    chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| give_away(&entry.unwrap().path()));
    }
}
