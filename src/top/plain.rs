//! One frame as text, for a pipe, a file or a mail: the head, and all lists below each other.

use std::env;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use super::draw::draw_rows;
use super::head::Head;
use super::look::Looker;
use super::picture::{Picture, View};
use super::tabs::Tab;
use super::theme::Theme;
use crate::cli::TopArguments;
use crate::exit::Failure;
use crate::terminal;
use crate::view::table::Table;

/// Rows of each list; the rest is counted.
const ROWS_MAX: usize = 20;
/// Columns if their number is unknown, and the fewest and the most.
const WIDTH: u16 = 80;
const WIDTHS: std::ops::RangeInclusive<u16> = 20..=1_000;

pub fn frame(TopArguments { target, ascii, .. }: &TopArguments) -> Result<String, Failure> {
    let mut looker = Looker::new(target.clone(), None);
    let picture = looker.look(&View { tabs: Tab::ALL.to_vec(), detail: None })?;
    Ok(text(&picture, width(), &Theme::new(false, *ascii)))
}

/// The width from `COLUMNS`, else that of the terminal.
fn width() -> u16 {
    let said = env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let width = said.or_else(|| terminal::size().map(|(width, _)| width));
    width.filter(|width| WIDTHS.contains(width)).unwrap_or(WIDTH)
}

pub fn text(picture: &Picture, width: u16, theme: &Theme) -> String {
    let head = Head::new(picture, None, theme, width);
    let mut out = drawn(width, head.height(false).into(), |buffer, area| {
        head.draw(area, buffer, theme);
    });
    for tab in Tab::ALL {
        if let Some(table) = tab.table(picture) {
            out += &format!("\n{}\n{}", tab.name(), list(&table, width, theme));
        }
    }
    out
}

fn list(table: &Table, width: u16, theme: &Theme) -> String {
    if table.rows.is_empty() {
        return table.none.to_owned() + "\n";
    }
    let shown = &table.rows[..table.rows.len().min(ROWS_MAX)];
    let text = drawn(width, shown.len() + 1, |buffer, area| {
        draw_rows(buffer, area, table.columns, shown, None, theme);
    });
    match table.rows.len() - shown.len() {
        0 => text,
        more => format!("{text}... and {more} more\n"),
    }
}

/// The drawn text, without styles.
fn drawn(width: u16, height: usize, draw: impl FnOnce(&mut Buffer, Rect)) -> String {
    let area = Rect::new(0, 0, width, u16::try_from(height).unwrap_or(u16::MAX));
    let mut buffer = Buffer::empty(area);
    draw(&mut buffer, area);
    as_text(&buffer)
}

/// Lines without trailing blanks. After a character of two columns there is a cell that is not drawn.
pub fn as_text(buffer: &Buffer) -> String {
    let line = |y| {
        let mut line = String::new();
        let mut x = buffer.area.x;
        while x < buffer.area.right() {
            let symbol = buffer[(x, y)].symbol();
            line += symbol;
            x += u16::try_from(symbol.width()).unwrap_or(1).max(1);
        }
        line.trim_end().to_owned() + "\n"
    };
    (buffer.area.y..buffer.area.bottom()).map(line).collect()
}
