//! `shiftboss top`: on a pseudo-terminal through every key, over a daemon that is killed, and as text.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use rustix::termios::{Action, tcflow};

use crate::common::said::json;
use crate::common::screen::Screen;
use crate::common::terminal::terminal;
use crate::common::{Client, Site, job_of, wait_until};

const SIZE: (u16, u16) = (100, 30);
/// A key that would clear the screen, colour it, and turn the line around.
const EVIL: &str = "evil\u{1b}[2J\u{1b}[31m\u{202e}\u{200b}";
const EVIL_SHOWN: &str = r"evil\u{1b}[2J\u{1b}[31m\u{202e}\u{200b}";
const QUICK: [&str; 2] = ["--interval", "100ms"];

fn command(site: &Site, arguments: &[&str]) -> Command {
    let mut command = site.program();
    command.arg("top").args(arguments).env_remove("NO_COLOR").env_remove("COLUMNS");
    command
}

fn start(site: &Site, arguments: &[&str]) -> Screen {
    Screen::start(command(site, &[&QUICK, arguments].concat()), SIZE)
}

/// One frame as text, as wide as that.
fn once(site: &Site, columns: &str, arguments: &[&str]) -> String {
    let output = command(site, arguments).env("COLUMNS", columns).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*error), (Some(0), ""));
    String::from_utf8(output.stdout).unwrap()
}

/// A queue of which one job wrote something and ended, one is in flight, and two wait: these keys, in that order. The job in
/// flight goes with its connection.
fn busy(site: &Site) -> (Client, Vec<String>) {
    site.write("f.1.txt", "alpha 0 1\nbravo 0 2\ncharlie 0 3\ndelta 0 4\n");
    site.wait_count(4);
    let run =
        ["work", "--max-jobs", "1", "--log-dir", "logs", "-t", "socket", "--", "echo", "hello"];
    let worked = site.run(&run);
    assert_eq!(worked.status.code(), Some(0), "{}", String::from_utf8_lossy(&worked.stderr));
    let mut worker = Client::opted_in(site, "HELLO 2 builder");
    let (_, in_flight) = job_of(&worker.ask("READY"));
    let log = json(site, &["log"]);
    let ended = log["attempts"][0]["key"].as_str().unwrap().to_owned();
    let queue = json(site, &["tasks", "--next"]);
    let next = |at: usize| queue["keys"][at]["key"].as_str().unwrap().to_owned();
    (worker, vec![ended, in_flight, next(0), next(1)])
}

/// Each list, each key that a terminal sends as several bytes, and each order; what keys do within a list its own tests show.
#[test]
fn through_every_key() {
    let (site, _daemon) = Site::running(&[]);
    let (_worker, keys) = busy(&site);
    let [ended, running, first, second] = &keys[..] else { panic!("{keys:?}") };
    let mut screen = start(&site, &["--log-dir", "logs", "-t", "socket"]);
    screen.shows("1 of 1");
    let mut see = |keys: &str, what: &str| {
        eprintln!("{keys:?} must show {what:?}");
        screen.press(keys);
        screen.shows(what);
    };
    see("?", "more often");
    see("?", "Fetcher  ");
    see("2", "builder");
    see("3", second);
    see("4", "success");
    see("\t", "No task has that status.");
    see("\u{1b}[Z", "success");
    see("\u{1b}[D", "1 of 2");
    see("\u{1b}[C", "success");
    see("3", "1 of 2");
    see("\u{1b}[B", "2 of 2");
    see("\u{1b}[A", "1 of 2");
    see("\u{1b}[6~", "2 of 2");
    see("\u{1b}[5~", "1 of 2");
    see("\u{1b}[F", "2 of 2");
    see("\u{1b}[H", "1 of 2");
    see("\r", &format!("Key             {first}"));
    see("q", "P pause");
    see("2", "builder");
    see("C", &format!("Cancel the running job of {running}? y/N"));
    see("y", "Cancelled: builder is to stop the");
    see("\r", "its worker is to stop it");
    see("\r4", "success");
    see("o", "hello");
    see("q", "P pause");
    see("P", "Pause: hand nothing out? y/N");
    see("y", "PAUSED");
    see("P", "Resume: hand jobs out again? y/N");
    see("y", "Jobs are handed out again.");
    see("3", "1 of 2");
    see("H", &format!("Hold {first}? y/N"));
    see("y", &format!("Held until `shiftboss -t socket unhold {first}`: {first}."));
    see("6", "until it is unheld");
    see("H", &format!("Unhold {first}? y/N"));
    see("y", &format!("No longer held: {first}."));
    see("5", "No task has that status.");
    see("7", "No task has that status.");
    see("8", "No task has that status.");
    see("g", "Key: ");
    see("elsewhere\r", "the key elsewhere");
    see("q", "P pause");
    see("4", "success");
    see("R", &format!("Retry {ended}? y/N"));
    see("y", &format!("Back in the queue: {ended} (1 task)."));
    see("B", &format!("Bump {ended}? y/N"));
    see("n", "Not done.");
    let soon = format!("Bumped: {ended} is the next of the bum");
    see("By", &soon);
    screen.resize((40, 10));
    let last = |begins: &str| {
        let begins = begins.to_owned();
        move |it: &str| it.lines().nth(9).unwrap().starts_with(&begins)
    };
    // crossterm may leave a key that comes together with the signal unread until the next one.
    screen.shows_that("a small frame", last(&soon));
    screen.press("1");
    screen.shows_that("what keys do", last("q quit  ? help"));
    screen.press("q");
    assert_eq!(screen.ended().code(), Some(0));
}

