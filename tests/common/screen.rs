//! A program on a pseudo-terminal: keys are typed, and what would be seen is read. It understands what ratatui and crossterm send,
//! and no more.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use super::terminal::terminal;
use super::wait_until;

/// What the program sees of its user, and the user of it.
pub struct Screen {
    child: Child,
    given: File,
    shown: File,
    written: Arc<Mutex<Vec<u8>>>,
    size: (u16, u16),
    /// How the terminal was before.
    before: String,
}

impl Screen {
    /// Runs a command on a terminal of so many columns and rows.
    pub fn start(mut command: Command, size: (u16, u16)) -> Self {
        let (given, shown) = terminal();
        resize(&given, size);
        let before = modes(&given);
        let end = || Stdio::from(given.try_clone().unwrap());
        command.env("TERM", "xterm-256color").stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().unwrap();
        let written = Arc::new(Mutex::new(Vec::new()));
        let (mut from, to) = (shown.try_clone().unwrap(), Arc::clone(&written));
        thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                to.lock().unwrap().extend(&bytes[..count]);
            }
        });
        Self { child, given, shown, written, size, before }
    }

    /// Keys as a terminal sends them.
    pub fn press(&mut self, keys: &str) {
        self.shown.write_all(keys.as_bytes()).unwrap();
    }

    /// All bytes so far.
    pub fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// What is seen now.
    pub fn seen(&self) -> String {
        let mut cells = Cells::new(self.size);
        cells.read(&self.written());
        cells.text()
    }

    /// Waits until that is seen.
    pub fn shows(&self, what: &str) -> String {
        self.shows_that(what, |seen| seen.contains(what))
    }

    pub fn shows_that(&self, what: &str, is_it: impl Fn(&str) -> bool) -> String {
        let mut seen = String::new();
        let _tell = Tell(self);
        wait_until(&format!("{what:?} is seen"), || {
            seen = self.seen();
            is_it(&seen)
        });
        seen
    }

    pub fn resize(&mut self, size: (u16, u16)) {
        resize(&self.given, size);
        self.size = size;
        // No terminal is its own here, so the kernel tells it of nothing.
        self.signal(Signal::WINCH);
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end; the terminal must be as it was before.
    pub fn ended(mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the program on the terminal ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(modes(&self.given), self.before, "the terminal's modes");
        wait_until("the screen is left", || self.written().contains("\u{1b}[?1049l\u{1b}[?25h"));
        status.unwrap()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Shows the screen of a test that fails.
struct Tell<'a>(&'a Screen);

impl Drop for Tell<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- the screen:\n{}---", self.0.seen());
        }
    }
}

fn resize(terminal: &File, (columns, rows): (u16, u16)) {
    let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).unwrap();
}

fn modes(terminal: &File) -> String {
    let modes: Termios = tcgetattr(terminal).unwrap();
    format!("{modes:?}")
}

/// The cells of a screen, and the cursor.
struct Cells {
    rows: Vec<Vec<char>>,
    at: (usize, usize),
}

impl Cells {
    fn new((columns, rows): (u16, u16)) -> Self {
        Self { rows: vec![vec![' '; columns.into()]; rows.into()], at: (0, 0) }
    }

    fn read(&mut self, text: &str) {
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            rest = &rest[character.len_utf8()..];
            match character {
                '\u{1b}' => rest = self.obey(rest),
                '\r' => self.at.1 = 0,
                '\n' => self.at.0 += 1,
                _ => self.put(character),
            }
        }
    }

    fn put(&mut self, character: char) {
        if let Some(cell) = self.rows.get_mut(self.at.0).and_then(|row| row.get_mut(self.at.1)) {
            *cell = character;
        }
        self.at.1 += 1;
    }

    /// Carries out what stands behind an escape; what stands behind that.
    fn obey<'a>(&mut self, text: &'a str) -> &'a str {
        let Some(sequence) = text.strip_prefix('[') else { return text };
        let Some(end) = sequence.find(|it: char| it.is_ascii_alphabetic()) else { return "" };
        let (parameters, rest) = sequence.split_at(end);
        let number = |at| parameters.split(';').nth(at).and_then(|it| it.parse().ok());
        let before = |at| number(at).map_or(0, |it: usize| it.saturating_sub(1));
        match &rest[..1] {
            "H" => self.at = (before(0), before(1)),
            "J" => self.rows.iter_mut().for_each(|row| row.fill(' ')),
            "K" => self.rows[self.at.0][self.at.1..].fill(' '),
            // Styles, and modes.
            "m" | "h" | "l" => {}
            other => panic!("what is {other:?} behind {parameters:?}?"),
        }
        &rest[1..]
    }

    fn text(&self) -> String {
        let line = |row: &Vec<char>| row.iter().collect::<String>().trim_end().to_owned() + "\n";
        self.rows.iter().map(line).collect()
    }
}
