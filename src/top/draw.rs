//! Draws a state: the head ([`head`]), below it a list, what was opened in its place, or the keys; at the bottom a
//! question, a result, or hints. Pure: it draws into a given buffer.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{self, Paragraph, StatefulWidget, TableState, Tabs, Widget, Wrap};
use unicode_width::UnicodeWidthStr;

use super::head;
use super::keys::BINDINGS;
use super::listing::Listing;
use super::opened::{Extent, Instead, Opened};
use super::picture::Detail;
use super::prompt::Prompt;
use super::state::State;
use super::tabs::{ROWS_MAX, Tab};
use super::theme::Theme;
use crate::text::{cut, cut_middle, shown};
use crate::view::table::{Column, Row, Table, capitalized};

/// On lower terminals the head has one line of meters, and no picture.
const ROOMY_HEIGHT: u16 = 16;
const GAP: u16 = 2;
const HELP_WIDTH: usize = 40;

/// Draws everything. Returns how much of the opened text there was room for.
pub fn draw(frame: &mut Frame<'_>, state: &State, theme: &Theme) -> Extent {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    let head = head::Head::new(&state.picture, Some(state), theme, area.width);
    let height = head.height(area.height < ROOMY_HEIGHT);
    let parts = [height, 1].map(Constraint::Length).into_iter();
    let parts = parts.chain([Constraint::Fill(1), Constraint::Length(1)]);
    let parts = Layout::vertical(parts).split(area);
    head.draw(parts[0], buffer, theme);
    draw_tabs(buffer, parts[1], state, theme);
    let extent = match (&state.opened, &state.table) {
        (Some(what), _) => draw_opened(buffer, parts[2], what, state),
        (None, Some(table)) => draw_list(buffer, parts[2], table, state.listing(), theme),
        (None, None) => {
            Line::styled("Asking the queue ...", theme.label).render(parts[2], buffer);
            Extent::default()
        }
    };
    if state.is_stale() {
        let banner = head.banner_at().map(|at| area.y + at);
        for y in (area.y..area.bottom()).filter(|y| Some(*y) != banner) {
            buffer.set_style(Rect { y, height: 1, ..area }, theme.stale);
        }
    }
    footer(state, theme, area.width).render(parts[3], buffer);
    extent
}

/// The lists by their names, where there is room for them, and where the selected row is.
fn draw_tabs(buffer: &mut Buffer, area: Rect, state: &State, theme: &Theme) {
    let tabs = Tab::ALL.iter().enumerate();
    let tabs = tabs.filter(|(_, tab)| state.has_groups() || **tab != Tab::Groups);
    let titles = |has_names: bool| -> Vec<String> {
        let title = |(at, tab): (usize, &Tab)| match has_names || *tab == state.tab {
            true => format!("{} {}", at + 1, tab.name().trim_end_matches(" letters")),
            false => format!("{}", at + 1),
        };
        tabs.clone().map(title).collect()
    };
    let width = |titles: &[String]| titles.iter().map(|title| title.len() + 1).sum::<usize>();
    let place = place(state);
    let mut shown = titles(true);
    if width(&shown) + place.width() > usize::from(area.width) {
        shown = titles(false);
    }
    let free = usize::from(area.width).saturating_sub(width(&shown));
    let bar = Tabs::new(shown).select(state.tab as usize).style(Style::new());
    bar.highlight_style(theme.selected).divider(" ").padding("", "").render(area, buffer);
    if place.width() <= free {
        Line::styled(place, theme.label).right_aligned().render(area, buffer);
    }
}

/// Where the selected row is, in which order, and what is left out.
fn place(state: &State) -> String {
    let listing = state.listing();
    let filter = match listing.arrangement.text.is_empty() {
        true => String::new(),
        false => format!("rows with {}  ", shown(&listing.arrangement.text)),
    };
    let Some(table) = &state.table else { return filter.trim_end().to_owned() };
    let column = listing.arrangement.column.and_then(|column| table.columns.get(column));
    let sorted = column.map_or(String::new(), |column| format!("by {}  ", column.name));
    let count = table.rows.len();
    // A list ends there, though there may be more.
    let more = if count >= ROWS_MAX { "+" } else { "" };
    // The selected row may be gone.
    let at = listing.selected_at().map_or("-".to_owned(), |at| (at + 1).to_string());
    match count {
        0 => filter.trim_end().to_owned(),
        _ => format!("{filter}{sorted}{at} of {count}{more}"),
    }
}

