//! Which row is selected, and what is visible around it, while lists change.

use ratatui::crossterm::event::KeyCode::{Char, Down, Enter, Esc};

use super::fixture::{NOW, delayed, frame, picture, state};
use super::states::{press, see, selected, type_in, without_first};
use crate::top::picture::Detail;
use crate::top::prompt::Prompt;
use crate::top::state::Effect;
use crate::top::tabs::Tab;
use crate::view::question::Listed;

/// It follows its row; when that is gone, so is the selection, so that no pressed key concerns another row.
#[test]
fn the_selection_follows_its_key() {
    let mut state = state(picture());
    press(&mut state, &[Char('3'), Down, Down, Down, Down, Down]);
    assert_eq!((selected(&state), state.listing().at), ("pkg-00005", 5));
    see(&mut state, without_first(picture(), 3));
    assert_eq!((selected(&state), state.listing().at), ("pkg-00005", 2));
    type_in(&mut state, "r");
    assert_eq!(selected(&state), "pkg-00005");
    type_in(&mut state, "r");
    see(&mut state, without_first(picture(), 6));
    assert!(frame(&mut state, 80, 24).contains("  - of 34"));
    for key in [Char('B'), Enter, Char('o')] {
        assert!(press(&mut state, &[key]).is_none());
        let gone = "What was selected is not in this list any more.";
        assert!(frame(&mut state, 80, 24).contains(gone), "{key:?}");
    }
    see(&mut state, without_first(picture(), 3));
    assert_eq!((selected(&state), state.listing().at), ("pkg-00005", 2), "it came back");
    // Each list has its own.
    type_in(&mut state, "23");
    assert_eq!(selected(&state), "pkg-00005");
    see(&mut state, without_first(picture(), 6));
    type_in(&mut state, "j");
    assert_eq!(selected(&state), "pkg-00008", "who moves selects anew");
    // Sorting begins at the top.
    type_in(&mut state, "js");
    assert_eq!(state.listing().at, 0);
}

/// The subject of an order stays selected, and the next order on the list goes on from its place.
#[test]
fn an_order_keeps_the_selection() {
    let mut state = state(picture());
    type_in(&mut state, "3jjjBy");
    let mut bumped = picture();
    let Some(Listed::Next(queue)) = &mut bumped.found[Tab::Next as usize] else { panic!() };
    queue.keys.swap(0, 3);
    see(&mut state, bumped);
    assert_eq!((selected(&state), state.listing().at), ("pkg-00003", 3));
    assert!(frame(&mut state, 80, 24).contains("  1 of 40"));
    type_in(&mut state, "j");
    assert_eq!((selected(&state), state.listing().at), ("pkg-00000", 3));
}

/// The first line is selected until the user moves, whichever row it is.
#[test]
fn the_top_is_stayed_at() {
    let mut state = state(picture());
    type_in(&mut state, "3");
    see(&mut state, without_first(picture(), 3));
    assert_eq!((selected(&state), state.listing().at), ("pkg-00003", 0));
    // Being asked about a key selects it.
    type_in(&mut state, "B");
    see(&mut state, without_first(picture(), 5));
    assert!(frame(&mut state, 80, 24).contains("Bump pkg-00003? y/N"));
    type_in(&mut state, "n");
    assert!(state.selected().is_none());
}

/// A hidden row does not count as gone: the first visible row is selected.
#[test]
fn a_filter_finds_a_row() {
    let mut state = state(picture());
    type_in(&mut state, "3j/PKG-0003");
    press(&mut state, &[Enter]);
    assert_eq!((selected(&state), state.listing().at), ("pkg-00030", 0));
    press(&mut state, &[Esc]);
    type_in(&mut state, "k/00030");
    assert_eq!(selected(&state), "pkg-00030", "what is not hidden stays selected");
}

/// Any key can be asked about, and acted on, in whatever list it is.
#[test]
fn any_key_is_gone_to() {
    let mut state = state(picture());
    type_in(&mut state, "3/far");
    press(&mut state, &[Enter]);
    type_in(&mut state, "g-away");
    assert!(frame(&mut state, 80, 24).contains("Key: far-away"));
    assert!(matches!(press(&mut state, &[Enter]), Some(Effect::Look)));
    assert_eq!(state.view().detail, Some(Detail::Why("far-away".to_owned())));
    type_in(&mut state, "B");
    assert!(frame(&mut state, 80, 24).contains("Bump far-away? y/N"));
    for leave in [Esc, Enter] {
        let mut state = super::fixture::state(picture());
        press(&mut state, &[Char('g'), leave]);
        assert!(state.opened.is_none() && matches!(state.prompt, Prompt::None));
    }
}

/// A list has what its tab is of: delayed tasks with when they are due, held keys until when.
#[test]
fn what_is_set_apart_has_lists() {
    let mut state = state(picture());
    type_in(&mut state, "5");
    assert_eq!(selected(&state), "python3.12-bar");
    assert!(frame(&mut state, 120, 24).contains("  in 30s  failure, exit code 1"));
    let mut late = picture();
    late.found[Tab::Delayed as usize] = delayed(NOW - 1);
    see(&mut state, late);
    assert!(frame(&mut state, 120, 24).contains("  now  failure, exit code 1"));
    type_in(&mut state, "6");
    assert_eq!(selected(&state), "zlib");
    assert!(frame(&mut state, 120, 24).contains("until it is unheld"));
    type_in(&mut state, "8");
    assert!(state.selected().is_none());
}
