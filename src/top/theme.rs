//! How things look: styles, with colours or without, and the characters that are drawn. Pure.

use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::bar::{NINE_LEVELS, Set};

use crate::view::table::Tone;

/// Bars of ASCII, by how dense they are.
const ASCII: Set<'static> = Set {
    empty: " ",
    one_eighth: ".",
    one_quarter: ":",
    three_eighths: "-",
    half: "=",
    five_eighths: "+",
    three_quarters: "*",
    seven_eighths: "#",
    full: "@",
};

#[derive(Debug, Clone)]
pub struct Theme {
    pub title: Style,
    pub label: Style,
    pub value: Style,
    pub good: Style,
    pub warning: Style,
    pub bad: Style,
    pub banner: Style,
    pub header: Style,
    pub selected: Style,
    /// For everything that may be out of date.
    pub stale: Style,
    pub bars: Set<'static>,
    /// Behind the name of the column that is sorted by: ascending, descending.
    pub arrows: [&'static str; 2],
    pub separator: &'static str,
}

impl Theme {
    pub fn new(has_colours: bool, is_ascii: bool) -> Self {
        let plain = Style::new();
        let (bold, dim) = (plain.add_modifier(Modifier::BOLD), plain.add_modifier(Modifier::DIM));
        let reversed = plain.add_modifier(Modifier::REVERSED);
        let coloured = |style: Style, colour| if has_colours { style.fg(colour) } else { style };
        let stale = if has_colours { plain.fg(Color::DarkGray) } else { dim };
        Self {
            title: coloured(bold, Color::Cyan),
            label: coloured(plain, Color::Cyan),
            value: bold,
            good: coloured(plain, Color::Green),
            warning: coloured(plain, Color::Yellow),
            bad: coloured(bold, Color::Red),
            banner: coloured(reversed.add_modifier(Modifier::BOLD), Color::Yellow),
            header: coloured(reversed, Color::Green),
            selected: coloured(reversed, Color::Cyan),
            stale: stale.remove_modifier(Modifier::BOLD),
            bars: if is_ascii { ASCII } else { NINE_LEVELS },
            arrows: if is_ascii { ["^", "v"] } else { ["▲", "▼"] },
            separator: if is_ascii { " | " } else { " · " },
        }
    }

    pub fn tone(&self, tone: Tone) -> Style {
        match tone {
            Tone::Plain => Style::new(),
            Tone::Good => self.good,
            Tone::Warning => self.warning,
            Tone::Bad => self.bad,
        }
    }
}
