//! The order in which keys would be handed out now, walked from its beginning.
//!
//! For the views of the queue. It reads the same rows by the same statements as the dispatcher,
//! in each partition the ready rows and those whose lease expired, and merges them. Rows of one key have
//! one position, so they come one after the other. What a key's dispatch would change is nothing
//! to the other keys: the walk tells what as many requests would get.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use rusqlite::{Connection, Result, Rows, Statement};
use shiftboss_protocol::model::UnixSeconds;

use crate::stores::sqlite::dispatch::{HELD, QueuePosition, READY, Rule};
use crate::stores::sqlite::options::Policy;
use crate::stores::sqlite::partitions::Partitions;
use crate::stores::sqlite::rows::RunId;
use crate::stores::sqlite::snapshot::policy;

/// Rows that a walk goes over at the most: a key has one for each fetcher that lists it.
const ROWS_MAX: usize = 1_000_000;

/// The rules by which the daemon hands out, as of one snapshot.
pub(super) struct Order {
    policy: Policy,
    partitions: Partitions,
    expired: UnixSeconds,
}

impl Order {
    /// Reads the rules; `now` tells whose lease expired.
    pub(super) fn load(snapshot: &Connection, now: UnixSeconds) -> Result<Self> {
        let policy = policy(snapshot)?;
        Ok(Self { policy, partitions: Partitions::load(snapshot)?, expired: policy.expired(now) })
    }

    /// What decides which of a key's rows is handed out.
    pub(super) fn rule(&self) -> Rule<'_> {
        Rule { policy: self.policy, partitions: &self.partitions, expired: self.expired }
    }

    /// Shows each key once, the next one first, until `show` has enough or [`ROWS_MAX`] rows were gone over. Says
    /// whether those were all keys.
    pub(super) fn walk(
        &self,
        snapshot: &Connection,
        mut show: impl FnMut(QueuePosition) -> Result<ControlFlow<()>>,
    ) -> Result<bool> {
        let mut statements = Vec::new();
        for partition in &self.partitions.open {
            statements.push((snapshot.prepare(READY)?, vec![*partition]));
            statements.push((snapshot.prepare(HELD)?, vec![*partition, self.expired]));
        }
        let mut merge = Merge::begin(&mut statements, &self.partitions)?;
        let mut last: Option<String> = None;
        for _ in 0..ROWS_MAX {
            let Some(position) = merge.next()? else {
                return Ok(true);
            };
            if last.as_ref() == Some(&position.2) {
                continue;
            }
            last = Some(position.2.clone());
            if show(position)?.is_break() {
                return Ok(false);
            }
        }
        Ok(false)
    }
}

/// Several ordered lists of positions as one.
struct Merge<'a> {
    lists: Vec<Rows<'a>>,
    /// The first position of each list that has one.
    heads: BinaryHeap<Reverse<(QueuePosition, usize)>>,
    partitions: &'a Partitions,
}

impl<'a> Merge<'a> {
    fn begin(
        statements: &'a mut [(Statement<'_>, Vec<i64>)],
        partitions: &'a Partitions,
    ) -> Result<Self> {
        let mut merge = Self { lists: Vec::new(), heads: BinaryHeap::new(), partitions };
        for (list, (statement, parameters)) in statements.iter_mut().enumerate() {
            let parameters = rusqlite::params_from_iter(parameters.iter());
            merge.lists.push(statement.query(parameters)?);
            merge.refill(list)?;
        }
        Ok(merge)
    }

    fn next(&mut self) -> Result<Option<QueuePosition>> {
        let Some(Reverse((position, list))) = self.heads.pop() else {
            return Ok(None);
        };
        self.refill(list)?;
        Ok(Some(position))
    }

    /// Reads on in a list, past rows of runs under deletion: they count as gone.
    fn refill(&mut self, list: usize) -> Result<()> {
        while let Some(row) = self.lists[list].next()? {
            let position = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            if self.partitions.allow(RunId { fetcher_id: position.3, started: row.get(4)? }) {
                self.heads.push(Reverse((position, list)));
                return Ok(());
            }
        }
        Ok(())
    }
}
