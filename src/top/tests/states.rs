//! What keys and pictures change in a state, and what is visible of it.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode::{self, Char, Down, End, Enter, Esc, PageDown};
use ratatui::style::{Color, Modifier};

use shiftboss_protocol::answers::{GroupCount, GroupState};

use super::fixture::{EVIL, NOW, empty, frame, next, picture, state};
use crate::lock::LockState;
use crate::top::draw::draw;
use crate::top::keys::BINDINGS;
use crate::top::orders::CHANGES;
use crate::top::picture::{Detail, Picture};
use crate::top::plain::text;
use crate::top::state::{Effect, Event, State};
use crate::top::tabs::Tab;
use crate::top::theme::Theme;

pub fn press(state: &mut State, keys: &[KeyCode]) -> Option<Effect> {
    let mut effect = None;
    for key in keys {
        effect = state.update(Event::Key(*key));
    }
    effect
}

pub fn type_in(state: &mut State, text: &str) -> Option<Effect> {
    press(state, &text.chars().map(Char).collect::<Vec<_>>())
}

pub fn see(state: &mut State, picture: Picture) {
    state.update(Event::Looked(Ok(Box::new(picture))));
}

pub fn selected(state: &State) -> &str {
    state.selected().and_then(|row| row.key.as_deref()).unwrap()
}

/// Keys that wait, as the third list shows them.
fn waiting(state: &State) -> Vec<&str> {
    let rows = &state.table.as_ref().unwrap().rows;
    rows.iter().map(|row| row.key.as_deref().unwrap()).collect()
}

pub fn without_first(mut picture: Picture, count: i64) -> Picture {
    picture.found[Tab::Next as usize] = next(count);
    picture
}

/// The daemon of a picture is gone.
pub fn stopped(mut picture: Picture) -> Picture {
    (picture.snapshot.target.daemon, picture.snapshot.live) = (LockState::Free, Ok(None));
    picture
}

/// Up and down stop at the ends; a page is as much as was drawn.
#[test]
fn keys_move_the_selection() {
    let mut state = state(picture());
    type_in(&mut state, "3");
    frame(&mut state, 80, 24);
    for (keys, at) in [
        (vec![Char('k')], 0),
        (vec![Char('j'), Char('j'), KeyCode::Up], 1),
        (vec![PageDown], 16),
        (vec![End], 39),
        (vec![Down], 39),
        (vec![KeyCode::PageUp], 24),
        (vec![KeyCode::Home], 0),
    ] {
        press(&mut state, &keys);
        assert_eq!(state.listing().at, at, "{keys:?}");
    }
    for (key, tab) in [
        (KeyCode::Tab, Tab::Ended),
        (KeyCode::Char('8'), Tab::DeadLetters),
        (KeyCode::Right, Tab::Fetchers),
        (KeyCode::BackTab, Tab::DeadLetters),
        (KeyCode::Char('4'), Tab::Ended),
        (KeyCode::Left, Tab::Next),
    ] {
        assert!(matches!(press(&mut state, &[key]), Some(Effect::Look)));
        assert_eq!(state.tab, tab);
    }
}

/// Shows the rows with the text; keys typed meanwhile are not commands, and Esc removes the filter.
#[test]
fn a_filter_leaves_rows_out() {
    let mut state = state(picture());
    assert!(type_in(&mut state, "3/PKG-0003q").is_none());
    assert!(
        frame(&mut state, 80, 24)
            .contains("No row of this list is like that. g asks about any key.")
    );
    press(&mut state, &[KeyCode::Backspace, Enter]);
    assert_eq!(waiting(&state).len(), 10);
    assert!(frame(&mut state, 80, 24).contains("rows with PKG-0003  1 of 10"));
    // Each list has its own.
    type_in(&mut state, "4");
    assert!(!frame(&mut state, 80, 24).contains("rows with"));
    type_in(&mut state, "3");
    assert_eq!(waiting(&state).len(), 10);
    press(&mut state, &[Esc]);
    assert_eq!(waiting(&state).len(), 40);
    type_in(&mut state, "/\u{1b}[2J");
    assert!(frame(&mut state, 80, 24).contains("Next: rows that have, in any column: \\u{1b}[2J"));
    press(&mut state, &[Esc]);
    assert_eq!(waiting(&state).len(), 40);
}

/// By numbers if there are some, else by text; after the last column in the queue's order again.
#[test]
fn lists_are_sorted() {
    let mut state = state(picture());
    type_in(&mut state, "4");
    let first = |state: &mut State, keys: &str| {
        type_in(state, keys);
        press(state, &[KeyCode::Home]);
        selected(state).to_owned()
    };
    assert_eq!(first(&mut state, ""), "pkg-00029");
    assert_eq!(first(&mut state, "s"), "pkg-00000");
    assert!(frame(&mut state, 80, 24).contains("Key▲"));
    assert_eq!(first(&mut state, "sss"), "pkg-00000", "by how long it took");
    assert_eq!(first(&mut state, "r"), "pkg-00029");
    assert!(frame(&mut state, 80, 24).contains("took▼"));
    assert_eq!(first(&mut state, "rssss"), "pkg-00029", "in the queue's order");
}