/// The last values stay, and it finds the next daemon by itself.
#[test]
fn over_a_killed_daemon() {
    let (site, daemon) = Site::serving("alpha 0 1\nbravo 0 2\n", &[]);
    let mut screen = start(&site, &["-t", "socket"]);
    screen.shows("waiting 2 ");
    daemon.kill();
    let seen = screen.shows_that("that it stopped", |it| {
        it.contains("STOPPED: no daemon runs, and nothing is handed out; last seen at ")
            && !it.contains("P pause")
    });
    assert!(seen.contains("waiting 2 "), "{seen}");
    screen.press("3");
    screen.shows("bravo");
    let _daemon = site.start();
    screen.shows_that("the new daemon", |it| it.contains("running, pid") && it.contains("P pause"));
    site.write("f.2.txt", "alpha 0 1\nbravo 0 2\ncharlie 0 3\n");
    screen.shows("charlie");
    fs::rename(site.path("socket"), site.path("elsewhere")).unwrap();
    screen.shows_that("that nobody answers", |it| !it.contains("P pause"));
    fs::rename(site.path("elsewhere"), site.path("socket")).unwrap();
    screen.shows("P pause");
    screen.press("q");
    assert_eq!(screen.ended().code(), Some(0));
}

/// Whatever ends it, the terminal is as it was.
#[test]
fn the_terminal_is_given_back() {
    let (site, _daemon) = Site::running(&[]);
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let screen = start(&site, &["-t", "socket"]);
        screen.shows("There is no fetcher.");
        screen.signal(signal);
        assert_eq!(screen.ended().code(), Some(0), "{signal:?}");
    }
    for end in ["q", "\u{3}"] {
        let mut screen = start(&site, &["-t", "socket"]);
        screen.shows("There is no fetcher.");
        screen.press(end);
        assert_eq!(screen.ended().code(), Some(0), "{end:?}");
    }
}

/// A terminal that is gone is the end, as a signal is, and nothing that the user need be told.
#[test]
fn the_terminal_goes_away() {
    let (site, _daemon) = Site::running(&[]);
    let (given, mut shown) = terminal();
    let end = || Stdio::from(given.try_clone().unwrap());
    let mut command = command(&site, &[&QUICK, &["-t", "socket"][..]].concat());
    command.env("TERM", "xterm").env("COLUMNS", "100000").stdin(end()).stdout(end());
    let mut running = site.spawn_shown(command);
    let mut seen = [0; 4096];
    let count = shown.read(&mut seen).unwrap();
    assert!(String::from_utf8_lossy(&seen[..count]).contains("\u{1b}[?1049h"));
    drop((given, shown));
    assert_eq!(running.exit().code(), Some(0), "{}", running.log());
    assert_eq!(running.log(), "");
}

/// It ends though the terminal takes nothing any more (Ctrl-S, a connection that hangs).
#[test]
fn the_terminal_is_stopped() {
    let (site, _daemon) = Site::running(&[]);
    let (given, shown) = terminal();
    let end = || Stdio::from(given.try_clone().unwrap());
    let mut command = command(&site, &[&QUICK, &["-t", "socket"][..]].concat());
    command.env("TERM", "xterm").stdin(end()).stdout(end());
    let mut running = site.spawn_shown(command);
    let mut taken = shown.try_clone().unwrap();
    let mut written = [0; 4096];
    wait_until("it draws", || {
        let count = taken.read(&mut written).unwrap();
        String::from_utf8_lossy(&written[..count]).contains("fetcher")
    });
    tcflow(&given, Action::OOff).unwrap();
    (&shown).write_all(b"?").unwrap();
    running.signal(Signal::TERM);
    assert_eq!(running.exit_within(Duration::from_secs(10)).code(), Some(0));
}

