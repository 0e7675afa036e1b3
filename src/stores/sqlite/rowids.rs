//! Where a row lies in the file: rowids in the order of dispatch.
//!
//! Used by [`runs`](super::runs) for each row that is added, and by a move into a file. It adds no row itself.

use rusqlite::{Connection, Result};

use super::query::Query;

/// Bits of a rowid below the jitter, so that rows of equal jitter have room.
const SEQUENCE_BITS: u32 = 31;
/// Tries of a row whose rowid is taken, which takes the same jitter and 2^31 rows in between.
const TRIES_MAX: u32 = 1000;

/// Gives out rowids in the order in which new keys are dispatched. What is dispatched one after the other then shares
/// pages, and a commit writes few of them: that counts for more than the number of statements. Loading scatters its
/// rows instead. The order is only good, never needed: rows of an older database, or after a VACUUM, may lie anywhere.
#[derive(Debug)]
pub(super) struct RowidAllocator {
    /// Rows that were ever given a rowid.
    sequence: i64,
}

impl RowidAllocator {
    pub(super) fn load(connection: &Connection) -> Result<Self> {
        let sql = "SELECT value FROM shiftboss_counters WHERE name = 'row'";
        let sequence = connection.value(sql, [])?;
        Ok(Self { sequence })
    }

    pub(super) fn store(&self, connection: &Connection) -> Result<()> {
        let sql = "UPDATE shiftboss_counters SET value = ?1 WHERE name = 'row'";
        connection.run(sql, [self.sequence])
    }

    /// Calls `insert` with a rowid for a key of that jitter, again if it is taken.
    pub(super) fn claim(
        &mut self,
        jitter: i32,
        mut insert: impl FnMut(i64) -> Result<usize>,
    ) -> Result<usize> {
        let mut tries = 0;
        loop {
            tries += 1;
            match insert(self.next(jitter)) {
                Err(error) if is_taken(&error) && tries < TRIES_MAX => {}
                outcome => return outcome,
            }
        }
    }

    fn next(&mut self, jitter: i32) -> i64 {
        self.sequence = self.sequence.wrapping_add(1);
        rowid(jitter, self.sequence)
    }
}

/// The place of a row in the file, by its key's jitter and the number of rows so far.
pub(super) fn rowid(jitter: i32, sequence: i64) -> i64 {
    let in_order = i64::from(jitter) - i64::from(i32::MIN);
    (in_order << SEQUENCE_BITS) | (sequence & ((1 << SEQUENCE_BITS) - 1))
}

fn is_taken(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    code == Some(rusqlite::ffi::SQLITE_CONSTRAINT_ROWID)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rowids follow the jitter, are positive, and fit.
    #[test]
    fn rowids_are_in_the_order_of_jitter() {
        let mut rowids = RowidAllocator { sequence: (1 << SEQUENCE_BITS) - 2 };
        let taken: Vec<i64> =
            [i32::MIN, -1, 0, 1, i32::MAX].map(|jitter| rowids.next(jitter)).to_vec();
        assert!(taken.is_sorted() && taken[0] >= 0, "{taken:?}");
    }

    /// A rowid that is taken is not the end of it.
    #[test]
    fn a_taken_rowid_is_passed_over() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE t (name)").unwrap();
        let sql = "INSERT INTO t (rowid, name) VALUES (?1, 'x')";
        for _ in 0..3 {
            let mut rowids = RowidAllocator { sequence: 0 };
            let inserted = rowids.claim(7, |rowid| connection.execute(sql, [rowid]));
            assert_eq!(inserted.unwrap(), 1);
        }
    }
}
