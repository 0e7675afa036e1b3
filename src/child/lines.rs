//! Turns a command's output, in pieces at any boundary, into whole lines with a prefix, so that the
//! lines of several commands can share one output. Pure: bytes in, lines out.

use std::io::{self, Write};

/// Puts a prefix before each line of one stream. A longer line than it may keep is passed on in
/// pieces, each a line of its own with the prefix.
#[derive(Debug)]
pub struct LinePrefixer {
    prefix: Vec<u8>,
    /// The longest piece of a line, in bytes.
    piece_bytes: usize,
    /// A line whose end is not here yet; no longer than `piece_bytes`.
    partial: Vec<u8>,
}

impl LinePrefixer {
    /// Keeps at most `piece_bytes` (at least 4, the longest character) of an unfinished line.
    pub fn new(prefix: impl Into<Vec<u8>>, piece_bytes: usize) -> Self {
        Self { prefix: prefix.into(), piece_bytes: piece_bytes.max(4), partial: Vec::new() }
    }

    /// Takes the next bytes, and writes the lines that are finished by them.
    pub fn feed(&mut self, mut bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
        while let Some(first) = bytes.first() {
            if *first == b'\n' {
                self.write(self.partial.len(), out)?;
                bytes = &bytes[1..];
            } else if self.partial.len() == self.piece_bytes {
                self.write(whole_characters(&self.partial), out)?;
            } else {
                let reach = &bytes[..bytes.len().min(self.piece_bytes - self.partial.len())];
                let end = reach.iter().position(|byte| *byte == b'\n').unwrap_or(reach.len());
                self.partial.extend_from_slice(&reach[..end]);
                bytes = &bytes[end..];
            }
        }
        Ok(())
    }

    /// Writes what is left of a last line without an end: the stream is over.
    pub fn finish(&mut self, out: &mut impl Write) -> io::Result<()> {
        if self.partial.is_empty() {
            return Ok(());
        }
        self.write(self.partial.len(), out)
    }

    /// Writes the first `length` bytes of what is kept as a line.
    fn write(&mut self, length: usize, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.prefix)?;
        out.write_all(&self.partial[..length])?;
        out.write_all(b"\n")?;
        self.partial.drain(..length);
        Ok(())
    }
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
        let mut lines = LinePrefixer::new("> ", piece_bytes);
        let mut out = Vec::new();
        for piece in pieces {
            lines.feed(piece.as_bytes(), &mut out).unwrap();
            assert!(lines.partial.len() <= piece_bytes);
        }
        lines.finish(&mut out).unwrap();
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
