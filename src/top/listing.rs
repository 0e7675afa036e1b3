//! How a list is shown: filtered, sorted, and which row is selected. A selection follows its row, wherever that goes, and while that
//! is gone nothing is selected; until one is made the first row is selected, whichever that is. Pure.

use super::rows::Row;

/// Said where a key that is pressed wants one.
pub const NO_KEY: &str = "Select a key first.";

#[derive(Debug, Default)]
pub struct Listing {
    /// The selected row: it is followed wherever it goes. `None`: the place is kept instead.
    id: Option<String>,
    /// Where it is, or was at last.
    pub at: usize,
    /// `None`: in the queue's order.
    pub column: Option<usize>,
    pub is_reversed: bool,
    /// Those rows only that have this text.
    pub filter: String,
}

impl Listing {
    /// The rows that have the filter's text, in order; looks where the selected one is now.
    pub fn arranged(&mut self, mut rows: Vec<Row>) -> Vec<Row> {
        let filter = self.filter.to_lowercase();
        let has = |row: &Row| row.cells.iter().any(|it| it.text.to_lowercase().contains(&filter));
        rows.retain(|row| filter.is_empty() || has(row));
        if let Some(column) = self.column {
            let cell = |row: &Row| (row.cells[column].value, row.cells[column].text.clone());
            rows.sort_by_cached_key(cell);
        }
        if self.is_reversed {
            rows.reverse();
        }
        let found = self.id.as_ref().and_then(|id| rows.iter().position(|row| row.id == *id));
        self.at = found.unwrap_or(self.at.min(rows.len().saturating_sub(1)));
        rows
    }

    /// The selected one of the rows; none, while it is gone: what came to its place is another one.
    pub fn selected<'a>(&self, rows: &'a [Row]) -> Option<&'a Row> {
        rows.get(self.at).filter(|row| self.id.as_ref().is_none_or(|id| *id == row.id))
    }

    /// Why a key that is pressed is about nothing.
    pub fn why_none(&self) -> &'static str {
        match self.id {
            Some(_) => "What was selected is not in this list any more.",
            None => NO_KEY,
        }
    }

    pub fn select(&mut self, rows: &[Row], at: usize) {
        self.at = at.min(rows.len().saturating_sub(1));
        // Of an empty list nothing is selected; what was comes back with its row.
        if let Some(row) = rows.get(self.at) {
            self.id = Some(row.id.clone());
        }
    }

    /// The row is not followed any more: what comes to its place is selected.
    pub fn let_go(&mut self) {
        self.id = None;
    }

    /// By the next column, and behind the last one in the queue's order again; from the first row on.
    pub fn sort_by_next_of(&mut self, columns: usize) {
        let next = self.column.map_or(0, |column| column + 1);
        self.column = (next < columns).then_some(next);
        self.is_reversed &= self.column.is_some();
        (self.id, self.at) = (None, 0);
    }
}
