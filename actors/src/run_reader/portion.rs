//! A portion of a fetcher's file: rows that were read, and what is to be stored with them.
//!
//! The reader makes one of each batch of lines that it reads; the FileTailActor joins several, and stores them step by
//! step. Rows of several reads are first sorted in the order of dispatch: rows that are dispatched one after the other
//! then stand side by side in the store, which changes fewer pages for them, now and at each dispatch. This module
//! neither reads nor stores.

use std::mem::size_of;

use shiftboss_protocol::model::Row;

use shiftboss_queue::operation::{Reading, RowBatch};

/// Rows, with how far the file had been read before them and is read with them.
pub struct Portion {
    rows: Vec<(i32, Row)>,
    /// Stored with every step but the last: a reader that goes on from there reads these rows again. Without rows.
    before: RowBatch,
    /// Stored with the last step. Without rows.
    behind: RowBatch,
    /// Length of the lines, faulty ones included, plus the memory that their rows take besides.
    bytes: usize,
    is_mixed: bool,
}

impl Portion {
    /// Of one read. `before` has no rows.
    pub(super) fn new(before: RowBatch, mut behind: RowBatch) -> Self {
        let rows = std::mem::take(&mut behind.rows).into_iter();
        let rows: Vec<_> = rows.map(|row| (row.key.jitter(), row)).collect();
        let read = behind.position.offset.saturating_sub(before.position.offset);
        let bytes =
            usize::try_from(read).unwrap_or(usize::MAX) + rows.len() * size_of::<(i32, Row)>();
        Self { rows, before, behind, bytes, is_mixed: false }
    }

    /// Whether `next` was read from where this portion ends.
    pub fn goes_on_with(&self, next: &Self) -> bool {
        next.before.reading == Reading::Onward && next.before.position == self.behind.position
    }

    pub fn append(&mut self, next: Self) {
        let skipped = self.behind.skipped + next.behind.skipped;
        self.rows.extend(next.rows);
        self.behind = RowBatch { skipped, from: self.behind.from, ..next.behind };
        self.bytes += next.bytes;
        self.is_mixed = true;
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The state after this portion, without the rows.
    pub fn behind(&self) -> &RowBatch {
        &self.behind
    }

    /// The batches to store one after the other, of at most `rows_max` rows if there were several reads.
    pub fn into_steps(self, rows_max: usize) -> impl Iterator<Item = RowBatch> {
        let Self { rows, before, behind, is_mixed, .. } = self;
        let (rows, rows_max) =
            if is_mixed { (in_order(rows), rows_max) } else { (rows, usize::MAX) };
        let steps = rows.len().div_ceil(rows_max).max(1);
        let mut rows = rows.into_iter();
        // The first one says how the file is read; the others go on.
        let mut reading = before.reading;
        (1..=steps).map(move |step| {
            let noted = if step == steps { &behind } else { &before };
            let rows = rows.by_ref().take(rows_max).map(|(_, row)| row).collect();
            let reading = std::mem::replace(&mut reading, Reading::Onward);
            RowBatch { rows, reading, ..noted.clone() }
        })
    }
}

/// Sorts by jitter and key; of a key that occurs twice, the last row is kept.
fn in_order(mut rows: Vec<(i32, Row)>) -> Vec<(i32, Row)> {
    rows.sort_by(|(a, one), (b, other)| (a, &one.key).cmp(&(b, &other.key)));
    rows.dedup_by(|later, kept| {
        let is_same = later.1.key == kept.1.key;
        if is_same {
            std::mem::swap(later, kept);
        }
        is_same
    });
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use shiftboss_protocol::model::{Key, Run};
    use shiftboss_queue::file_identity::Position;

    fn read(from: u64, to: u64, keys: &[&str], reading: Reading) -> Portion {
        let position = |offset| Position { offset, ..Position::default() };
        let row = |key: &&str| Row { key: Key::new(key).unwrap(), payload: format!("to {to}") };
        let run = Run { fetcher: "f".into(), started: 1 };
        let behind = RowBatch {
            skipped: 1,
            from: Some(from),
            position: position(to),
            complete: to == 30,
            reading,
            ..RowBatch::of(run, keys.iter().map(row).collect())
        };
        let before =
            RowBatch { position: position(from), complete: false, ..behind.without_rows() };
        Portion::new(before, behind)
    }

    fn gathered() -> Portion {
        let mut portion = read(0, 10, &["alpha", "bravo", "charlie"], Reading::Anew);
        portion.append(read(10, 20, &["delta", "alpha"], Reading::Onward));
        portion.append(read(20, 30, &["echo"], Reading::Onward));
        portion
    }

    /// Neighbours in that order are stored together; of a key that comes twice, the last line counts.
    #[test]
    fn rows_are_stored_in_the_order_of_dispatch() {
        let steps: Vec<RowBatch> = gathered().into_steps(2).collect();
        let rows: Vec<Row> = steps.iter().flat_map(|step| step.rows.clone()).collect();
        let keys: Vec<&str> = rows.iter().map(|row| row.key.as_str()).collect();
        assert_eq!(keys, ["alpha", "echo", "delta", "charlie", "bravo"]);
        assert_eq!(rows[0].payload, "to 20");
        assert_eq!(steps.iter().map(|step| step.rows.len()).collect::<Vec<_>>(), [2, 2, 1]);
    }

    /// A file of nothing but faulty lines is not gathered without bound: their length counts, too.
    #[test]
    fn faulty_lines_weigh() {
        let mut faulty = read(0, 1_000, &[], Reading::Onward);
        faulty.append(read(1_000, 3_000, &[], Reading::Onward));
        assert_eq!(faulty.bytes(), 3_000);
    }

    /// A crash between two steps loses no line, and counts none twice: only the last step moves the position and
    /// completes the run.
    #[test]
    fn the_last_step_moves_the_place() {
        let steps: Vec<RowBatch> = gathered().into_steps(2).collect();
        let noted: Vec<_> = steps
            .iter()
            .map(|it| (it.position.offset, it.complete, it.skipped, it.reading))
            .collect();
        let (anew, onward) = (Reading::Anew, Reading::Onward);
        assert_eq!(noted, [(0, false, 0, anew), (0, false, 0, onward), (30, true, 3, onward)]);
        assert!(steps.iter().all(|step| step.from == Some(0)), "they are read on from there");
    }

    /// A single read becomes one batch, in the order of the file.
    #[test]
    fn one_read_is_stored_as_it_is() {
        let steps: Vec<RowBatch> =
            read(0, 30, &["alpha", "bravo", "charlie"], Reading::Anew).into_steps(2).collect();
        assert_eq!(steps.len(), 1);
        assert_eq!((steps[0].rows.len(), steps[0].reading), (3, Reading::Anew));
        assert_eq!((steps[0].position.offset, steps[0].complete), (30, true));
        let none: Vec<RowBatch> = read(0, 30, &[], Reading::Onward).into_steps(2).collect();
        assert_eq!((none.len(), none[0].position.offset), (1, 30));
    }

    /// A file that replaced another one does not continue its portion.
    #[test]
    fn only_what_follows_is_put_together() {
        let first = read(0, 10, &["alpha"], Reading::Onward);
        assert!(first.goes_on_with(&read(10, 20, &[], Reading::Onward)));
        assert!(!first.goes_on_with(&read(10, 20, &[], Reading::Anew)));
        assert!(!first.goes_on_with(&read(0, 20, &[], Reading::Onward)));
    }
}
