//! How a list is shown: its order, and which row is selected. A selection follows its row, and while that is gone
//! nothing is selected; until one is made the first row is selected, whichever that is. The visible part follows the
//! selection, except when an order moves the row. Pure.

use crate::view::table::{Arrangement, Row, Table};

/// The message if a pressed key needs a selection.
pub const NO_KEY: &str = "Select a key first.";

#[derive(Debug, Default)]
pub struct Listing {
    /// The selected row. `None`: whichever is at the place.
    row: Option<String>,
    /// Where it is; `None`: it is gone.
    selected_at: Option<usize>,
    /// The visible part is around it.
    pub at: usize,
    /// The selected row went elsewhere by itself, and the place stays.
    is_left: bool,
    pub arrangement: Arrangement,
}

impl Listing {
    /// The rows that are wanted, in order; looks where the selected one is now.
    pub fn arrange(&mut self, table: &mut Table) {
        table.arrange(&self.arrangement);
        self.find(&table.rows);
    }

    fn find(&mut self, rows: &[Row]) {
        let last = rows.len().saturating_sub(1);
        self.selected_at = match &self.row {
            None => (!rows.is_empty()).then_some(self.at.min(last)),
            Some(id) => rows.iter().position(|row| row.id == *id),
        };
        let followed = self.selected_at.filter(|_| !self.is_left);
        self.at = followed.unwrap_or(self.at.min(last));
    }

    /// Where the selected row is; none, while it is gone: what came to its place is another one.
    pub fn selected_at(&self) -> Option<usize> {
        self.selected_at
    }

    /// Why a key that is pressed is about nothing.
    pub fn why_none(&self) -> &'static str {
        match self.row {
            Some(_) => "What was selected is not in this list any more.",
            None => NO_KEY,
        }
    }

    pub fn select(&mut self, rows: &[Row], at: usize) {
        self.at = at.min(rows.len().saturating_sub(1));
        self.is_left = false;
        // In an empty list nothing is selected; a selection comes back with its row.
        if let Some(row) = rows.get(self.at) {
            self.row = Some(row.id.clone());
            self.selected_at = Some(self.at);
        }
    }

    /// Keeps the selected row, if it was selected only by its place.
    pub fn keep(&mut self, rows: &[Row]) {
        if self.row.is_none() {
            self.select(rows, self.at);
        }
    }

    /// An order may send the selected row far away: who acts on several goes on from here.
    pub fn stay(&mut self) {
        self.is_left = true;
    }

    /// The first row is selected, whichever that is.
    pub fn begin(&mut self, rows: &[Row]) {
        (self.row, self.at, self.is_left) = (None, 0, false);
        self.find(rows);
    }

    /// Sorts by the next column, and after the last one by the queue's order again.
    pub fn sort_by_next_of(&mut self, columns: usize) {
        let Arrangement { column, is_reversed, .. } = &mut self.arrangement;
        let next = column.map_or(0, |column| column + 1);
        *column = (next < columns).then_some(next);
        *is_reversed &= column.is_some();
    }
}
