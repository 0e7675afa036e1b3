//! One line that describes a task: a key, a space and a payload (spec 4, "Lines"). Pure.
//!
//! Lists consist of such lines ([`fetcher_file`](crate::fetcher_file)), and a single task is added as one.

use thiserror::Error;

use crate::model::{Key, KeyError, Row};

pub const LINE_MAX_BYTES: usize = 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct SkipReason(&'static str);

impl SkipReason {
    pub(crate) const EMPTY: Self = Self("the line is empty");
    pub(crate) const ONE_WORD: Self =
        Self("no space after the key: a line is KEY PAYLOAD, and a tab is no space");
    pub(crate) const NOT_UTF8: Self = Self("the line is not UTF-8");
    pub(crate) const KEY_TOO_LONG: Self = Self("the key has more than 4096 bytes");
    /// For a task that is not a line of a file.
    pub(crate) const BLANK: Self =
        Self("white space stands at the line's ends, or a line end in it");
    pub(crate) const LINE_TOO_LONG: Self = Self("the line has more than 1048576 bytes");
}

/// Reads a task that did not come in a file: a line, without its end, with nothing to strip.
///
/// # Errors
/// Where a line of a file would be skipped, and for white space at its ends or a line end in it.
pub fn single_task(line: &[u8]) -> Result<Row, SkipReason> {
    if line.len() > LINE_MAX_BYTES {
        return Err(SkipReason::LINE_TOO_LONG);
    }
    let row = parse(line)?;
    let is_whole = row.key.as_str().len() + 1 + row.payload.len() == line.len();
    if is_whole && memchr::memchr2(b'\n', b'\r', line).is_none() {
        Ok(row)
    } else {
        Err(SkipReason::BLANK)
    }
}

/// Splits one line, without its end, into key and payload.
pub(crate) fn parse(line: &[u8]) -> Result<Row, SkipReason> {
    let text = std::str::from_utf8(line).map_err(|_| SkipReason::NOT_UTF8)?;
    let text = text.trim_matches(is_python_space);
    if text.is_empty() {
        return Err(SkipReason::EMPTY);
    }
    let (key, payload) = text.split_once(' ').ok_or(SkipReason::ONE_WORD)?;
    let key = Key::new(key).map_err(|error| match error {
        KeyError::TooLong(_) => SkipReason::KEY_TOO_LONG,
        KeyError::Empty | KeyError::Separator => SkipReason::EMPTY,
    })?;
    Ok(Row { key, payload: payload.to_owned() })
}

/// White space as in Python's `str.strip` (spec 4): Rust's and four more separators.
fn is_python_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}