/// Keys, payloads and names steer nothing.
#[test]
fn what_comes_from_outside_is_escaped() {
    let (site, _daemon) = Site::running(&[]);
    site.write("f.1.txt", format!("{EVIL} 0 {EVIL} payload\n"));
    site.wait_count(1);
    let mut screen = start(&site, &["-t", "socket"]);
    screen.shows("waiting 1 ");
    screen.press("3");
    screen.shows(EVIL_SHOWN);
    screen.press("\r");
    screen.shows(&format!("Key             {EVIL_SHOWN}"));
    screen.press("qH");
    screen.shows(r"Hold evil\u{1b}");
    screen.press("n");
    screen.shows("Not done.");
    let written = screen.written();
    assert!(!written.contains(EVIL) && !written.contains(['\u{202e}', '\u{200b}']));
    screen.press("q");
    assert_eq!(screen.ended().code(), Some(0));
    let shown = once(&site, "200", &["-t", "socket"]);
    assert!(shown.contains(EVIL_SHOWN) && !shown.contains('\u{1b}'), "{shown}");
}

/// Whether a text sets a colour of letters.
fn is_coloured(text: &str) -> bool {
    (30..=37).chain(90..=97).any(|code| text.contains(&format!("\u{1b}[{code}m")))
        || text.contains("\u{1b}[38;")
}

/// `NO_COLOR` leaves out colours, and `--ascii` all but ASCII.
#[test]
fn colours_and_characters() {
    let (site, _daemon) = Site::running(&[]);
    let is = |no_color: &str, arguments: &[&str]| {
        let mut command = command(&site, arguments);
        let mut screen = Screen::start(command_with(&mut command, no_color), SIZE);
        screen.shows("There is no fetcher.");
        screen.press("q");
        wait_until("it ends", || screen.written().ends_with("\u{1b}[?25h"));
        let written = screen.written();
        assert_eq!(screen.ended().code(), Some(0));
        (is_coloured(&written), written.is_ascii())
    };
    assert_eq!(is("", &["-t", "socket"]), (true, false));
    assert_eq!(is("1", &["--ascii", "-t", "socket"]), (false, true));
}

fn command_with(command: &mut Command, no_color: &str) -> Command {
    let mut with = Command::new(command.get_program());
    with.args(command.get_args()).env("NO_COLOR", no_color);
    with.current_dir(command.get_current_dir().unwrap());
    with
}

/// Who reads only, or is nobody's operator, changes nothing.
#[test]
fn who_may_change_something() {
    crate::common::root!();
    let (site, _daemon) = Site::running(&["--socket-mode", "666"]);
    let mut screen = start(&site, &["--read-only", "-t", "socket"]);
    screen.shows("connections 1");
    screen.press("P?");
    let seen = screen.shows("more often");
    assert!(!seen.contains("ause"), "{seen}");
    screen.press("qq");
    assert_eq!(screen.ended().code(), Some(0));
    let stranger = site.as_somebody_else(&["top", "--interval", "100ms"]);
    let mut screen = Screen::start(stranger, SIZE);
    screen.shows("There is no fetcher.");
    screen.press("P?");
    let seen = screen.shows("more often");
    assert!(!seen.contains("ause"), "{seen}");
    screen.press("qq");
    assert_eq!(screen.ended().code(), Some(0));
}

/// Without a terminal, or when asked for, it is one frame of the width that was said, if that is one; what cannot be found is an error.
#[test]
fn one_plain_frame() {
    let (site, daemon) = Site::running(&[]);
    let (_worker, keys) = busy(&site);
    for (columns, width) in [("50", 50), ("120", 120), ("wide", 80)] {
        let shown = once(&site, columns, &["-t", "socket"]);
        assert!(shown.lines().map(|line| line.chars().count()).max().unwrap() <= width, "{shown}");
        for key in &keys {
            assert!(shown.contains(key), "{key}: {shown}");
        }
        assert!(shown.contains("\nrunning, pid ") && shown.contains("\nFetchers\n"), "{shown}");
    }
    for columns in ["0", "-1", "", "65535", "100000", "99999999999999999999"] {
        assert!(once(&site, columns, &["-t", "socket"]).contains("fetcher"), "{columns}");
    }
    assert!(once(&site, "120", &["--ascii", "-t", "socket"]).is_ascii());
    let mut on_terminal = Screen::start(command(&site, &["--once", "-t", "socket"]), SIZE);
    on_terminal.press("q");
    wait_until("the frame is there", || on_terminal.written().contains("Dead letters\r\n"));
    assert!(!on_terminal.written().contains('\u{1b}'));
    daemon.stop();
    assert!(once(&site, "120", &[]).contains("\nSTOPPED: no daemon runs, "));
    let missing = command(&site, &["-t", "missing.db"]).output().unwrap();
    let error = String::from_utf8_lossy(&missing.stderr);
    assert!(missing.status.code() == Some(69) && error.contains("missing.db"), "{error}");
    for wrong in ["99ms", "2h", "often"] {
        let output = command(&site, &["--interval", wrong, "-t", "socket"]).output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{wrong}");
    }
}
