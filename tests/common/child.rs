//! Helper processes of a test: the test binary runs itself again in a role.
//!
//! A role is a `#[test]` function of the same file that returns at once unless it was called
//! through [`command`]. Its words to the parent are lines on standard output.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

const VARIABLE: &str = "SHIFTBOSS_TEST_ROLE";

/// A process of this test binary that plays `role`, the name of a test function.
pub fn command(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", role, "--nocapture", "--test-threads=1"])
        .env(VARIABLE, role)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// Whether this process was started to play `role`.
pub fn plays(role: &str) -> bool {
    std::env::var(VARIABLE).is_ok_and(|value| value == role)
}

/// Reads the role's output up to the line that begins with `word`, and returns its rest.
pub fn wait_word(child: &mut Child, word: &str) -> String {
    let output: &mut ChildStdout = child.stdout.as_mut().unwrap();
    let mut reader = BufReader::with_capacity(1, output);
    loop {
        let mut line = String::new();
        let count = reader.read_line(&mut line).unwrap();
        assert!(count > 0, "the helper ended without saying {word}");
        if let Some(rest) = line.trim_end().strip_prefix(word) {
            return rest.to_owned();
        }
    }
}