/// A frozen frame stays, but data that it never had is added.
#[test]
fn space_freezes() {
    let mut state = state(picture());
    type_in(&mut state, "3 ");
    see(&mut state, without_first(picture(), 3));
    assert_eq!(waiting(&state)[0], "pkg-00000");
    assert!(frame(&mut state, 80, 24).lines().next().unwrap().ends_with("FROZEN 10:55:18Z"));
    state.picture.found[Tab::Ended as usize] = None;
    type_in(&mut state, "4");
    assert!(frame(&mut state, 80, 24).contains("Asking the queue ..."));
    see(&mut state, picture());
    assert_eq!(selected(&state), "pkg-00029");
    type_in(&mut state, " 3");
    see(&mut state, without_first(picture(), 3));
    assert_eq!(waiting(&state)[0], "pkg-00003");
}

/// The last values stay, greyed, under a line that says why; then everything is as before.
#[test]
fn what_is_out_of_date_is_grey() {
    let mut state = state(picture());
    let mut later = stopped(picture());
    later.snapshot.at = NOW + 60;
    see(&mut state, later);
    let shown = frame(&mut state, 80, 24);
    assert!(
        shown
            .contains("STOPPED: no daemon runs, and nothing is handed out; last seen at 10:55:18Z"),
        "{shown}"
    );
    assert!(shown.contains("waiting 24792"), "{shown}");
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let is_grey = |state: &State, terminal: &mut Terminal<TestBackend>, y| {
        let theme = Theme::new(true, false);
        terminal.draw(|frame| _ = draw(frame, state, &theme)).unwrap();
        let cell = &terminal.backend().buffer()[(0, y)];
        cell.fg == Color::DarkGray && !cell.modifier.contains(Modifier::BOLD)
    };
    assert_eq!([0, 2, 3].map(|y| is_grey(&state, &mut terminal, y)), [true, false, true]);
    see(&mut state, picture());
    assert!(!is_grey(&state, &mut terminal, 3) && !frame(&mut state, 80, 24).contains("STOPPED"));
    state.update(Event::Looked(Err("the database is locked".to_owned())));
    let why = "NO ANSWER, values of 10:55:18Z: the database is locked";
    assert!(frame(&mut state, 80, 24).contains(why));
    assert!(is_grey(&state, &mut terminal, 3));
}

/// What keeps the whole queue from going on is shown at the top, and cannot control the terminal.
#[test]
fn banners_say_what_is_wrong() {
    let mut picture = picture();
    picture.snapshot.queue.directory_lost_since = Some(NOW - 90);
    picture.snapshot.queue.directory_lost_reason = Some(EVIL.to_owned());
    let shown = text(&picture, 100, &Theme::new(false, false));
    let expected =
        "INPUT: the directory is lost since 1m 30s ago: evil\\u{1b}[2J\\u{202e}\\u{200b}";
    assert_eq!(shown.lines().nth(2).unwrap(), expected);
}

/// Enter asks where the key is, `o` what its job wrote; both are read line by line, and left again.
#[test]
fn rows_lead_to_more() {
    let mut state = state(picture());
    type_in(&mut state, "4");
    assert!(matches!(press(&mut state, &[Enter]), Some(Effect::Look)));
    let detail = Detail::Why("pkg-00029".to_owned());
    assert_eq!(state.view().detail, Some(detail.clone()));
    assert!(frame(&mut state, 80, 24).contains("Asking ..."));
    let lines: Vec<String> = (0..100).map(|number| format!("line {number}")).collect();
    see(&mut state, Picture { detail: Some((detail, lines.clone())), ..picture() });
    assert!(frame(&mut state, 80, 24).contains("line 0\n"));
    press(&mut state, &[PageDown]);
    let shown = frame(&mut state, 80, 24);
    assert!(!shown.contains("line 15\n") && shown.contains("line 16\n"), "{shown}");
    press(&mut state, &[Char('o')]);
    assert!(matches!(state.view().detail, Some(Detail::Output(_))), "from there, too");
    press(&mut state, &[Esc, Char('o')]);
    let Some(Detail::Output(attempt)) = state.view().detail else { panic!("{:?}", state.view()) };
    assert_eq!((&*attempt.key, attempt.number), ("pkg-00029", Some(4_729)));
    see(&mut state, Picture { detail: Some((Detail::Output(attempt), lines)), ..picture() });
    assert!(frame(&mut state, 80, 24).contains("line 99\n"), "from its end");
    press(&mut state, &[KeyCode::Home]);
    assert!(frame(&mut state, 80, 24).contains("line 0\n"));
    assert!(type_in(&mut state, "q3o").is_none());
    assert!(frame(&mut state, 80, 24).contains("Only what is in flight, delayed, or ended has"));
    press(&mut state, &[Enter, Char('o')]);
    assert!(matches!(state.view().detail, Some(Detail::Why(_))), "it stays open");
    type_in(&mut state, "1");
    press(&mut state, &[Enter]);
    assert_eq!(state.view().detail, Some(Detail::Fetcher("links".to_owned())));
}