fn draw_list(
    buffer: &mut Buffer,
    area: Rect,
    table: &Table,
    listing: &Listing,
    theme: &Theme,
) -> Extent {
    if table.rows.is_empty() {
        let more = match listing.arrangement.text.is_empty() {
            true => "",
            false => " g asks about any key.",
        };
        Line::styled(format!("{}{more}", table.none), theme.label).render(area, buffer);
        return Extent::default();
    }
    let page = usize::from(area.height.saturating_sub(1));
    // The selected row is in the middle, but near the ends.
    let first = listing.at.saturating_sub(page / 2).min(table.rows.len().saturating_sub(page));
    let rows = &table.rows[first..table.rows.len().min(first + page)];
    draw_rows(buffer, area, table.columns, rows, Some((listing, first)), theme);
    Extent { page, lines: table.rows.len() }
}

/// The names of the columns, and below them rows; also their order and the first row's number, if these are shown.
pub fn draw_rows(
    buffer: &mut Buffer,
    area: Rect,
    columns: &'static [Column],
    rows: &[Row],
    listing: Option<(&Listing, usize)>,
    theme: &Theme,
) {
    let arrangement = listing.map(|(listing, _)| &listing.arrangement);
    let name = |(at, column): (usize, &Column)| {
        let name = if at == 0 { capitalized(column.name) } else { column.name.to_owned() };
        match arrangement.filter(|it| it.column == Some(at)) {
            Some(arrangement) => name + theme.arrows[usize::from(arrangement.is_reversed)],
            None => name,
        }
    };
    let names: Vec<String> = columns.iter().enumerate().map(name).collect();
    let fitting = fit(columns, &names, rows, area.width);
    let cell = |at: usize, width: u16, text: &str, style: Style| {
        // Names of rows often differ only at their ends.
        let cut = if columns[at].rank == 0 { cut_middle } else { cut };
        let line = Line::styled(cut(text, width.into()), style);
        let line = if columns[at].is_number { line.right_aligned() } else { line };
        widgets::Cell::from(line)
    };
    let head = fitting.iter().map(|(at, width)| cell(*at, *width, &names[*at], Style::new()));
    let row = |row: &Row| {
        let cells = fitting.iter().map(|(at, width)| {
            cell(*at, *width, &row.cells[*at].text, theme.tone(row.cells[*at].tone))
        });
        widgets::Row::new(cells)
    };
    let table = widgets::Table::new(
        rows.iter().map(row),
        fitting.iter().map(|(_, width)| Constraint::Length(*width)),
    );
    let table = table.header(widgets::Row::new(head).style(theme.header)).column_spacing(GAP);
    let selected = listing.and_then(|(listing, first)| listing.selected_at()?.checked_sub(first));
    let mut state = TableState::new().with_selected(selected.filter(|at| *at < rows.len()));
    StatefulWidget::render(table.row_highlight_style(theme.selected), area, buffer, &mut state);
}

/// The columns that there is room for, and their widths: those of their cells, except that shrinking columns share what
/// is left.
fn fit(columns: &[Column], names: &[String], rows: &[Row], width: u16) -> Vec<(usize, u16)> {
    let is_used = |at: &usize| rows.iter().any(|row| !row.cells[*at].text.is_empty());
    let widest = |at: usize| {
        let cells = rows.iter().map(|row| row.cells[at].text.width());
        u16::try_from(cells.chain([names[at].width()]).max().unwrap_or(0)).unwrap_or(u16::MAX)
    };
    let natural: Vec<u16> = (0..columns.len()).map(widest).collect();
    let least =
        |at: &usize| columns[*at].shrinks_to.map_or(natural[*at], |it| it.min(natural[*at]));
    let mut kept: Vec<usize> = (0..columns.len()).filter(is_used).collect();
    let needed = |kept: &[usize]| {
        let gaps = u32::from(GAP) * u32::try_from(kept.len().saturating_sub(1)).unwrap_or(0);
        kept.iter().map(|at| u32::from(least(at))).sum::<u32>() + gaps
    };
    while needed(&kept) > width.into() && kept.len() > 1 {
        let last = kept.iter().copied().max_by_key(|at| columns[*at].rank);
        kept.retain(|at| Some(*at) != last);
    }
    let mut spare = u32::from(width).saturating_sub(needed(&kept));
    let widen = |at: usize| {
        let more = u32::from(natural[at] - least(&at)).min(spare);
        spare -= more;
        (at, least(&at) + u16::try_from(more).unwrap_or(0))
    };
    kept.into_iter().map(widen).collect()
}

