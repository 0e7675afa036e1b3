//! A terminal for a program that shows itself otherwise on one.

use std::fs;

use rustix::pty;

/// A terminal: what a program is given, and what shows what it writes.
pub fn terminal() -> (fs::File, fs::File) {
    use pty::OpenptFlags as Flags;
    // The program must not have it: the terminal goes with its last holder.
    let shown = pty::openpt(Flags::RDWR | Flags::NOCTTY | Flags::CLOEXEC).unwrap();
    pty::grantpt(&shown).unwrap();
    pty::unlockpt(&shown).unwrap();
    let name = pty::ptsname(&shown, Vec::new()).unwrap();
    let given = fs::File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    (given, fs::File::from(shown))
}
