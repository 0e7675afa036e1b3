//! A directory of its own for each test, and what these tests share with those of `shiftboss`.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

#[path = "../../../tests/common/left.rs"]
#[allow(dead_code, reason = "each program's tests use their own part")]
pub mod left;
#[path = "../../../tests/common/nobody.rs"]
pub mod nobody;
#[path = "../../../tests/common/random.rs"]
pub mod random;
#[path = "../../../tests/common/terminal.rs"]
pub mod terminal;
#[path = "../../../tests/common/wait.rs"]
#[allow(dead_code, reason = "each program's tests use their own part")]
pub mod wait;

pub use wait::{wait_until, wait_within};

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
        let mut command = Command::new(env!("CARGO_BIN_EXE_shiftspool"));
        command.env_remove("RUST_LOG").stdin(Stdio::null()).current_dir(self.0.path());
        command
    }

    /// A command of ours with an ordinary user's rights; everything in the site becomes that user's.
    pub fn unprivileged(&self, command: Command) -> Command {
        nobody::unprivileged(self.0.path(), command)
    }
}
