//! Parts of texts for people: times, counts, tables, and text from outside in a form that is safe to show. Pure.

use std::fmt::Display;
use std::time::{Duration, UNIX_EPOCH};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub use shiftboss_runner::escape::shown;

/// Most columns of a text from outside that are shown where there is room.
pub const TEXT_WIDTH: usize = 200;
/// Most columns of a cell; a key may have 4 KiB.
pub const CELL_WIDTH_MAX: usize = 80;
/// Most characters for each column of a cell.
const MARKS_MAX: usize = 8;

/// As [`shown`], at most `width` columns wide; `...` stands for the rest.
pub fn cut(text: &str, width: usize) -> String {
    // One letter more than fits, which may be two columns wide.
    clip(&shown(begin(text, width + 2)), width)
}

/// As [`cut`], but `...` stands for the middle: keys that begin alike often differ at their end.
pub fn cut_middle(text: &str, width: usize) -> String {
    let whole = shown(text);
    if begin(&whole, width).len() == whole.len() {
        return whole;
    }
    let half = width.saturating_sub(3) / 2;
    let mut end = whole.len();
    for (at, _) in whole
        .char_indices()
        .rev()
        .take_while(|(at, _)| begin(&whole[*at..], half).len() == whole.len() - at)
    {
        end = at;
    }
    format!("{}...{}", begin(&whole, half), &whole[end..])
}

/// A text of at most `width` columns, as terminals count them: East Asian letters take two, combining marks none.
fn clip(text: &str, width: usize) -> String {
    if begin(text, width).len() == text.len() {
        return text.to_owned();
    }
    begin(text, width.saturating_sub(3)).to_owned() + "..."
}

/// As much of a text as fits into `width` columns. The rest is not scanned, because it may be long, and so may a pile
/// of combining marks.
fn begin(text: &str, width: usize) -> &str {
    let mut left = width;
    let ends = text.char_indices().take(width * MARKS_MAX).take_while(|(_, character)| {
        let fits = left.checked_sub(character.width().unwrap_or(1));
        left = fits.unwrap_or(0);
        fits.is_some()
    });
    let end = ends.last().map_or(0, |(at, character)| at + character.len_utf8());
    &text[..end]
}

/// A word in the form that a shell reads back: quoted where necessary.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./,:=@%+-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", shown(word).replace('\'', r"'\''"))
}

/// `3m 20s`: a number of seconds in its two largest units.
pub fn span(seconds: i64) -> String {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    let text = humantime::format_duration(Duration::from_secs(seconds)).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

pub fn ago(seconds: i64) -> String {
    if seconds <= 0 { "just now".to_owned() } else { format!("{} ago", span(seconds)) }
}

/// How long a job took: in milliseconds if that is known and useful.
pub fn took(ms: Option<i64>, seconds: i64) -> String {
    match ms {
        Some(ms @ ..10_000) => format!("{}.{:03}s", ms / 1_000, ms % 1_000),
        Some(ms) => span(ms / 1_000),
        None => span(seconds),
    }
}

/// The last second that is shown: 9999-12-31T23:59:59Z.
const SECOND_MAX: u64 = 253_402_300_799;

/// As `2026-11-21T13:05:09Z`.
pub fn timestamp(second: i64) -> String {
    let second = second.max(0).cast_unsigned().min(SECOND_MAX);
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(second)).to_string()
}

/// To the minute, in UTC; a day without its time.
pub fn time(second: i64) -> String {
    let text = timestamp(second);
    text.get(..16).unwrap_or(&text).replace('T', " ").trim_end_matches(" 00:00").to_owned()
}

/// `1 line`, `2 lines`.
pub fn counted(count: impl Display, noun: &str) -> String {
    let count = count.to_string();
    let end = if count == "1" { "" } else { "s" };
    format!("{count} {noun}{end}")
}

pub fn line(name: &str, value: &str) -> String {
    format!("{name:<15} {value}\n")
}

/// Rows of cells below their head, in columns as wide as they need to be, within reason.
pub fn columns<const N: usize>(
    head: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let head = head.map(str::to_owned).to_vec();
    aligned(std::iter::once(head).chain(rows.into_iter().map(Vec::from)))
}

/// The same with any number of columns; the first row is the head.
pub fn aligned(rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let cut = |row: Vec<String>| row.iter().map(|cell| clip(cell, CELL_WIDTH_MAX)).collect();
    let rows: Vec<Vec<String>> = rows.into_iter().map(cut).collect();
    let columns = rows.first().map_or(0, Vec::len);
    let width = |at: usize| rows.iter().map(|row| row[at].width()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths);
        let padded = cells.map(|(cell, width)| cell.clone() + &" ".repeat(width - cell.width()));
        out += padded.collect::<Vec<_>>().join("  ").trim_end();
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text is cut to its width, escapes included.
    #[test]
    fn texts_are_cut() {
        assert_eq!(cut("payload", 7), "payload");
        assert_eq!(cut("payloads", 7), "payl...");
        assert_eq!(cut("\u{1b}[2J", 7), "\\u{1...");
        assert_eq!(cut(&"é".repeat(9), 7), "éééé...");
        assert_eq!(cut("\u{202e}", 7), "\\u{2...", "escapes count as they are shown");
        assert_eq!((&*cut("日本語日本語", 8), &*cut("日本語日", 8)), ("日本...", "日本語日"));
        assert!(cut(&("a".to_owned() + &"\u{301}".repeat(10_000)), 8).len() < 200);
    }

    /// Texts that differ only at their ends stay different.
    #[test]
    fn texts_are_cut_in_the_middle() {
        assert_eq!(cut_middle("payload", 7), "payload");
        assert_eq!(cut_middle("payload-17", 9), "pay...-17");
        assert_eq!(cut_middle("ééééééé\u{1b}", 9), "ééé...1b}");
        assert_eq!(cut_middle("日本語日本語", 7), "日...語");
    }

    /// Whatever an edited database says, a time is shown.
    #[test]
    fn any_second_is_shown() {
        assert_eq!(timestamp(1_795_266_309), "2026-11-21T13:05:09Z");
        assert_eq!(timestamp(i64::MAX), "9999-12-31T23:59:59Z");
        assert_eq!(
            (time(i64::MIN), time(86_399)),
            ("1970-01-01".to_owned(), "1970-01-01 23:59".to_owned())
        );
    }

    /// Only what a shell would split or change is quoted.
    #[test]
    fn words_are_quoted_for_the_shell() {
        for (word, expected) in [
            ("python3.12-foo", "python3.12-foo"),
            ("/run/a.sock", "/run/a.sock"),
            ("a b", "'a b'"),
            ("$(id)", "'$(id)'"),
            ("it's", r"'it'\''s'"),
            ("a;b*", "'a;b*'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
