//! A list: as many columns as there is room for, and the rows around the selected one. Pure.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::put;
use crate::text::{cut, cut_middle};
use crate::top::listing::Listing;
use crate::top::opened::Extent;
use crate::top::rows::Row;
use crate::top::state::State;
use crate::top::tabs::{Column, Tab};
use crate::top::theme::Theme;

/// Between two columns.
const GAP: u16 = 2;

/// A column that is shown: which one, and how wide.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    at: usize,
    width: u16,
}

pub fn draw(buffer: &mut Buffer, area: Rect, state: &State, theme: &Theme) -> Extent {
    let Some(rows) = &state.rows else {
        put(buffer, area, area.y, &Line::styled("Asking the queue ...", theme.label));
        return Extent::default();
    };
    if rows.is_empty() {
        let text = if state.listing().filter.is_empty() {
            state.tab.none()
        } else {
            "No row of this list has that text; g asks about any key."
        };
        put(buffer, area, area.y, &Line::styled(text, theme.label));
        return Extent::default();
    }
    let page = usize::from(area.height.saturating_sub(1));
    let listing = state.listing();
    // The selected row is in the middle, but near the ends.
    let first = listing.at.saturating_sub(page / 2).min(rows.len().saturating_sub(page));
    draw_rows(buffer, area, state.tab, Rows { all: rows, first, listing: Some(listing) }, theme);
    Extent { page, lines: rows.len() }
}

/// Rows from one on.
pub struct Rows<'a> {
    pub all: &'a [Row],
    pub first: usize,
    /// How they are sorted, and which is selected.
    pub listing: Option<&'a Listing>,
}

/// The names of the columns, and below them rows, as far as there is room.
pub fn draw_rows(buffer: &mut Buffer, area: Rect, tab: Tab, rows: Rows<'_>, theme: &Theme) {
    let Rows { all, first, listing } = rows;
    let columns = tab.columns();
    let mark = |at: usize| match listing {
        Some(listing) if listing.column == Some(at) => {
            theme.arrows[usize::from(listing.is_reversed)]
        }
        _ => "",
    };
    let names: Vec<String> = columns
        .iter()
        .enumerate()
        .map(|(at, column)| format!("{}{}", column.name, mark(at)))
        .collect();
    let seen = all.iter().skip(first).take(area.height.saturating_sub(1).into());
    let shown = fit(columns, &names, &seen.collect::<Vec<_>>(), area.width);
    let header = line(columns, &shown, area.width, |at| (&names[at], Style::new()));
    put(buffer, area, area.y, &header.style(theme.header));
    let selected = listing.and_then(Listing::selected_at);
    let below = all.iter().enumerate().skip(first).zip(area.y + 1..area.bottom());
    for ((at, row), y) in below {
        let is_selected = selected == Some(at);
        // On the selected row colours would be hard to read.
        let tone =
            |at: usize| if is_selected { Style::new() } else { theme.tone(row.cells[at].tone) };
        let cells = line(columns, &shown, area.width, |at| (&row.cells[at].text, tone(at)));
        put(buffer, area, y, &if is_selected { cells.style(theme.selected) } else { cells });
    }
}

/// Cells as wide as their columns, and the line as wide as all there is.
fn line<'a>(
    columns: &[Column],
    shown: &[Shown],
    width: u16,
    cell: impl Fn(usize) -> (&'a String, Style),
) -> Line<'a> {
    let mut spans = Vec::new();
    for Shown { at, width } in shown {
        let (text, style) = cell(*at);
        let column = &columns[*at];
        // What tells rows apart often differs at its end.
        let cut = if column.rank == 0 { cut_middle } else { cut };
        let text = cut(text, usize::from(*width));
        let pad = " ".repeat(usize::from(*width).saturating_sub(text.width()));
        let text = if column.is_number { pad + &text } else { text + &pad };
        spans.extend([Span::styled(text, style), Span::raw(" ".repeat(GAP.into()))]);
    }
    let rest = usize::from(width).saturating_sub(spans.iter().map(Span::width).sum());
    spans.push(Span::raw(" ".repeat(rest)));
    Line::from(spans)
}

/// The columns that there is room for, and how wide each is: as its cells are, but those that shrink share what is left.
fn fit(columns: &[Column], names: &[String], rows: &[&Row], width: u16) -> Vec<Shown> {
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
        Shown { at, width: least(&at) + u16::try_from(more).unwrap_or(0) }
    };
    kept.into_iter().map(widen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::rows::{Cell, Part, Tone};

    /// What matters least goes first, what nobody has at once; what is left over goes to those that shrank.
    #[test]
    fn columns_fit() {
        let columns = Tab::InFlight.columns();
        let names: Vec<String> = columns.iter().map(|column| column.name.to_owned()).collect();
        let row = |texts: [&str; 6]| Row {
            id: String::new(),
            part: Part::First,
            key: None,
            attempt: None,
            cells: texts
                .map(|text| Cell { text: text.to_owned(), value: None, tone: Tone::Plain })
                .into(),
        };
        let long = "k".repeat(40);
        let rows = [row(["builder", &long, "47", "9s", "1m", ""]), row(["b", "c", "", "", "", ""])];
        let widths = |width| {
            let shown = fit(columns, &names, &rows.each_ref(), width);
            shown.into_iter().map(|it| (columns[it.at].name, it.width)).collect::<Vec<_>>()
        };
        let all =
            [("Worker", 7), ("key", 40), ("attempt", 7), ("age", 3), ("lease", 5)].map(|it| it);
        assert_eq!(widths(200), all);
        assert_eq!(widths(50)[1], ("key", 20));
        assert_eq!(widths(30), [("Worker", 7), ("key", 16), ("age", 3)]);
        assert_eq!(widths(19), [("key", 14), ("age", 3)]);
        assert_eq!((widths(12), widths(1)), (vec![("key", 12)], vec![("key", 12)]));
    }
}
