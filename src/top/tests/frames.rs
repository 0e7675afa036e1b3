//! Frames of three sizes against files; a failing test leaves its drawing in the target directory.

use std::path::Path;

use ratatui::crossterm::event::KeyCode;
use shiftboss_protocol::answers::Waiting;
use shiftboss_protocol::answers::{EndedRun, FetcherRecord};

use super::fixture::{NOW, frame, picture, state};
use crate::top::state::Event;

/// Compares; the failure says how to accept the new drawing.
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

/// Lists, at each size; blank lines are shown as one.
#[test]
fn frames_are_as_documented() {
    for (width, height, tabs) in [(40, 10, "14"), (80, 24, "12345"), (200, 60, "13")] {
        let mut shown = String::new();
        for key in tabs.chars() {
            let mut state = state(picture());
            state.update(Event::Key(KeyCode::Char(key)));
            state.update(Event::Key(KeyCode::Down));
            let lines: Vec<String> =
                frame(&mut state, width, height).lines().map(str::to_owned).collect();
            let seen = lines.chunk_by(|one, next| one.is_empty() && next.is_empty());
            shown += &seen.map(|lines| lines[0].clone() + "\n").collect::<String>();
        }
        assert_drawn(&format!("{width}x{height}.txt"), &shown);
    }
}

/// Parts that are only shown when needed: a fetcher that failed before it had a list, delayed tasks, keys that never
/// ran.
#[test]
fn what_is_rare_is_drawn() {
    let mut picture = picture();
    let queue = &mut picture.snapshot.queue;
    let message = "the command ended with exit code 3".to_owned();
    queue.managed_fetchers.push(FetcherRecord {
        name: "mirrors".into(),
        state: "idle".to_owned(),
        run_started: None,
        last_run: Some(EndedRun { started: NOW - 9, ended: NOW - 8, exit_code: 3, message }),
        next_run: None,
    });
    (queue.delayed, queue.backed_off) = (7, 2);
    queue.longest_wait = None;
    queue.oldest_waiting = Some(Waiting { key: "new".to_owned(), last_started: None });
    let drawn = frame(&mut state(picture), 120, 16);
    let meters = ["held 1   failed 5   delayed 7   backed off 2", "longest wait never ran new"];
    for told in meters.into_iter().chain(["mirrors", "no list", "exit code 3"]) {
        assert!(drawn.contains(told), "{told}: {drawn}");
    }
}
