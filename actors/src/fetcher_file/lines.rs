//! The lines of fetcher files (spec 4, "Lines"): bytes in, in pieces of any size, rows out.
//!
//! A tail feeds what it read and stores the rows together with [`LineReader::consumed`], so
//! that a new reader can go on there. Memory is bounded by [`LINE_MAX_BYTES`], however long a
//! line is. Nothing is logged here: a skipped line is handed out with its reason.

use memchr::{memchr, memchr2};
use thiserror::Error;

use crate::model::{KEY_MAX_BYTES, Key, KeyError, Row};

/// Longest line in bytes, its end not counted; a longer one is skipped (spec 4, "Limits").
pub const LINE_MAX_BYTES: usize = 1024 * 1024;

/// The byte order mark that some editors put at the start of a file.
const BOM: &[u8] = "\u{feff}".as_bytes();

/// One whole line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A row for the queue.
    Row(Row),
    /// Not a row; the others are not affected.
    Skipped {
        /// Its line number in the file, from 1 on.
        number: u64,
        /// Why.
        reason: SkipReason,
    },
}

/// Why a line is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Error)]
pub enum SkipReason {
    /// White space at most.
    #[error("the line is empty")]
    Empty,
    /// A key without a payload.
    #[error("the line has only one word; a key, a space and a payload are needed")]
    OneWord,
    /// Bytes that are no text.
    #[error("the line is not UTF-8")]
    NotUtf8,
    /// A first word above [`KEY_MAX_BYTES`].
    #[error("the key is longer than {KEY_MAX_BYTES} bytes")]
    KeyTooLong,
    /// More than [`LINE_MAX_BYTES`].
    #[error("the line is longer than {LINE_MAX_BYTES} bytes")]
    LineTooLong,
}

/// Cuts what it is fed into lines.
///
/// A `\r` at the very end of what was fed is held back, since a `\n` may follow and belong to
/// it: a growing file whose line ends in a lone `\r` gives that line with its next byte.
#[derive(Debug)]
pub struct LineReader {
    /// The unfinished line so far, without a held-back `\r`; empty once it is too long.
    carry: Vec<u8>,
    /// How many bytes the unfinished line has, also those that `carry` gave up.
    carried: u64,
    /// The unfinished line's end is here, but for a `\n` that may follow.
    held_return: bool,
    /// The next line is the file's first: it may begin with a byte order mark.
    first: bool,
    consumed: u64,
    lines: u64,
}

impl LineReader {
    /// A reader that begins at the `start_of_file` (a byte order mark is dropped there) or
    /// behind `lines_before` lines of it.
    #[must_use]
    pub fn new(start_of_file: bool, lines_before: u64) -> Self {
        Self {
            carry: Vec::new(),
            carried: 0,
            held_return: false,
            first: start_of_file,
            consumed: 0,
            lines: lines_before,
        }
    }

    /// Takes the next `bytes` of the file and appends every line they complete to `out`.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<Line>) {
        let mut rest = self.release_return(bytes, out);
        while let Some(end) = memchr2(b'\n', b'\r', rest) {
            let after = match rest.get(end..end + 2) {
                Some(b"\r\n") => end + 2,
                None if rest[end] == b'\r' => {
                    self.keep(&rest[..end]);
                    self.held_return = true;
                    return;
                }
                _ => end + 1,
            };
            self.complete(&rest[..end], after - end, out);
            rest = &rest[after..];
        }
        self.keep(rest);
    }

    /// Takes the end of a complete file: a last line without an end counts (spec 4), but a byte
    /// order mark alone is none.
    pub fn finish(&mut self, out: &mut Vec<Line>) {
        if self.held_return {
            self.held_return = false;
            self.complete(b"", 1, out);
        } else if self.first && self.carry == BOM {
            self.consumed += std::mem::take(&mut self.carried);
            self.carry.clear();
        } else if self.carried > 0 {
            self.complete(b"", 0, out);
        }
    }

    /// Bytes up to and including the end of the last line handed out, counted from where this
    /// reader began. A new reader that begins there gives the lines that this one would.
    #[must_use]
    pub fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Lines handed out, skipped ones and `lines_before` included.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// How much memory the unfinished line takes.
    #[cfg(test)]
    pub(super) fn carry_capacity(&self) -> usize {
        self.carry.capacity()
    }

    /// Ends the line whose `\r` was held back, now that the byte behind it is known. Returns
    /// what is left of `bytes`.
    fn release_return<'a>(&mut self, bytes: &'a [u8], out: &mut Vec<Line>) -> &'a [u8] {
        if !self.held_return || bytes.is_empty() {
            return bytes;
        }
        self.held_return = false;
        let rest = bytes.strip_prefix(b"\n");
        self.complete(b"", if rest.is_some() { 2 } else { 1 }, out);
        rest.unwrap_or(bytes)
    }

    /// Puts `bytes` of an unfinished line by, as long as it can still become a row.
    fn keep(&mut self, bytes: &[u8]) {
        self.carried += bytes.len() as u64;
        if self.carried <= LINE_MAX_BYTES as u64 {
            self.carry.extend_from_slice(bytes);
        } else {
            self.carry = Vec::new();
        }
    }

    /// Hands out the line that is carried and ends with `tail`; its end has `end_len` bytes.
    fn complete(&mut self, tail: &[u8], end_len: usize, out: &mut Vec<Line>) {
        let len = self.carried + tail.len() as u64;
        let line = if self.carried == 0 {
            self.judge(tail, len)
        } else {
            self.keep(tail);
            let line = self.judge(&self.carry, len);
            self.carry.clear();
            line
        };
        self.consumed += len + end_len as u64;
        self.carried = 0;
        self.first = false;
        self.lines += 1;
        out.push(line.map_or_else(|reason| self.skipped(reason), Line::Row));
    }

    /// The line just counted, as skipped.
    fn skipped(&self, reason: SkipReason) -> Line {
        Line::Skipped {
            number: self.lines,
            reason,
        }
    }

    /// What a line of `len` bytes is; `line` is all of it unless it is too long.
    fn judge(&self, line: &[u8], len: u64) -> Result<Row, SkipReason> {
        if len > LINE_MAX_BYTES as u64 {
            return Err(SkipReason::LineTooLong);
        }
        let line = if self.first {
            line.strip_prefix(BOM).unwrap_or(line)
        } else {
            line
        };
        parse_line(line)
    }
}

/// Makes a row of a line without its end.
fn parse_line(line: &[u8]) -> Result<Row, SkipReason> {
    let text = str::from_utf8(line).map_err(|_| SkipReason::NotUtf8)?;
    let text = text.trim_matches(is_white_space);
    if text.is_empty() {
        return Err(SkipReason::Empty);
    }
    let space = memchr(b' ', text.as_bytes()).ok_or(SkipReason::OneWord)?;
    let key = Key::new(&text[..space]).map_err(|error| match error {
        KeyError::TooLong(_) => SkipReason::KeyTooLong,
        // Not reached: a stripped text has something before its first space, and no line ends.
        KeyError::Empty | KeyError::Separator => SkipReason::Empty,
    })?;
    Ok(Row {
        key,
        payload: text[space + 1..].to_owned(),
    })
}

/// White space as Python's `str.strip` has it (spec 4).
fn is_white_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}
