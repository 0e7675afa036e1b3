//! Frames of three sizes against files; a test that fails leaves what it drew in the target directory.

use std::path::Path;

use ratatui::crossterm::event::KeyCode;

use super::fixture::{frame, picture, state};
use crate::top::state::Event;

/// Compares, and says how to take over what was drawn.
fn assert_drawn(name: &str, drawn: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/top/frames").join(name);
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    if std::env::var_os("SHIFTBOSS_TAKE_FRAMES").is_some() {
        std::fs::write(&file, drawn).unwrap();
    } else {
        assert_eq!(
            drawn, expected,
            "{name}: look at it, and take it over with SHIFTBOSS_TAKE_FRAMES=1"
        );
    }
}

/// The four lists, at each size.
#[test]
fn frames_are_as_documented() {
    for (width, height) in [(40, 10), (80, 24), (200, 60)] {
        let mut shown = String::new();
        for key in "1234".chars() {
            let mut state = state(picture());
            state.update(Event::Key(KeyCode::Char(key)));
            state.update(Event::Key(KeyCode::Down));
            shown += &frame(&mut state, width, height);
        }
        assert_drawn(&format!("{width}x{height}.txt"), &shown);
    }
}
