//! The output of jobs in a form that is safe for a screen: characters that would control a terminal, or mislead, are
//! escaped. Pure.

use crate::escape::shown_bytes;

/// How colours are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    Kept,
    LeftOut,
}

/// A line without its end. Overwritten text is left out: only the last state counts.
pub fn line(text: &[u8], colours: Colours) -> String {
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let mut left = text.rsplit(|byte| *byte == b'\r').next().unwrap_or(text);
    let mut out = String::new();
    while let Some(at) = left.windows(2).position(|pair| pair == b"\x1b[") {
        let (before, rest) = left.split_at(at);
        out += &tabbed(before);
        let end = rest[2..].iter().position(|byte| !(byte.is_ascii_digit() || *byte == b';'));
        left = match end {
            Some(end) if rest[2 + end] == b'm' => {
                if colours == Colours::Kept {
                    out += &String::from_utf8_lossy(&rest[..end + 3]);
                }
                &rest[end + 3..]
            }
            _ => {
                out += &tabbed(&rest[..2]);
                &rest[2..]
            }
        };
    }
    out + &tabbed(left)
}

/// Tabs are as good as spaces.
fn tabbed(bytes: &[u8]) -> String {
    let parts: Vec<String> = bytes.split(|byte| *byte == b'\t').map(shown_bytes).collect();
    parts.join("\t")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Colours are kept or left out; everything else that steers is shown.
    #[test]
    fn what_steers_is_shown() {
        for (written, kept, left_out) in [
            ("\u{1b}[1;31merror\u{1b}[0m: x\r", "\u{1b}[1;31merror\u{1b}[0m: x", "error: x"),
            ("a\tb\u{1b}[2Jc", "a\tb\\u{1b}[2Jc", "a\tb\\u{1b}[2Jc"),
            ("10 %\r20 %\rdone", "done", "done"),
            ("\u{1b}[31", "\\u{1b}[31", "\\u{1b}[31"),
            ("a\u{202e}b\u{0}", "a\\u{202e}b\\u{0}", "a\\u{202e}b\\u{0}"),
            ("\u{1b}", "\\u{1b}", "\\u{1b}"),
            ("", "", ""),
        ] {
            assert_eq!(line(written.as_bytes(), Colours::Kept), kept);
            assert_eq!(line(written.as_bytes(), Colours::LeftOut), left_out);
        }
    }
}
