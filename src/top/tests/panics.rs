//! The terminal after a panic: this test binary runs itself again, on a pseudo-terminal, and panics there.

use std::env;
use std::io::Read;
use std::process::{Command, Stdio};

use rustix::termios::tcgetattr;

use crate::top::screen::Screen;

#[path = "../../../tests/common/terminal.rs"]
mod terminal;

const ROLE: &str = "SHIFTBOSS_TEST_ROLE";
const NAME: &str = "top::tests::panics::a_panic_restores_the_terminal";

/// A panic's message is on the normal screen; the terminal is as before, and is given back once.
#[test]
fn a_panic_restores_the_terminal() {
    if env::var(ROLE).is_ok_and(|role| role == NAME) {
        let _screen = Screen::enter().unwrap();
        panic!("a bug");
    }
    let (given, mut shown) = terminal::terminal();
    let before = format!("{:?}", tcgetattr(&given).unwrap());
    let end = || Stdio::from(given.try_clone().unwrap());
    let mut role = Command::new(env::current_exe().unwrap());
    role.args(["--exact", NAME, "--nocapture", "--test-threads=1"]).env(ROLE, NAME);
    let status = role.stdin(end()).stdout(end()).stderr(end()).status().unwrap();
    assert!(!status.success());
    assert_eq!(format!("{:?}", tcgetattr(&given).unwrap()), before);
    drop((role, given));
    let mut said = Vec::new();
    // It ends with an error, because the other side is closed.
    let _ = shown.read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said);
    let (taken, left) = (said.find("\u{1b}[?1049h"), said.find("\u{1b}[?1049l"));
    assert!(taken.is_some() && taken < left && left < said.find("a bug"), "{said:?}");
    assert_eq!(said.matches("\u{1b}[?1049l").count(), 1, "{said:?}");
}
