//! What a reader has to answer, as far as the model can tell.

use std::collections::BTreeSet;

use crate::store::answers::{KeyState, RowState, Rows, TaskStatus};

use super::leases::Outcome;
use super::{Model, Row};

/// More than a history has keys.
const ALL: usize = 1_000;

impl Model {
    /// The keys that would be handed out, in order.
    pub fn order(&self, now: i64) -> Vec<String> {
        self.preview(now, ALL).keys.into_iter().map(|next| next.key).collect()
    }

    /// The key that comes first in the order, whichever goes before it.
    pub fn first_in_order(&self, now: i64) -> Option<String> {
        self.first_row(now, |_| true).map(|row| row.key)
    }

    pub fn row_counts(&self) -> Rows {
        let count = |count: usize| i64::try_from(count).unwrap();
        let pending = self.queue.iter().filter(|row| !row.dispatched).count();
        let mut again: Vec<&str> = self
            .deliveries
            .iter()
            .filter(|delivery| delivery.delivery_count > 1)
            .map(|delivery| delivery.key.as_str())
            .collect();
        again.sort_unstable();
        again.dedup();
        Rows {
            pending: count(pending),
            dispatched: count(self.queue.len() - pending),
            in_flight: count(self.log.values().filter(|log| log.1.is_none()).count()),
            leased: count(self.deliveries.iter().filter(|delivery| delivery.leased).count()),
            redelivered: count(again.len()),
        }
    }

    pub fn is_paused(&self) -> bool {
        self.leases.paused
    }

    /// What stands between a key and its next dispatch; `None`: it was never heard of.
    pub fn key_state(&self, key: &str, now: i64) -> Option<KeyState> {
        let states = self.row_states(key, now);
        let has = |state| states.iter().any(|row| row.2 == state);
        let is_known = !states.is_empty()
            || self.log.contains_key(key)
            || self.is_on_hold(key)
            || self.deliveries.iter().any(|delivery| delivery.key == key);
        is_known.then(|| {
            if self.is_held(key, now) {
                KeyState::InFlight
            } else if self.order(now).iter().any(|next| next == key) {
                KeyState::Waiting
            } else if self.waits_but_for_hold(key, now) {
                KeyState::Held
            } else if has(RowState::Delayed) {
                KeyState::Delayed
            } else if has(RowState::DeadLetter) {
                KeyState::DeadLetter
            } else if has(RowState::Dispatched) {
                KeyState::Dispatched
            } else {
                KeyState::Unlisted
            }
        })
    }

    /// Whether only a hold keeps it from being handed out.
    fn waits_but_for_hold(&self, key: &str, now: i64) -> bool {
        let mut without = self.clone();
        without.unhold(key) && without.order(now).iter().any(|next| next == key)
    }

    /// A key's rows by fetcher, newer runs first.
    pub fn row_states(&self, key: &str, now: i64) -> Vec<(String, i64, RowState)> {
        let last = self.deliveries.iter().filter(|delivery| delivery.key == key);
        let last = last.max_by_key(|delivery| delivery.attempt);
        let state = |row: &Row| {
            let of_fetcher = |other: &&Row| (other.fetcher, &other.key) == (row.fetcher, &row.key);
            if self.queue.iter().filter(of_fetcher).any(|other| other.run > row.run) {
                RowState::Hidden
            } else if self.is_dead(row) {
                RowState::DeadLetter
            } else if self.is_held(key, now)
                && last.is_some_and(|last| (last.fetcher, last.run) == (row.fetcher, row.run))
            {
                RowState::InFlight
            } else if row.dispatched && !self.is_row_out(row) {
                match self.is_delayed(&row.key, (row.fetcher, row.run)) {
                    true => RowState::Delayed,
                    false => RowState::Dispatched,
                }
            } else {
                RowState::Waiting
            }
        };
        let of_key = self.queue.iter().filter(|row| row.key == key);
        let mut rows: Vec<_> =
            of_key.map(|row| (self.name(row.fetcher), row.run, state(row))).collect();
        rows.sort_by(|one, other| (&one.0, -one.1).cmp(&(&other.0, -other.1)));
        rows
    }