/// What was opened, once it was found: lines about a row, a job's output, or the help for keys.
fn draw_opened(buffer: &mut Buffer, area: Rect, opened: &Opened, state: &State) -> Extent {
    let lines = match &opened.what {
        Instead::Help => help(state, area.width),
        Instead::Detail(detail) => {
            let found = state.picture.detail.as_ref().filter(|(of, _)| of == detail);
            let Some((_, lines)) = found else {
                Line::raw("Asking ...").render(area, buffer);
                return Extent::default();
            };
            lines.clone()
        }
    };
    let text = Text::from_iter(lines);
    let text = Paragraph::new(text).wrap(Wrap { trim: false });
    let extent = Extent { page: area.height.into(), lines: text.line_count(area.width) };
    let rest = extent.lines.saturating_sub(extent.page);
    let first = match opened.what {
        Instead::Detail(Detail::Output(_)) => rest.saturating_sub(opened.scroll),
        _ => opened.scroll.min(rest),
    };
    text.scroll((u16::try_from(first).unwrap_or(u16::MAX), 0)).render(area, buffer);
    extent
}

/// All keys, those that change something at the end; in two columns where there is room.
fn help(state: &State, width: u16) -> Vec<String> {
    let line = |key: &str, help: &str| format!("{key:<10} {help}");
    let keys = BINDINGS.iter().filter(|it| !it.help.is_empty());
    let keys = keys.map(|it| line(it.shown, it.help));
    let changes = state.changes().iter().map(|it| line(&it.key.to_string(), it.help));
    let lines: Vec<String> = keys.chain(changes).collect();
    if usize::from(width) < 2 * HELP_WIDTH {
        return lines;
    }
    let (left, right) = lines.split_at(lines.len().div_ceil(2));
    let right = right.iter().map(String::as_str).chain(std::iter::repeat(""));
    left.iter().zip(right).map(|(left, right)| format!("{left:<HELP_WIDTH$}{right}")).collect()
}

fn footer<'a>(state: &'a State, theme: &Theme, width: u16) -> Line<'a> {
    match &state.prompt {
        Prompt::Filter => typed(
            format!("{}: rows that have, in any column: ", state.tab.name()),
            &state.listing().arrangement.text,
            "Enter keeps it, Esc takes it away",
            theme,
        ),
        Prompt::Key(text) => typed("Key: ".to_owned(), text, "Enter asks about it", theme),
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

fn typed<'a>(name: String, text: &str, help: &'a str, theme: &Theme) -> Line<'a> {
    Line::from(vec![
        Span::styled(name, theme.title),
        Span::raw(shown(text)),
        Span::styled(" ", theme.selected),
        Span::styled(format!("  {help}"), theme.label),
    ])
}

/// The most used keys, and those that change something, as far as there is room.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::tests::fixture::picture;

    /// The least important columns go first, empty ones at once; left-over width goes to those that shrank.
    #[test]
    fn columns_fit() {
        let mut table = Tab::InFlight.table(&picture()).unwrap();
        table.rows.truncate(1);
        table.rows[0].cells[0].text = "k".repeat(40);
        let names: Vec<String> = table.columns.iter().map(|it| it.name.to_owned()).collect();
        let widths = |width| {
            let shown = fit(table.columns, &names, &table.rows, width);
            shown.into_iter().map(|(at, width)| (table.columns[at].name, width)).collect::<Vec<_>>()
        };
        let all = [("key", 40), ("worker", 9), ("attempt", 7), ("since", 9), ("lease", 5)];
        assert_eq!(widths(200), all);
        assert_eq!(widths(45), [("key", 17), ("worker", 8), ("since", 9), ("lease", 5)]);
        assert_eq!(widths(24), [("key", 13), ("since", 9)]);
        assert_eq!((widths(12), widths(1)), (vec![("key", 12)], vec![("key", 12)]));
    }
}
