//! A program whose clock is off, by Debian's `faketime`.
//!
//! Its library is preloaded: its own command would stand between the test and the program, and get its signals.

use std::io;
use std::process::Command;

/// Has a command see a time that is off by so much (`+1d`).
///
/// # Errors
/// When `faketime` is not installed.
pub fn set(command: &mut Command, offset: &str) -> io::Result<()> {
    let told = Command::new("faketime").args(["-f", offset, "printenv", "LD_PRELOAD"]).output()?;
    let library = String::from_utf8_lossy(&told.stdout);
    command.env("LD_PRELOAD", library.trim_end()).env("FAKETIME", offset);
    Ok(())
}
