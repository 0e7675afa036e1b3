//! The user without rights that tests of permissions play when they are root.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

const NOBODY: u32 = 65_534;

/// The same command as that user, by a copy of its program that he may execute. Only root can play him.
pub fn as_nobody(home: &Path, command: &Command) -> Command {
    let program = home.join("program");
    if !program.exists() {
        fs::copy(command.get_program(), &program).unwrap();
    }
    let mut theirs = Command::new(program);
    theirs.args(command.get_args()).stdin(Stdio::null()).current_dir(home);
    theirs.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    theirs.uid(NOBODY).gid(NOBODY);
    theirs
}

/// The command with no more rights than a user has; all there is in its directory becomes that user's.
pub fn unprivileged(home: &Path, command: Command) -> Command {
    if !rustix::process::geteuid().is_root() {
        return command;
    }
    let theirs = as_nobody(home, &command);
    give_away(home);
    theirs
}

fn give_away(path: &Path) {
    chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| give_away(&entry.unwrap().path()));
    }
}
