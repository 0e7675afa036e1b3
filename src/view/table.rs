//! A table of typed cells: what a listing is for a terminal, a page and `top`, which all show the same columns. Pure.
//!
//! Listings are made in [`listings`](super::listings). Texts from outside are cut there, and what would mislead is shown by its number.

use crate::text::{TEXT_WIDTH, ago, aligned, cut, span};

#[derive(Debug)]
pub struct Table {
    /// What its rows are, for screen readers.
    pub name: &'static str,
    pub columns: &'static [Column],
    pub rows: Vec<Row>,
    /// Said in the place of rows where there are none.
    pub none: &'static str,
}

#[derive(Debug)]
pub struct Column {
    pub name: &'static str,
    /// Where there is no room, those of the highest rank are left out first, and that of rank 0 never. The page has
    /// room for those up to 7.
    pub rank: u8,
    /// So narrow it may become in `top`; `None`: as wide as its cells.
    pub shrinks_to: Option<u16>,
    /// Its cells stand at its right end.
    pub is_number: bool,
}

pub const fn column(name: &'static str, rank: u8) -> Column {
    Column { name, rank, shrinks_to: None, is_number: false }
}

pub const fn number(name: &'static str, rank: u8) -> Column {
    Column { is_number: true, ..column(name, rank) }
}

/// One whose texts are cut where there is no room.
pub const fn text(name: &'static str, rank: u8, shrinks_to: u16) -> Column {
    Column { shrinks_to: Some(shrinks_to), ..column(name, rank) }
}

pub fn table(
    name: &'static str,
    columns: &'static [Column],
    none: &'static str,
    rows: impl Iterator<Item = Row>,
) -> Table {
    Table { name, columns, rows: rows.collect(), none }
}

#[derive(Debug, Clone, Default)]
pub struct Row {
    /// It is the same row as long as this is the same.
    pub id: String,
    /// What can be asked about, and changed.
    pub key: Option<String>,
    /// The group that can be held.
    pub group: Option<String>,
    /// What may have written something.
    pub attempt: Option<Attempt>,
    pub cells: Vec<Cell>,
}

/// A job that may have written something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub key: String,
    pub started: i64,
    /// `None`: it has no number.
    pub number: Option<i64>,
}

#[derive(Debug, Clone)]
pub struct Cell {
    /// As people read it; empty: there is nothing to say.
    pub text: String,
    /// What it is sorted by, before its text.
    pub value: Option<i64>,
    pub tone: Tone,
    pub kind: Kind,
}

/// How it is with what is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Good,
    Warning,
    Bad,
}

/// What a cell is of: a page makes links, titles and pictures of it.
#[derive(Debug, Clone)]
pub enum Kind {
    Text,
    /// The key, whole.
    Key(String),
    Fetcher(String),
    Group(String),
    /// The beginning of a payload, whose addresses are links.
    Payload(String),
    Time(i64),
    /// The word of an outcome, or of a run's.
    Outcome(String),
    /// What was said for people, at length.
    Words,
    Days(Vec<(i64, i64)>),
}

impl Cell {
    pub fn word(text: impl Into<String>) -> Self {
        Self { text: text.into(), value: None, tone: Tone::Plain, kind: Kind::Text }
    }

    /// A text from outside.
    pub fn outside(text: &str) -> Self {
        Self::word(cut(text, TEXT_WIDTH))
    }

    pub fn name(text: Option<&str>) -> Self {
        text.map_or(Self::word("-"), Self::outside)
    }

    pub fn key(key: &str) -> Self {
        Self::outside(key).of(Kind::Key(key.to_owned()))
    }

    pub fn fetcher(name: &str) -> Self {
        Self::outside(name).of(Kind::Fetcher(name.to_owned()))
    }

    pub fn group(name: &str) -> Self {
        Self::outside(name).of(Kind::Group(name.to_owned()))
    }

    pub fn number(number: i64) -> Self {
        Self { value: Some(number), ..Self::word(number.to_string()) }
    }

    /// A number that is better 0.
    pub fn fault(number: i64) -> Self {
        Self::number(number).with(if number > 0 { Tone::Warning } else { Tone::Plain })
    }

    /// `-` without a number.
    pub fn optional(number: Option<i64>, text: impl FnOnce(i64) -> String) -> Self {
        Self { value: number, ..Self::word(number.map_or("-".to_owned(), text)) }
    }

    pub fn seconds(seconds: Option<i64>) -> Self {
        Self::optional(seconds, span)
    }

    /// A moment, as how long ago it is.
    pub fn since(since: Option<i64>, now: i64) -> Self {
        let cell = Self::optional(since, |since| ago(now.saturating_sub(since)));
        since.map_or(cell.clone(), |since| cell.of(Kind::Time(since)))
    }

    /// How an attempt ended: the outcome's word, and what is said of it.
    pub fn outcome(outcome: &str, words: String) -> Self {
        let tone = match outcome {
            "success" => Tone::Good,
            "failure" | "timeout" => Tone::Bad,
            _ => Tone::Warning,
        };
        Self::word(words).with(tone).of(Kind::Outcome(outcome.to_owned()))
    }

