//! Text from outside in a form that is safe to show. Pure.
//!
//! Keys, names, payloads, paths and what commands write come from others. On a terminal or in a log they must not
//! move the cursor, forge lines, turn the rest of a line around or hide in it.

/// Whether a character is more than visible text: controls, line and paragraph separators, direction marks, and
/// characters without width (Unicode's `Default_Ignorable_Code_Point`).
pub fn misleads(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}')
        || matches!(character, '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{feff}')
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(character, '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}')
        || matches!(character, '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}')
        || matches!(character, '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// A text with each misleading character escaped: `\u{1b}`, `\n`.
pub fn shown(text: &str) -> String {
    shown_bytes(text.as_bytes())
}

/// The same for bytes; what is not UTF-8 is shown as `\xff`.
pub fn shown_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match misleads(character) {
                true => out.extend(character.escape_default()),
                false => out.push(character),
            }
        }
        out.extend(chunk.invalid().escape_ascii().map(char::from));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind of misleading character is escaped.
    #[test]
    fn what_misleads_is_escaped() {
        for (text, expected) in [
            ("a\n\t\r\u{1b}[2J\u{7}\u{0}\u{7f}", "a\\n\\t\\r\\u{1b}[2J\\u{7}\\u{0}\\u{7f}"),
            ("\u{80}\u{85}\u{9b}m", "\\u{80}\\u{85}\\u{9b}m"),
            (
                "a\u{202a}\u{202e}b\u{200e}\u{200f}\u{61c}",
                "a\\u{202a}\\u{202e}b\\u{200e}\\u{200f}\\u{61c}",
            ),
            ("\u{2066}\u{2067}\u{2068}\u{2069}", "\\u{2066}\\u{2067}\\u{2068}\\u{2069}"),
            (
                "\u{200b}\u{200d}\u{2060}\u{feff}\u{ad}",
                "\\u{200b}\\u{200d}\\u{2060}\\u{feff}\\u{ad}",
            ),
            ("\u{2028}\u{2029}\u{e0041}", "\\u{2028}\\u{2029}\\u{e0041}"),
            ("a\u{34f}\u{fe00}\u{fe0f}", "a\\u{34f}\\u{fe00}\\u{fe0f}"),
            ("\u{180b}\u{180f}\u{3164}\u{ffa0}", "\\u{180b}\\u{180f}\\u{3164}\\u{ffa0}"),
            ("\u{e0100}\u{e01ef}", "\\u{e0100}\\u{e01ef}"),
        ] {
            assert_eq!(shown(text), expected);
            assert_eq!(shown_bytes(text.as_bytes()), expected);
            assert!(!shown(text).contains(misleads));
        }
    }

    /// Bytes that are not UTF-8 stay recognizable, among them an eight-bit C1 control.
    #[test]
    fn invalid_bytes_are_escaped() {
        assert_eq!(shown_bytes(b"a\xff\x9bm\xc3"), "a\\xff\\x9bm\\xc3");
        assert_eq!(shown_bytes("é\u{202e}".as_bytes()), "é\\u{202e}");
    }

    #[test]
    fn letters_stay() {
        for plain in ["", "שלום", "مرحبا", "日本", "e\u{301}", "a b", "\\n", "🦀"] {
            assert_eq!(shown(plain), plain);
            assert_eq!(shown_bytes(plain.as_bytes()), plain);
        }
    }
}
