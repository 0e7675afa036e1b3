//! Turns a command's output, in pieces at any boundary, into whole lines with a prefix, so that the
//! lines of several commands can share one output. Pure: bytes in, lines out.

use std::io::{self, IsTerminal};

use crate::escape::shown;

/// A longer line is passed on in pieces.
const PIECE_BYTES: usize = 8 * 1024;
/// Most bytes of one run's standard error that are copied into a log.
const LOGGED_BYTES_MAX: usize = 1024 * 1024;
/// Roughly what a log adds to a line.
const EVENT_BYTES: usize = 100;

/// Puts a prefix before each line of one stream. A line that is too long is passed on in pieces, each a line of its own
/// with the prefix.
#[derive(Debug)]
pub struct LinePrefixer {
    prefix: Vec<u8>,
    /// The longest piece of a line, in bytes.
    piece_bytes: usize,
    /// A line whose end is not here yet; no longer than `piece_bytes`.
    partial: Vec<u8>,
    /// Bytes that may still be passed on; `None`: there is no limit.
    room: Option<usize>,
    /// Lines that were left out because there was no room.
    left_out: u64,
}

impl LinePrefixer {
    pub fn new(prefix: impl Into<Vec<u8>>) -> Self {
        let (prefix, partial) = (prefix.into(), Vec::new());
        Self { prefix, piece_bytes: PIECE_BYTES, partial, room: None, left_out: 0 }
    }

    /// For what one run writes on standard error: lines beyond a limit are left out and counted.
    pub fn for_log(prefix: impl Into<Vec<u8>>) -> Self {
        Self { room: Some(LOGGED_BYTES_MAX), ..Self::new(prefix) }
    }

    /// Takes the next bytes, and returns the lines that are finished by them.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut lines = Vec::new();
        while let Some(first) = bytes.first() {
            if *first == b'\n' {
                self.end_line(self.partial.len(), &mut lines);
                bytes = &bytes[1..];
            } else if self.partial.len() == self.piece_bytes {
                self.end_line(whole_characters(&self.partial), &mut lines);
            } else {
                let reach = &bytes[..bytes.len().min(self.piece_bytes - self.partial.len())];
                let end = reach.iter().position(|byte| *byte == b'\n').unwrap_or(reach.len());
                self.partial.extend_from_slice(&reach[..end]);
                bytes = &bytes[end..];
            }
        }
        lines
    }

    /// The stream is over: returns the rest of an unterminated last line, and how many lines were left out.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut lines = Vec::new();
        if !self.partial.is_empty() {
            self.end_line(self.partial.len(), &mut lines);
        }
        if self.left_out > 0 {
            let text = format!("(shiftboss left out {} lines of this run)", self.left_out);
            self.add(text.as_bytes(), &mut lines);
        }
        lines
    }

    /// Moves the first `length` kept bytes to `lines`, as a line, if there is room.
    fn end_line(&mut self, length: usize, lines: &mut Vec<u8>) {
        let line: Vec<u8> = self.partial.drain(..length).collect();
        let Some(room) = self.room else {
            return self.add(&line, lines);
        };
        self.room = Some(room.saturating_sub(length + EVENT_BYTES));
        if self.room > Some(0) {
            return self.add(&line, lines);
        }
        if self.left_out == 0 {
            let text = "(shiftboss leaves out the rest of what this run writes on standard error)";
            self.add(text.as_bytes(), lines);
        }
        self.left_out += 1;
    }

    fn add(&self, line: &[u8], lines: &mut Vec<u8>) {
        lines.extend_from_slice(&self.prefix);
        lines.extend_from_slice(line);
        lines.push(b'\n');
    }
}

/// The prefix of a command's lines on our standard error: a log mixes the lines of several commands; on a terminal no
/// prefix is needed.
pub fn line_prefix(name: &str) -> String {
    if io::stderr().is_terminal() { String::new() } else { format!("{}: ", shown(name)) }
}

/// How much of `bytes` can be cut off without cutting a UTF-8 character; all, if it is not UTF-8.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
        _ => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(piece_bytes: usize, pieces: &[&str]) -> String {
        let mut lines = LinePrefixer { piece_bytes, ..LinePrefixer::new("> ") };
        let mut out = Vec::new();
        for piece in pieces {
            out.extend(lines.feed(piece.as_bytes()));
            assert!(lines.partial.len() <= piece_bytes);
        }
        out.extend(lines.finish());
        String::from_utf8(out).unwrap()
    }

    /// Each line gets the prefix once, wherever the pieces are cut.
    #[test]
    fn lines_are_prefixed() {
        for pieces in [&["one\n\ntwo"][..], &["o", "ne", "\n", "\n", "two", ""]] {
            assert_eq!(lines(100, pieces), "> one\n> \n> two\n");
        }
        assert_eq!(lines(100, &["one\n"]), "> one\n");
        assert_eq!(lines(100, &[]), "");
    }

    /// Only a limited amount of one run is passed on, and the rest is counted.
    #[test]
    fn lines_of_a_run_are_limited() {
        let mut lines = LinePrefixer::for_log("> ");
        let mut out = lines.feed("abc\n".repeat(100_000).as_bytes());
        out.extend(lines.feed(b"unfinished"));
        out.extend(lines.finish());
        let (length, text) = (out.len(), String::from_utf8(out).unwrap());
        let passed = text.lines().filter(|line| *line == "> abc").count();
        assert!((5_000..20_000).contains(&passed) && length < LOGGED_BYTES_MAX, "{passed}");
        let left_out = 100_001 - passed;
        assert!(text.ends_with(&format!("> (shiftboss left out {left_out} lines of this run)\n")));
    }

    /// A line that is too long comes in pieces, cut between characters.
    #[test]
    fn long_lines_come_in_pieces() {
        assert_eq!(lines(4, &["abcdefgh\nij\n"]), "> abcd\n> efgh\n> ij\n");
        assert_eq!(lines(4, &["abcdefghi"]), "> abcd\n> efgh\n> i\n");
        assert_eq!(lines(4, &["abcé", "f\n"]), "> abc\n> éf\n");
        assert_eq!(lines(4, &["äöü"]), "> äö\n> ü\n");
        assert_eq!(lines(4, &["abcd", "\nef"]), "> abcd\n> ef\n");
    }
}