    /// What was said for people.
    pub fn words(text: &str) -> Self {
        Self::outside(text).of(Kind::Words)
    }

    pub fn with(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }

    pub fn of(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }
}

/// Which rows are wanted, and in which order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arrangement {
    /// Those rows only that have this text, in small letters or capitals.
    pub text: String,
    /// `None`: in the listing's own order.
    pub column: Option<usize>,
    pub is_reversed: bool,
}

impl Table {
    pub fn arrange(&mut self, Arrangement { text, column, is_reversed }: &Arrangement) {
        if !text.is_empty() {
            let text = text.to_lowercase();
            let has = |cell: &Cell| cell.text.to_lowercase().contains(&text);
            self.retain(|row| row.cells.iter().any(has));
        }
        if let Some(column) = column.filter(|column| *column < self.columns.len()) {
            let cell = |row: &Row| (row.cells[column].value, row.cells[column].text.clone());
            self.rows.sort_by_cached_key(cell);
        }
        if *is_reversed {
            self.rows.reverse();
        }
    }

    pub fn retain_fetcher(&mut self, fetcher: &str) {
        let is_its = |cell: &Cell| matches!(&cell.kind, Kind::Fetcher(name) if name == fetcher);
        self.retain(|row| row.cells.iter().any(is_its));
    }

    fn retain(&mut self, is_wanted: impl Fn(&Row) -> bool) {
        let had_rows = !self.rows.is_empty();
        self.rows.retain(is_wanted);
        if had_rows && self.rows.is_empty() {
            self.none = "No row of this list is like that.";
        }
    }

    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// The columns in which there is anything.
    pub fn used(&self) -> Vec<usize> {
        let is_used = |at: &usize| self.rows.iter().any(|row| !row.cells[*at].text.is_empty());
        (0..self.columns.len()).filter(|at| *at == 0 || is_used(at)).collect()
    }

    /// As text, in columns as wide as they need to be, within reason; what is said without rows is no line of it.
    pub fn render(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let used = self.used();
        let head = used.iter().map(|at| match (at, self.columns[*at].name) {
            (0, name) => capitalized(name),
            (_, name) => name.to_owned(),
        });
        let cells = |row: &Row| used.iter().map(|at| row.cells[*at].text.clone()).collect();
        aligned(std::iter::once(head.collect()).chain(self.rows.iter().map(cells)))
    }

    /// The same, with what is said where there are no rows.
    pub fn render_or_none(&self) -> String {
        if self.rows.is_empty() { format!("{}\n", self.none) } else { self.render() }
    }
}

/// `fetcher` as `Fetcher`.
pub fn capitalized(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().collect::<String>() + letters.as_str()
    })
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::*;

    const COLUMNS: &[Column] = &[text("key", 0, 12), number("run", 1), column("daemon", 2)];

    fn table(rows: &[(&str, i64)]) -> Table {
        let row = |(key, run): &(&str, i64)| Row {
            id: (*key).to_owned(),
            cells: vec![Cell::key(key), Cell::number(*run), Cell::word("")],
            ..Row::default()
        };
        Table {
            name: "Keys",
            columns: COLUMNS,
            rows: rows.iter().map(row).collect(),
            none: "None.",
        }
    }

    /// Columns are as wide as they look: two for letters of East Asia, none for marks that combine. One long cell makes no column as
    /// wide as itself, and what nobody has is left out.
    #[test]
    fn columns_are_aligned_as_they_look() {
        let text = table(&[("日本語", 1), ("e\u{301}tude", 2), (&"k".repeat(4096), 3)]).render();
        let before: Vec<usize> =
            text.lines().map(|line| line[..line.rfind(' ').unwrap()].width() + 1).collect();
        assert_eq!(before, [82; 4], "{text}");
        assert!(text.contains(&format!("{}...  3\n", "k".repeat(77))), "{text}");
        assert!(
            text.starts_with("Key ") && text.lines().next().unwrap().ends_with("run"),
            "{text}"
        );
        assert_eq!(
            (table(&[]).render_or_none(), table(&[]).render()),
            ("None.\n".into(), "".into())
        );
    }

    /// By numbers where there are some; capitals do not count in what is looked for.
    #[test]
    fn rows_are_arranged() {
        let keys = |text: &str, column, is_reversed| {
            let mut table = table(&[("b10", 10), ("B9", 9), ("c", 100)]);
            table.arrange(&Arrangement { text: text.to_owned(), column, is_reversed });
            table.rows.into_iter().map(|row| row.id).collect::<Vec<_>>()
        };
        assert_eq!(keys("", Some(1), false), ["B9", "b10", "c"]);
        assert_eq!(keys("", Some(1), true), ["c", "b10", "B9"]);
        assert_eq!(keys("b", None, true), ["B9", "b10"]);
        assert_eq!(keys("", Some(9), false), ["b10", "B9", "c"]);
    }
}