    /// The tasks with a status, as (key, run); of the failed ones the single tasks alone.
    pub fn tasks_with(&self, status: TaskStatus, now: i64) -> Vec<(String, i64)> {
        match status {
            TaskStatus::Waiting => {
                let next = self.preview(now, ALL).keys.into_iter();
                next.map(|next| (next.key, next.run)).collect()
            }
            TaskStatus::InFlight => {
                let since = now - self.rules.lease_seconds;
                let mut live: Vec<_> = self
                    .deliveries
                    .iter()
                    .filter(|delivery| delivery.leased || delivery.started >= since)
                    .collect();
                live.sort_by_key(|delivery| (delivery.started, delivery.attempt));
                live.iter().map(|delivery| (delivery.key.clone(), delivery.run)).collect()
            }
            TaskStatus::Delayed => self.delayed(),
            TaskStatus::Failed => {
                let mut failed = self.singles_with("failed");
                failed.retain(|(key, task)| !self.is_delayed(key, (0, *task)));
                failed
            }
            TaskStatus::DeadLetter => {
                let mut rows: Vec<_> =
                    self.queue.iter().filter(|row| row.fetcher != 0 && self.is_dead(row)).collect();
                rows.sort_by_key(|row| (row.fetcher, row.run, &row.key));
                let rows = rows.into_iter().map(|row| (row.key.clone(), row.run));
                rows.chain(self.singles_with("dead_letter")).collect()
            }
        }
    }

    /// Keys before a key; other single tasks of it.
    pub fn turn(&self, key: &str, now: i64) -> (Option<u64>, u64) {
        let place = self.order(now).iter().position(|next| next == key);
        let tasks = self.singles_with("waiting").iter().filter(|single| single.0 == key).count();
        (place.map(|place| place as u64), (tasks as u64).saturating_sub(1))
    }

    /// Leased attempts that ended, as (attempt, key, whether its job was done), the last one first.
    pub fn ended_leases(&self) -> Vec<(i64, String, bool)> {
        let ended = self.leases.ended.iter().map(|(delivery, outcome)| {
            (delivery.attempt, delivery.key.clone(), *outcome == Outcome::Done)
        });
        let mut ended: Vec<_> = ended.collect();
        ended.sort_by_key(|(attempt, ..)| -attempt);
        ended
    }

    /// The keys that are listed or ran, by their bytes, with what the log says: the last start, and how it ended.
    pub fn known_keys(&self) -> Vec<(String, Option<i64>, Option<i64>)> {
        let listed = self.queue.iter().map(|row| &row.key);
        let keys: BTreeSet<&String> = listed.chain(self.log.keys()).collect();
        let known = |key: &String| {
            let log = self.log.get(key);
            (key.clone(), log.map(|log| log.0), log.and_then(|log| log.1.and(log.2)))
        };
        keys.into_iter().map(known).collect()
    }

    /// Of each row in the newest run of its fetcher, and of each single task's, when its key was last started; in order.
    pub fn last_starts(&self) -> Vec<Option<i64>> {
        let newest = |fetcher| {
            self.queue.iter().filter(|row| row.fetcher == fetcher).map(|row| row.run).max()
        };
        let is_newest = |row: &&Row| row.fetcher == 0 || newest(row.fetcher) == Some(row.run);
        let rows = self.queue.iter().filter(is_newest);
        let mut starts: Vec<_> = rows.map(|row| self.log.get(&row.key).map(|log| log.0)).collect();
        starts.sort_unstable();
        starts
    }

    pub(super) fn is_held(&self, key: &str, now: i64) -> bool {
        let since = now - self.rules.lease_seconds;
        self.deliveries.iter().any(|delivery| delivery.leased && delivery.key == key)
            || self.log.get(key).is_some_and(|log| log.1.is_none() && log.0 >= since)
    }

    fn is_dead(&self, row: &Row) -> bool {
        let expired = self.leases.expired.get(&(row.fetcher, row.run, row.key.clone()));
        expired.is_some_and(|expired| *expired >= self.rules.max_expired_leases)
    }

    fn is_row_out(&self, row: &Row) -> bool {
        self.deliveries.iter().any(|delivery| {
            (delivery.fetcher, delivery.run, &delivery.key) == (row.fetcher, row.run, &row.key)
        })
    }
}
