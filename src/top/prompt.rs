//! What the next key belongs to if it is not a command: an answer, or a text that is being typed. Pure.

use ratatui::crossterm::event::KeyCode;
use shiftboss_protocol::model::KEY_MAX_BYTES;

use super::orders::Order;

#[derive(Debug)]
pub enum Prompt {
    None,
    /// Typed into the list's filter.
    Filter,
    Key(String),
    Confirm(Order),
}

#[derive(Debug, PartialEq, Eq)]
pub enum Typed {
    GoesOn,
    Ends,
    IsDropped,
}

/// Types into a text, which may be as long as a key.
pub fn type_into(text: &mut String, key: KeyCode) -> Typed {
    match key {
        KeyCode::Enter => return Typed::Ends,
        KeyCode::Esc => return Typed::IsDropped,
        KeyCode::Backspace => drop(text.pop()),
        KeyCode::Char(typed) if text.len() + typed.len_utf8() <= KEY_MAX_BYTES => text.push(typed),
        _ => {}
    }
    Typed::GoesOn
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It grows up to a bound, and shrinks.
    #[test]
    fn texts_are_typed() {
        let mut text = String::new();
        for _ in 0..2 * KEY_MAX_BYTES {
            assert_eq!(type_into(&mut text, KeyCode::Char('é')), Typed::GoesOn);
        }
        assert_eq!(text.len(), KEY_MAX_BYTES);
        type_into(&mut text, KeyCode::Backspace);
        type_into(&mut text, KeyCode::Up);
        assert_eq!(text.len(), KEY_MAX_BYTES - 2);
        assert_eq!(type_into(&mut text, KeyCode::Enter), Typed::Ends);
        assert_eq!(type_into(&mut text, KeyCode::Esc), Typed::IsDropped);
    }
}
