//! The lines of fetcher files: bytes in, rows and faults out, at any boundary (spec 4, "Lines").

use crate::model::Row;
use crate::task_line::{LINE_MAX_BYTES, SkipReason, parse};

/// A byte order mark; not part of the first key.
const BOM: &[u8] = b"\xef\xbb\xbf";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    Row(Row),
    Skipped {
        /// Its number; the first is 1.
        number: u64,
        reason: SkipReason,
    },
}

/// Splits a file, fed in pieces, into lines.
#[derive(Debug)]
pub struct LineReader {
    /// The unfinished line, unless it is too long.
    partial: Vec<u8>,
    /// Bytes of the unfinished line, those dropped included.
    partial_bytes: u64,
    /// The unfinished line is followed by a `\r`; whether a `\n` belongs to it is not known yet.
    held_return: bool,
    /// The next line may begin with a byte order mark.
    at_start: bool,
    consumed: u64,
    lines: u64,
}

impl LineReader {
    /// A reader that begins at the start of a file, or after its first `lines` lines.
    pub fn new(start_of_file: bool, lines: u64) -> Self {
        Self {
            partial: Vec::new(),
            partial_bytes: 0,
            held_return: false,
            at_start: start_of_file,
            consumed: 0,
            lines,
        }
    }

    /// Bytes up to and including the end of the last line handed out; reading may begin again there.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }

    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Takes the next bytes and appends the lines that end in them to `out`. If the very last byte is a `\r`, its line
    /// waits: a `\n` may belong to it.
    pub fn feed(&mut self, mut bytes: &[u8], out: &mut Vec<Line>) {
        if self.held_return && !bytes.is_empty() {
            self.held_return = false;
            let newline = bytes[0] == b'\n';
            self.end_line(&[], 1 + u64::from(newline), out);
            bytes = &bytes[usize::from(newline)..];
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) {
            let (line, rest) = bytes.split_at(end);
            let end_bytes = match rest {
                [b'\r', b'\n', ..] => 2,
                [b'\r'] => {
                    self.keep(line);
                    self.held_return = true;
                    return;
                }
                _ => 1,
            };
            self.end_line(line, end_bytes, out);
            bytes = &rest[usize::try_from(end_bytes).unwrap_or(1)..];
        }
        self.keep(bytes);
    }

    /// Hands out an unterminated last line: the file is complete.
    pub fn finish(&mut self, out: &mut Vec<Line>) {
        if self.partial_bytes > 0 || self.held_return {
            let end_bytes = u64::from(std::mem::take(&mut self.held_return));
            self.end_line(&[], end_bytes, out);
        }
    }

    /// Keeps the beginning of a line, up to the longest allowed line.
    fn keep(&mut self, bytes: &[u8]) {
        self.partial_bytes += bytes.len() as u64;
        if self.is_overlong() {
            self.partial = Vec::new();
        } else {
            self.partial.extend_from_slice(bytes);
        }
    }

    fn is_overlong(&self) -> bool {
        self.partial_bytes > LINE_MAX_BYTES as u64
    }

    /// A line ends with `rest`, followed by `end_bytes` of line end.
    fn end_line(&mut self, rest: &[u8], end_bytes: u64, out: &mut Vec<Line>) {
        let in_one_piece = self.partial_bytes == 0 && rest.len() <= LINE_MAX_BYTES;
        if !in_one_piece {
            self.keep(rest);
        }
        let line = if in_one_piece { rest } else { &self.partial };
        let parsed = if self.is_overlong() {
            Err(SkipReason::LINE_TOO_LONG)
        } else {
            parse(if self.at_start { line.strip_prefix(BOM).unwrap_or(line) } else { line })
        };
        self.lines += 1;
        out.push(match parsed {
            Ok(row) => Line::Row(row),
            Err(reason) => Line::Skipped { number: self.lines, reason },
        });
        let length = if in_one_piece { rest.len() as u64 } else { self.partial_bytes };
        self.consumed += length + end_bytes;
        self.partial.clear();
        self.partial_bytes = 0;
        self.at_start = false;
    }
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
