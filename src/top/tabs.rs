//! The four lists that there are, and their columns. Pure.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tab {
    Fetchers,
    InFlight,
    Next,
    Ended,
}

impl Tab {
    pub const ALL: [Self; 4] = [Self::Fetchers, Self::InFlight, Self::Next, Self::Ended];

    pub fn name(self) -> &'static str {
        match self {
            Self::Fetchers => "Fetchers",
            Self::InFlight => "In flight",
            Self::Next => "Next",
            Self::Ended => "Ended",
        }
    }

    pub fn columns(self) -> &'static [Column] {
        match self {
            Self::Fetchers => FETCHERS,
            Self::InFlight => IN_FLIGHT,
            Self::Next => NEXT,
            Self::Ended => ENDED,
        }
    }

    /// What stands in the place of rows where there are none.
    pub fn none(self) -> &'static str {
        match self {
            Self::Fetchers => "There is no fetcher.",
            Self::InFlight => "Nothing is in flight.",
            Self::Next => "Nothing is waiting.",
            Self::Ended => "No attempt has ended.",
        }
    }
}

#[derive(Debug)]
pub struct Column {
    pub name: &'static str,
    /// Where there is no room, those of the highest rank are left out first, and that of rank 0 never. One whose cells are all empty
    /// has none.
    pub rank: u8,
    /// So narrow it may become; `None`: as wide as its cells.
    pub shrinks_to: Option<u16>,
    /// Its cells stand at its right end.
    pub is_number: bool,
}

const fn column(name: &'static str, rank: u8) -> Column {
    Column { name, rank, shrinks_to: None, is_number: false }
}

const fn number(name: &'static str, rank: u8) -> Column {
    Column { is_number: true, ..column(name, rank) }
}

const fn text(name: &'static str, rank: u8, shrinks_to: u16) -> Column {
    Column { shrinks_to: Some(shrinks_to), ..column(name, rank) }
}

const FETCHERS: &[Column] = &[
    text("Fetcher", 0, 16),
    number("run", 8),
    column("state", 4),
    number("lines", 3),
    number("waiting", 1),
    number("skipped", 6),
    column("age", 5),
    number("older runs", 9),
    number("success 24h", 2),
    column("cycle 24h", 3),
    column("next run", 7),
    column("failed with", 1),
];
const IN_FLIGHT: &[Column] = &[
    text("Worker", 2, 8),
    text("key", 0, 12),
    number("attempt", 4),
    column("age", 1),
    column("lease", 3),
    text("daemon", 5, 6),
];
const NEXT: &[Column] = &[
    number("Place", 1),
    text("key", 0, 12),
    column("last run", 2),
    text("fetcher", 3, 8),
    column("expected", 4),
    text("payload", 5, 10),
];
const ENDED: &[Column] = &[
    text("Key", 0, 12),
    column("outcome", 1),
    column("took", 3),
    text("worker", 4, 8),
    column("ago", 2),
    text("fetcher", 5, 8),
    number("attempt", 6),
];
