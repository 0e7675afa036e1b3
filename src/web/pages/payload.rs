//! A payload as a page shows it: text, in which addresses of the web are links, and nothing else is. Pure.

use crate::text::{TEXT_WIDTH, cut, shown};

/// A longer address is shown without a link.
const ADDRESS_BYTES_MAX: usize = 4_096;

/// A text beside others; of a payload a word, with the space before it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub text: String,
    /// Where it leads.
    pub address: Option<String>,
}

/// The parts of a payload, as far as it is shown.
pub(super) fn parts(payload: &str) -> Vec<Part> {
    let mut left = TEXT_WIDTH;
    let mut parts: Vec<Part> = Vec::new();
    for word in payload.split_inclusive(' ') {
        if left == 0 {
            break;
        }
        let address = link(word.trim_end_matches(' '));
        let text = cut(word, left);
        left = left.saturating_sub(text.chars().count());
        match parts.last_mut().filter(|last| last.address.is_none() && address.is_none()) {
            Some(last) => last.text += &text,
            None => parts.push(Part { text, address }),
        }
    }
    parts
}

/// A word that is an address of the web, and nothing in it misleads.
fn link(word: &str) -> Option<String> {
    let rest = word.strip_prefix("https://").or_else(|| word.strip_prefix("http://"))?;
    let is_fit = !rest.is_empty() && word.len() <= ADDRESS_BYTES_MAX && shown(word) == word;
    is_fit.then(|| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words that begin as addresses are links, whole; all is cut together.
    #[test]
    fn addresses_are_links() {
        let part = |text: &str, address: Option<&str>| Part {
            text: text.to_owned(),
            address: address.map(str::to_owned),
        };
        assert_eq!(
            parts("1.0 1.1 https://example.org/a?b=<c> x"),
            [
                part("1.0 1.1 ", None),
                part("https://example.org/a?b=<c> ", Some("https://example.org/a?b=<c>")),
                part("x", None)
            ]
        );
        for plain in
            ["javascript:alert(1)", "xhttp://a", "https://", "https://a\u{202e}b", "HTTP://a"]
        {
            assert!(parts(plain).iter().all(|part| part.address.is_none()), "{plain}");
        }
        let long = format!("https://example.org/{} more", "x".repeat(300));
        let found = parts(&long);
        assert_eq!((found.len(), found[0].text.chars().count()), (1, TEXT_WIDTH));
        assert_eq!(found[0].address.as_deref(), long.strip_suffix(" more"));
        assert_eq!(parts(""), []);
    }
}
