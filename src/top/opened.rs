//! What was opened in place of the list, and how far it is scrolled. Pure.

use super::keys::Command;
use super::picture::Detail;
use crate::view::table::Row;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Instead {
    Help,
    Detail(Detail),
}

#[derive(Debug)]
pub struct Opened {
    pub what: Instead,
    /// The row that it was opened from; `None`: none.
    pub picked: Option<Row>,
    /// Lines that are passed over; of an output from its end.
    pub scroll: usize,
}

/// How much of the opened text fits at once, and its whole length, as of the last drawing.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub page: usize,
    pub lines: usize,
}

impl Opened {
    pub fn new(what: Instead, picked: Option<Row>) -> Self {
        Self { what, picked, scroll: 0 }
    }

    pub fn go(&mut self, command: Command, extent: Extent) {
        let rest = extent.lines.saturating_sub(extent.page);
        let moved = |at| moved(command, at, rest, extent.page);
        self.scroll = match self.what {
            // An output is gone through from its end.
            Instead::Detail(Detail::Output(_)) => rest - moved(rest.saturating_sub(self.scroll)),
            _ => moved(self.scroll.min(rest)),
        };
    }
}

/// Where a command leads from there; `last` is the end.
pub fn moved(command: Command, at: usize, last: usize, page: usize) -> usize {
    let page = page.max(1);
    match command {
        Command::Up => at.saturating_sub(1),
        Command::Down => at.saturating_add(1).min(last),
        Command::PageUp => at.saturating_sub(page),
        Command::PageDown => at.saturating_add(page).min(last),
        Command::First => 0,
        _ => last,
    }
}
