//! Which key does what: one table, for both the commands and the help. Keys that change something are in
//! [`orders`](super::orders).

use ratatui::crossterm::event::KeyCode;

use super::tabs::Tab;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    NextTab,
    PreviousTab,
    Tab(Tab),
    Filter,
    Ask,
    Sort,
    Reverse,
    Freeze,
    Why,
    Output,
    Longer,
    Shorter,
    Help,
    /// Leaves what was opened last, and in the end the program.
    Leave,
    Quit,
}

#[derive(Debug)]
pub struct Binding {
    pub keys: &'static [KeyCode],
    /// The keys as help shows them, and what they do; empty: another line has it.
    pub shown: &'static str,
    pub help: &'static str,
    pub command: Command,
}

const fn binding(
    keys: &'static [KeyCode],
    shown: &'static str,
    help: &'static str,
    command: Command,
) -> Binding {
    Binding { keys, shown, help, command }
}

use KeyCode::Char;

/// In the order in which they are shown.
pub const BINDINGS: &[Binding] = &[
    binding(&[Char('q')], "q", "quit", Command::Quit),
    binding(&[Char('?')], "?", "help", Command::Help),
    binding(&[KeyCode::Enter], "Enter", "why: where the key is", Command::Why),
    binding(&[Char('o')], "o", "output: what the job wrote", Command::Output),
    binding(&[Char('/')], "/", "filter: rows that have a text in any column", Command::Filter),
    binding(&[Char('g')], "g", "go: to any key, by its name", Command::Ask),
    binding(&[Char(' ')], "Space", "freeze: or go on", Command::Freeze),
    binding(&[Char('s')], "s", "sort: by the next column", Command::Sort),
    binding(&[Char('r')], "r", "reverse: the order", Command::Reverse),
    binding(&[KeyCode::Tab, KeyCode::Right], "Tab Right", "next list", Command::NextTab),
    binding(&[KeyCode::BackTab, KeyCode::Left], "Left", "previous list", Command::PreviousTab),
    binding(&[Char('1')], "1", "fetchers", Command::Tab(Tab::Fetchers)),
    binding(&[Char('2')], "2", "in flight", Command::Tab(Tab::InFlight)),
    binding(&[Char('3')], "3", "next", Command::Tab(Tab::Next)),
    binding(&[Char('4')], "4", "ended", Command::Tab(Tab::Ended)),
    binding(&[Char('5')], "5", "delayed", Command::Tab(Tab::Delayed)),
    binding(&[Char('6')], "6", "held", Command::Tab(Tab::Held)),
    binding(&[Char('7')], "7", "failed", Command::Tab(Tab::Failed)),
    binding(&[Char('8')], "8", "dead letters", Command::Tab(Tab::DeadLetters)),
    binding(&[Char('9')], "9", "groups", Command::Tab(Tab::Groups)),
    binding(&[KeyCode::Up, Char('k')], "Up k", "up", Command::Up),
    binding(&[KeyCode::Down, Char('j')], "Down j", "down", Command::Down),
    binding(&[KeyCode::PageUp], "PgUp", "a page up", Command::PageUp),
    binding(&[KeyCode::PageDown], "PgDn", "a page down", Command::PageDown),
    binding(&[KeyCode::Home], "Home End", "to the first row, the last", Command::First),
    binding(&[KeyCode::End], "", "", Command::Last),
    binding(&[Char('+')], "+", "look less often", Command::Longer),
    binding(&[Char('-')], "-", "look more often", Command::Shorter),
    binding(&[KeyCode::Esc], "Esc", "back", Command::Leave),
];

pub fn command(key: KeyCode) -> Option<Command> {
    let found = BINDINGS.iter().find(|binding| binding.keys.contains(&key));
    found.map(|binding| binding.command)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::orders::CHANGES;
    use super::*;

    #[test]
    fn each_key_does_one_thing() {
        let changes = CHANGES.iter().map(|change| Char(change.key));
        let keys: Vec<KeyCode> =
            BINDINGS.iter().flat_map(|binding| binding.keys).copied().chain(changes).collect();
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len(), "{keys:?}");
        assert_eq!(command(Char('j')), Some(Command::Down));
    }
}
