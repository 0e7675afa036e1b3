//! What was opened in the place of the list: lines about a row, what a job wrote, or what the keys do. Pure.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use unicode_width::UnicodeWidthChar;

use super::put;
use crate::top::keys::BINDINGS;
use crate::top::opened::{Extent, Instead, Opened};
use crate::top::picture::Detail;
use crate::top::state::State;

/// Columns of a key and what it does.
const HELP_WIDTH: usize = 40;

/// What was opened, once it was found.
pub fn draw(buffer: &mut Buffer, area: Rect, opened: &Opened, state: &State) -> Extent {
    let found = match &opened.what {
        Instead::Help => Some(help(state, area.width)),
        Instead::Detail(detail) => {
            let found = state.picture.detail.as_ref().filter(|(of, _)| of == detail);
            found.map(|(_, lines)| wrapped(lines, area.width))
        }
    };
    let Some(lines) = found else {
        put(buffer, area, area.y, &Line::raw("Asking ..."));
        return Extent::default();
    };
    let rest = lines.len().saturating_sub(area.height.into());
    let first = match opened.what {
        Instead::Detail(Detail::Output(_)) => rest.saturating_sub(opened.scroll),
        _ => opened.scroll.min(rest),
    };
    for (line, y) in lines.iter().skip(first).zip(area.y..area.bottom()) {
        put(buffer, area, y, &Line::raw(line.as_str()));
    }
    Extent { page: area.height.into(), lines: lines.len() }
}

/// All keys, those that change something at the end; in two columns where there is room.
fn help(state: &State, width: u16) -> Vec<String> {
    let line = |key: &str, help: &str| format!("{key:<10} {help}");
    let keys = BINDINGS.iter().map(|it| line(it.shown, it.help));
    let changes = state.changes().iter().map(|it| line(&it.key.to_string(), it.help));
    let lines: Vec<String> = keys.chain(changes).collect();
    if usize::from(width) < 2 * HELP_WIDTH {
        return lines;
    }
    let (left, right) = lines.split_at(lines.len().div_ceil(2));
    let right = right.iter().map(String::as_str).chain(std::iter::repeat(""));
    left.iter().zip(right).map(|(left, right)| format!("{left:<HELP_WIDTH$}{right}")).collect()
}

/// Lines that are no wider than that; broken behind a space where there is one.
fn wrapped(lines: &[String], width: u16) -> Vec<String> {
    let width = usize::from(width).max(1);
    let mut out = Vec::new();
    for line in lines {
        let mut left = line.as_str();
        loop {
            let end = end_within(left, width);
            let (this, rest) = match left[..end].rfind(' ') {
                _ if end == left.len() => (left, ""),
                Some(space) if !left[..space].trim().is_empty() => left.split_at(space + 1),
                // The space behind is not seen.
                _ if left[end..].starts_with(' ') => left.split_at(end + 1),
                _ => left.split_at(end),
            };
            out.push(this.to_owned());
            left = rest;
            if left.is_empty() {
                break;
            }
        }
    }
    out
}

/// How many bytes of a text fit; one character always does.
fn end_within(text: &str, width: usize) -> usize {
    let mut used = 0;
    let over = text.char_indices().skip(1).find(|(at, _)| {
        let before = text[..*at].chars().next_back().and_then(UnicodeWidthChar::width);
        used += before.unwrap_or(0);
        let next = text[*at..].chars().next().and_then(UnicodeWidthChar::width);
        used + next.unwrap_or(0) > width
    });
    over.map_or(text.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words stay whole where they can; nothing is lost.
    #[test]
    fn lines_are_wrapped() {
        let lines = ["one two three".to_owned(), String::new(), "日本語日本語".to_owned()];
        assert_eq!(wrapped(&lines, 8), ["one two ", "three", "", "日本語日", "本語"]);
        assert_eq!(wrapped(&lines[..1], 3), ["one ", "two ", "thr", "ee"]);
        for width in 1..20 {
            assert_eq!(wrapped(&lines, width).concat(), lines.concat(), "{width}");
        }
    }
}
