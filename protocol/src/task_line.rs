//! One line that says a task: a key, a space and a payload (spec 4, "Lines"). Pure.
//!
//! Lists have such lines ([`fetcher_file`](crate::fetcher_file)), and so has whoever adds a single task.

use thiserror::Error;

use crate::model::{KEY_MAX_BYTES, Key, KeyError, Row};

/// Longest line in bytes, without its end.
pub const LINE_MAX_BYTES: usize = 1024 * 1024;

/// Why a line is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SkipReason {
    /// Nothing but white space.
    #[error("the line is empty")]
    Empty,
    /// A key without a payload.
    #[error("no space after the key; a tab does not count")]
    OneWord,
    /// Bytes that are not UTF-8.
    #[error("the line is not UTF-8")]
    NotUtf8,
    /// See [`KEY_MAX_BYTES`].
    #[error("the key has more than {KEY_MAX_BYTES} bytes")]
    KeyTooLong,
    /// White space at the ends, or a line end inside, of a task that is no line of a file.
    #[error("white space stands at the line's ends, or a line end in it")]
    Blank,
    /// See [`LINE_MAX_BYTES`].
    #[error("the line has more than {LINE_MAX_BYTES} bytes")]
    LineTooLong,
}

/// Reads a task that did not come in a file: a line, without its end, with nothing to be cut off.
///
/// # Errors
/// As a line of a file would be skipped, and for white space at its ends or a line end in it.
pub fn single_task(line: &[u8]) -> Result<Row, SkipReason> {
    if line.len() > LINE_MAX_BYTES {
        return Err(SkipReason::LineTooLong);
    }
    let row = parse(line)?;
    let is_whole = row.key.as_str().len() + 1 + row.payload.len() == line.len();
    if is_whole && memchr::memchr2(b'\n', b'\r', line).is_none() {
        Ok(row)
    } else {
        Err(SkipReason::Blank)
    }
}

/// Splits one line, without its end, into key and payload.
pub(crate) fn parse(line: &[u8]) -> Result<Row, SkipReason> {
    let text = std::str::from_utf8(line).map_err(|_| SkipReason::NotUtf8)?;
    let text = text.trim_matches(is_python_space);
    if text.is_empty() {
        return Err(SkipReason::Empty);
    }
    let (key, payload) = text.split_once(' ').ok_or(SkipReason::OneWord)?;
    let key = Key::new(key).map_err(|error| match error {
        KeyError::TooLong(_) => SkipReason::KeyTooLong,
        KeyError::Empty | KeyError::Separator => SkipReason::Empty,
    })?;
    Ok(Row { key, payload: payload.to_owned() })
}

/// White space as Python's `str.strip` has it (spec 4): more than Rust's by four separators.
fn is_python_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}
