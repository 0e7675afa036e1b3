//! The digest of a list, line by line: whether a file still says what was read from it.
//!
//! The run reader keeps it beside its position. It goes on from its own value, so a growing list is never read again
//! for it. FNV-1a: it detects edits, and is no defence against computed collisions.

use super::Line;

/// FNV's start and factor, for 64 bits.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;
/// Stands for a line that was skipped. UTF-8 text never has this byte, nor the one below.
const SKIPPED: u8 = 0xff;
/// Ends a key, and a payload.
const END: u8 = 0xfe;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content(u64);

impl Default for Content {
    fn default() -> Self {
        Self(BASIS)
    }
}

impl Content {
    pub fn stored(value: u64) -> Self {
        Self(value)
    }

    pub fn value(self) -> u64 {
        self.0
    }

    pub fn add(&mut self, line: &Line) {
        match line {
            Line::Row(row) => {
                self.bytes(row.key.as_str().as_bytes());
                self.bytes(row.payload.as_bytes());
            }
            Line::Skipped { .. } => self.byte(SKIPPED),
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.byte(*byte));
        self.byte(END);
    }

    fn byte(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(PRIME);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetcher_file::LineReader;

    fn digest(text: &str) -> u64 {
        let (mut lines, mut content) = (Vec::new(), Content::default());
        let mut reader = LineReader::new(true, 0);
        reader.feed(text.as_bytes(), &mut lines);
        reader.finish(&mut lines);
        lines.iter().for_each(|line| content.add(line));
        content.value()
    }

    /// Files with the same content have the same digest; others have another.
    #[test]
    fn it_tells_lists_apart() {
        let list = digest("a 1\nb 2\n");
        assert_eq!(list, digest("a 1\r\nb 2"));
        for other in
            ["", "a 1\n", "b 2\na 1\n", "a 1b 2\n", "a 1\nb 2\n\n", "a 1\nb 3\n", "a1 \nb 2\n"]
        {
            assert_ne!(list, digest(other), "{other:?}");
        }
    }
}
