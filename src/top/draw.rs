//! What a state looks like: the head ([`head`]), below it a list ([`table`]), what was opened in its place ([`opened`]), or the keys; at
//! the bottom what is asked, was done, or can be done. Pure: it draws into whatever is given.

pub mod head;
mod opened;
pub mod table;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::keys::BINDINGS;
use super::look::ROWS_MAX;
use super::opened::Extent;
use super::prompt::Prompt;
use super::state::State;
use super::tabs::Tab;
use super::theme::Theme;
use crate::text::shown;

/// Lower than this, the head has one line of meters, and no picture.
const ROOMY_HEIGHT: u16 = 16;

/// Draws all of it. How much of what is open there was room for.
pub fn draw(frame: &mut Frame<'_>, state: &State, theme: &Theme) -> Extent {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    let mut head = head::lines(&state.picture, Some(state), theme, area.width);
    if area.height < ROOMY_HEIGHT {
        head.make_short();
    }
    let lines = head.all();
    let banner_at = head.banner_at();
    let top = lines.len().min(area.height.into());
    for (line, y) in lines.iter().zip(area.y..area.bottom()) {
        put(buffer, area, y, line);
    }
    let top = area.y + u16::try_from(top).unwrap_or(area.height);
    put(buffer, area, top, &tabs(state, theme));
    right(buffer, area, top, &place(state), theme.label);
    let below = (top + 1).min(area.bottom());
    let height = area.bottom().saturating_sub(below + 1);
    let body = Rect { y: below, height, ..area };
    let extent = draw_body(buffer, body, state, theme);
    if state.is_stale() {
        grey(buffer, area, banner_at.map(|at| area.y + at), theme);
    }
    put(buffer, area, body.bottom(), &footer(state, theme, area.width));
    extent
}

fn draw_body(buffer: &mut Buffer, body: Rect, state: &State, theme: &Theme) -> Extent {
    match &state.opened {
        Some(what) => opened::draw(buffer, body, what, state),
        None => table::draw(buffer, body, state, theme),
    }
}

/// Writes a line where there is one.
pub fn put(buffer: &mut Buffer, area: Rect, y: u16, line: &Line<'_>) {
    if y < area.bottom() {
        buffer.set_line(area.x, y, line, area.width);
    }
}

/// Writes at the end of a line, if there is room for it behind what stands there.
fn right(buffer: &mut Buffer, area: Rect, y: u16, text: &str, style: Style) {
    let width = u16::try_from(text.width()).unwrap_or(u16::MAX);
    let Some(x) = area.right().checked_sub(width).filter(|_| y < area.bottom()) else { return };
    // With a space between.
    let is_free = (x.saturating_sub(1)..area.right()).all(|x| buffer[(x, y)].symbol() == " ");
    if is_free {
        buffer.set_stringn(x, y, text, width.into(), style);
    }
}

fn tabs<'a>(state: &State, theme: &Theme) -> Line<'a> {
    let tab = |(at, tab): (usize, &Tab)| {
        let style = if *tab == state.tab { theme.selected } else { Style::new() };
        let text = format!("{} {}", at + 1, tab.name());
        [Span::styled(text, style), Span::raw(" ")]
    };
    Line::from_iter(Tab::ALL.iter().enumerate().flat_map(tab))
}

/// Where the selected row is, in which order, and what is left out.
fn place(state: &State) -> String {
    let listing = state.listing();
    let filter = match listing.filter.is_empty() {
        true => String::new(),
        false => format!("filter: {}  ", shown(&listing.filter)),
    };
    let sorted = listing.column.map_or(String::new(), |column| {
        format!("by {}  ", state.tab.columns()[column].name.to_lowercase())
    });
    match &state.rows {
        Some(rows) if !rows.is_empty() => {
            // A list ends there, though there may be more.
            let more = if rows.len() >= ROWS_MAX { "+" } else { "" };
            // What was selected may be gone.
            let at = listing.selected_at().map_or("-".to_owned(), |at| (at + 1).to_string());
            format!("{filter}{sorted}{at} of {}{more}", rows.len())
        }
        _ => filter.trim_end().to_owned(),
    }
}

fn footer<'a>(state: &'a State, theme: &Theme, width: u16) -> Line<'a> {
    match &state.prompt {
        Prompt::Filter => {
            typed("Filter: ", &state.listing().filter, "Enter keeps it, Esc takes it away", theme)
        }
        Prompt::Key(text) => typed("Key: ", text, "Enter asks about it", theme),
        Prompt::Confirm(order) => Line::from(vec![
            Span::styled(order.question.clone(), theme.warning),
            Span::styled(" y/N", theme.title),
        ]),
        Prompt::None => match &state.message {
            Some(message) => Line::styled(shown(message), theme.title),
            None => hints(state, theme, width),
        },
    }
}

fn typed<'a>(name: &'a str, text: &str, help: &'a str, theme: &Theme) -> Line<'a> {
    Line::from(vec![
        Span::styled(name, theme.title),
        Span::raw(shown(text)),
        Span::styled(" ", theme.selected),
        Span::styled(format!("  {help}"), theme.label),
    ])
}

/// The keys that are used most, and those that change something, as far as there is room.
fn hints<'a>(state: &State, theme: &Theme, width: u16) -> Line<'a> {
    let word = |help: &'static str| help.split(':').next().unwrap_or(help);
    let leave = if state.opened.is_some() { "close" } else { "quit" };
    let named = |key: &str, help| if key == "q" { leave } else { word(help) };
    let first = BINDINGS.iter().take(9).map(|it| (it.shown.to_owned(), named(it.shown, it.help)));
    let (quit, rest): (Vec<_>, Vec<_>) = first.partition(|(key, _)| key == "q" || key == "?");
    let changes = state.changes().iter().map(|it| (it.key.to_string(), word(it.help)));
    let rights = if state.abilities.may_change { "" } else { "read-only  " };
    let mut line = Line::from(Span::styled(rights, theme.label));
    for (key, help) in quit.into_iter().chain(changes).chain(rest) {
        if line.width() + key.width() + 1 + help.width() > usize::from(width) {
            break;
        }
        line.push_span(Span::styled(key, theme.title));
        line.push_span(Span::raw(format!(" {help}  ")));
    }
    line
}

/// Everything but the banner, which says why.
fn grey(buffer: &mut Buffer, area: Rect, banner: Option<u16>, theme: &Theme) {
    for y in (area.y..area.bottom()).filter(|y| Some(*y) != banner) {
        buffer.set_style(Rect { y, height: 1, ..area }, theme.stale);
    }
}
