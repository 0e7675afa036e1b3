//! Copies one table of a damaged database into a new one: by ranges of ids, skipping what cannot be read.

use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, ErrorCode, Result, Statement};
use shiftboss_queue::tables::listed;

use crate::tables::{columns_of, insert};

/// How often a range that cannot be read from either end is halved without anything in it being readable. Readable rows
/// between two damaged places are found unless they are a smaller part of the range than that.
const HALVED_MAX: u32 = 10;

pub(super) struct Copy<'a> {
    upward: Statement<'a>,
    downward: Statement<'a>,
    insert: Statement<'a>,
    /// Where the id is in a row; `None`: it has none, and is read from both ends only.
    id_at: Option<usize>,
    /// Ranges that could not be read, and rows that do not belong to the table.
    ranges: u64,
    /// The end of the last such range.
    lost_to: Option<i64>,
}

/// Where reading ended.
struct Stop {
    /// True: there are no more rows; false: the next one cannot be read.
    is_end: bool,
    /// The last two ids, the later one first: the last id of a damaged page may be any number.
    last: [Option<i64>; 2],
}

impl<'a> Copy<'a> {
    /// `None`: not even the table's root is known.
    pub(super) fn new(
        source: &'a Connection,
        target: &'a Connection,
        table: &str,
        by: Option<&str>,
    ) -> Result<Option<Self>> {
        let all = columns_of(target, table)?;
        let columns = listed(&all);
        let select = |way: &str| {
            let (which, order) = match by {
                Some(by) => (format!("{by} BETWEEN ?1 AND ?2"), by),
                None => ("?1 <= ?2".to_owned(), &*all[0].name),
            };
            source.prepare(&format!(
                "SELECT {columns} FROM {table} NOT INDEXED WHERE {which} ORDER BY {order} {way}"
            ))
        };
        let (Ok(upward), Ok(downward)) = (select("ASC"), select("DESC")) else { return Ok(None) };
        Ok(Some(Self {
            upward,
            downward,
            insert: insert(target, "INSERT OR IGNORE", table, &all)?,
            id_at: by.and_then(|by| all.iter().position(|it| it.name == by)),
            ranges: 0,
            lost_to: None,
        }))
    }

    /// Copies all that can be read; returns in how many places something could not.
    pub(super) fn run(mut self) -> Result<u64> {
        self.copy(i64::MIN, i64::MAX, HALVED_MAX)?;
        Ok(self.ranges)
    }

    /// Copies a range from both ends, and what is between them in halves.
    fn copy(&mut self, low: i64, high: i64, halves: u32) -> Result<()> {
        let below = self.scan(true, low, high)?;
        // In a smaller range, a damaged row with a random id looks like the end.
        if below.is_end && high == i64::MAX {
            return Ok(());
        }
        let above = self.scan(false, low, high)?;
        if below.is_end && above.is_end {
            return Ok(());
        }
        let below = below.last.map(|id| id.map_or(low, |id| id.saturating_add(1)));
        let above = above.last.map(|id| id.map_or(high, |id| id.saturating_sub(1)));
        let pairs = above.into_iter().flat_map(|to| below.map(|from| (from, to)));
        let sane = pairs.into_iter().find(|(from, to)| *from <= to.saturating_add(1));
        let (from, to) = sane.unwrap_or((low, high));
        let halves = if (from, to) == (low, high) { halves - 1 } else { HALVED_MAX };
        if self.id_at.is_none() || halves == 0 || from >= to {
            let goes_on = self.lost_to.is_some_and(|last| last.saturating_add(1) == from);
            self.ranges += u64::from(!goes_on);
            self.lost_to = Some(to);
            return Ok(());
        }
        let middle = i64::midpoint(from, to);
        self.copy(from, middle, halves)?;
        self.copy(middle + 1, to, halves)
    }

    /// Copies rows upward or downward, until their end or until one cannot be read.
    fn scan(&mut self, is_upward: bool, low: i64, high: i64) -> Result<Stop> {
        let Self { upward, downward, insert, id_at, ranges, .. } = self;
        let select = if is_upward { upward } else { downward };
        let columns = select.column_count();
        let mut rows = select.query((low, high))?;
        let mut last = [None; 2];
        loop {
            let row = match rows.next() {
                Ok(Some(row)) => row,
                Ok(None) => return Ok(Stop { is_end: true, last: [None; 2] }),
                Err(_) => return Ok(Stop { is_end: false, last }),
            };
            for column in 0..columns {
                insert
                    .raw_bind_parameter(column + 1, ToSqlOutput::Borrowed(row.get_ref(column)?))?;
            }
            match insert.raw_execute() {
                Ok(_) => {}
                // A row of another type: it was overwritten.
                Err(error) if is_refused(&error) => *ranges += 1,
                Err(error) => return Err(error),
            }
            if let Some(Ok(id)) = id_at.map(|at| row.get(at))
                && (low..=high).contains(&id)
            {
                last = [Some(id), last[0]];
            }
        }
    }
}

fn is_refused(error: &rusqlite::Error) -> bool {
    let refused = [ErrorCode::ConstraintViolation, ErrorCode::TypeMismatch];
    error.sqlite_error_code().is_some_and(|code| refused.contains(&code))
}