/// `+` and `-` go from step to step, and `q` ends it.
#[test]
fn intervals_and_the_end() {
    let mut state = state(picture());
    assert!(matches!(type_in(&mut state, "+"), Some(Effect::Look)));
    assert_eq!(state.interval, Duration::from_secs(5));
    type_in(&mut state, &"-".repeat(10));
    assert_eq!(state.interval, Duration::from_millis(500));
    type_in(&mut state, &"+".repeat(10));
    assert_eq!(state.interval, Duration::from_secs(300));
    assert!(matches!(state.update(Event::Stop), Some(Effect::Quit)));
    assert!(press(&mut state, &[Esc]).is_none());
    assert!(matches!(type_in(&mut state, "q"), Some(Effect::Quit)));
}

/// Groups are among the lists where there are some, or where they are asked for; `H` holds the selected one, or ends its hold.
#[test]
fn groups_are_a_list() {
    let mut shown = picture();
    let count = GroupCount { state: GroupState::Open, groups: 3, waiting: 0 };
    let mut state = state(picture());
    assert!(!frame(&mut state, 100, 24).contains("9 Groups"));
    shown.snapshot.queue.groups = vec![count];
    see(&mut state, shown);
    assert!(frame(&mut state, 100, 24).contains("9 Groups"));
    press(&mut state, &[KeyCode::BackTab]);
    assert!(state.tab == Tab::Groups && frame(&mut state, 100, 24).contains("host:b.example"));
    type_in(&mut state, "H");
    assert!(frame(&mut state, 100, 24).contains("Unhold the group host:a.example?"));
    type_in(&mut state, "njH");
    assert!(frame(&mut state, 100, 24).contains("Hold the group host:b.example?"));
}

#[test]
fn help_names_each_key() {
    let mut state = state(picture());
    type_in(&mut state, "?");
    for (width, height) in [(200, 60), (80, 24)] {
        let shown = frame(&mut state, width, height);
        let changes = CHANGES.iter().map(|change| change.help);
        for help in BINDINGS.iter().map(|binding| binding.help).chain(changes) {
            assert!(shown.contains(help), "{help}: {shown}");
        }
    }
}

/// Whatever is pressed, at whatever size, of a full queue or of an empty one: it is drawn, and nothing steers the terminal.
#[test]
fn any_key_in_any_state() {
    let all: Vec<KeyCode> = BINDINGS.iter().flat_map(|it| it.keys).copied().collect();
    let changes = CHANGES.iter().map(|it| Char(it.key));
    let keys: Vec<KeyCode> = all
        .into_iter()
        .chain(changes)
        .chain([Char('\u{1b}'), KeyCode::F(1), KeyCode::Null])
        .collect();
    let pictures: [fn() -> Picture; 3] = [picture, empty, || stopped(picture())];
    // Each first key with one of them.
    for (make, first) in pictures.iter().cycle().zip(keys.iter().copied()) {
        let mut state = state(make());
        for (at, second) in keys.iter().enumerate() {
            press(&mut state, &[first, *second]);
            if let Some(detail) = state.view().detail {
                let lines = vec!["one".to_owned(); 50];
                see(&mut state, Picture { detail: Some((detail, lines)), ..make() });
            }
            let (width, height) = [(3, 2), (40, 10)][at % 2];
            let shown = frame(&mut state, width, height);
            assert!(!shown.contains(|it: char| it.is_control() && it != '\n'), "{shown:?}");
            assert!(!shown.contains(['\u{202e}', '\u{200b}']), "{shown:?}");
        }
    }
}

/// One frame as text: all lists, in the given width, and only ASCII if that is wanted.
#[test]
fn a_plain_frame() {
    for width in [40, 80, 200] {
        let shown = text(&picture(), width, &Theme::new(false, true));
        assert!(shown.is_ascii(), "{shown}");
        let lines = shown.lines().map(str::len);
        assert!(lines.max().unwrap() <= usize::from(width), "{shown}");
        for part in ["Fetchers", "In flight", "Next", "Ended", "Held", "... and 20 more"] {
            assert!(shown.contains(&format!("\n{part}\n")), "{part}: {shown}");
        }
    }
    let none = text(&empty(), 80, &Theme::new(false, false));
    for tab in Tab::ALL {
        let said = tab.table(&empty()).unwrap().none;
        assert!(none.contains(&format!("\n{}\n{said}\n", tab.name())), "{none}");
    }
}
