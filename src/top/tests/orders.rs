//! The subjects of keys that change something, and who may use them.

use std::time::Duration;

use ratatui::crossterm::event::KeyCode::Enter;

use super::fixture::{EVIL, frame, picture, state};
use super::states::{press, see, stopped, type_in, without_first};
use crate::top::orders::CHANGES;
use crate::top::prompt::Prompt;
use crate::top::state::{Abilities, Effect, Event, State};
use crate::view::health::Unknown;

/// Changes must be confirmed, and are only done after `y`.
#[test]
fn orders_are_confirmed() {
    let mut state = state(picture());
    type_in(&mut state, "P");
    assert!(frame(&mut state, 80, 24).contains("Pause: hand nothing out? y/N"));
    assert!(type_in(&mut state, "n").is_none());
    assert!(frame(&mut state, 80, 24).contains("Not done."));
    for (keys, question) in [
        ("3R", "Retry pkg-00000? y/N"),
        ("3B", "Bump pkg-00000? y/N"),
        ("3H", "Hold pkg-00000? y/N"),
        ("2jjH", "Unhold zlib? y/N"),
    ] {
        type_in(&mut state, keys);
        assert!(frame(&mut state, 80, 24).contains(question), "{keys}");
        assert!(matches!(type_in(&mut state, "y"), Some(Effect::Tell(_))), "{keys}");
    }
    state.update(Event::Told(format!("Not done: {EVIL}")));
    assert!(frame(&mut state, 80, 24).contains("Not done: evil\\u{1b}[2J"));
    type_in(&mut state, "1R");
    assert!(frame(&mut state, 80, 24).contains("Select a key first."));
}

/// A user who may change nothing has no keys for it, and sees none.
#[test]
fn orders_are_for_operators() {
    let abilities = Abilities { may_change: false, has_outputs: true };
    let read_only = State::new(picture(), Duration::from_secs(2), abilities);
    let withheld = || Err(Unknown::Withheld("for others".to_owned()));
    let mut stranger = picture();
    stranger.snapshot.live = withheld();
    let stranger = state(stranger);
    for mut state in [read_only, stranger, state(stopped(picture()))] {
        for change in CHANGES {
            type_in(&mut state, &change.key.to_string());
            assert!(!frame(&mut state, 200, 60).contains("y/N"), "{}", change.key);
        }
        assert!(!frame(&mut state, 200, 60).contains("pause"));
        type_in(&mut state, "?");
        assert!(!frame(&mut state, 200, 60).contains("pause"));
    }
}

/// Keys concern what is open, wherever its row has gone meanwhile.
#[test]
fn what_is_open_is_acted_on() {
    let mut state = state(picture());
    type_in(&mut state, "3");
    press(&mut state, &[Enter]);
    see(&mut state, without_first(picture(), 3));
    type_in(&mut state, "B");
    let Prompt::Confirm(order) = &state.prompt else { panic!("{:?}", state.prompt) };
    assert_eq!(order.question, "Bump pkg-00000?");
}

/// A user who may change nothing is told so, in a line and at each key.
#[test]
fn what_cannot_be_changed() {
    let mut state = state(picture());
    state.abilities.may_change = false;
    assert!(frame(&mut state, 40, 10).contains("read-only  q quit"));
    type_in(&mut state, "3B");
    assert!(matches!(state.prompt, Prompt::None));
    assert!(frame(&mut state, 80, 24).contains("Nothing can be changed: this is read-only."));
}
