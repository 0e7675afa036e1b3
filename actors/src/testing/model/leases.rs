//! Attempts and leases, as `docs/protocol.md` describes them ("Protocol 2").

use std::collections::BTreeMap;

use crate::store::{Ack, Requeued, Retried};
use shiftboss_protocol::model::{Attempt, TASKS_FETCHER};

use super::{Delivery, Model, Row};

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Released,
    Undone,
    Expired,
}

/// What the model keeps for protocol 2.
#[derive(Debug, Clone, Default)]
pub struct Leases {
    pub paused: bool,
    /// By (fetcher, run, key): expired leases of that row.
    pub expired: BTreeMap<(i64, i64, String), i64>,
    /// Leased attempts that ended.
    pub(super) ended: Vec<(Delivery, Outcome)>,
    /// All dispatches in order, as (key, attempt), but for those that were undone.
    dispatched: Vec<(String, i64)>,
    /// Attempts of keys that were forgotten.
    pub forgotten: Vec<i64>,
}

impl Leases {
    /// Nothing is known of a key's attempts any more, but of those that never arrived; whether anything was.
    pub fn forget(&mut self, key: &str) -> bool {
        let its = self.dispatched.extract_if(.., |(known, _)| known == key);
        let attempts: Vec<i64> = its.map(|(_, attempt)| attempt).collect();
        self.ended.retain(|(delivery, outcome)| delivery.key != key || *outcome == Outcome::Undone);
        self.forgotten.extend(&attempts);
        !attempts.is_empty()
    }

    /// An attempt ended.
    pub fn end(&mut self, delivery: &Delivery, outcome: Outcome) {
        if outcome == Outcome::Undone {
            self.dispatched.retain(|(_, attempt)| *attempt != delivery.attempt);
        }
        if delivery.leased {
            self.ended.push((delivery.clone(), outcome));
        }
    }
}

fn row_of(delivery: &Delivery) -> (i64, i64, String) {
    (delivery.fetcher, delivery.run, delivery.key.clone())
}

impl Model {
    pub fn pause(&mut self, paused: bool) {
        self.leases.paused = paused;
    }

    /// The attempt that the next dispatch gets: numbers may be skipped.
    pub fn skip_to(&mut self, attempt: i64) {
        assert!(attempt > self.attempts, "{attempt} was given out before");
        self.attempts = attempt - 1;
    }

    fn leased(&self, attempt: i64) -> Option<Delivery> {
        self.deliveries
            .iter()
            .find(|delivery| delivery.leased && delivery.attempt == attempt)
            .cloned()
    }

    pub fn is_leased(&self, attempt: i64) -> bool {
        self.leased(attempt).is_some()
    }

    pub fn all_leased(&self) -> Vec<i64> {
        let leased = self.deliveries.iter().filter(|delivery| delivery.leased);
        leased.map(|delivery| delivery.attempt).collect()
    }

    /// Expired leases of a row since it was last done.
    pub(super) fn expired_before(&self, row: &Row) -> i64 {
        let at = (row.fetcher, row.run, row.key.clone());
        let same =
            self.deliveries.iter().filter(|delivery| row.dispatched && row_of(delivery) == at);
        let classic = same.map(|delivery| delivery.delivery_count).max().unwrap_or(0);
        classic.max(self.leases.expired.get(&at).copied().unwrap_or(0))
    }

    /// A row is about to be handed out: those of older runs are nobody's any more.
    pub(super) fn overtake(&mut self, row: &Row) {
        self.leases.dispatched.push((row.key.clone(), self.attempts));
        let older =
            |at: &(i64, i64, String)| (at.0, &at.2) == (row.fetcher, &row.key) && at.1 != row.run;
        self.leases.expired.retain(|at, _| !older(at));
    }

    /// The last dispatch of a key is done: no lease of its row expired.
    pub(super) fn forget_expired_leases(&mut self, key: &str) {
        let deliveries = self.deliveries.iter().filter(|delivery| delivery.key == key);
        if let Some(last) = deliveries.max_by_key(|delivery| delivery.attempt) {
            self.leases.expired.remove(&row_of(last));
        }
    }

    pub fn finish_attempt(&mut self, attempt: i64, code: i64, now: i64) -> Ack {
        if let Some(delivery) = self.leased(attempt) {
            self.log.entry(delivery.key.clone()).or_insert((delivery.started, None, None));
            self.finish(&delivery.key, code, now);
            return Ack::Recorded;
        }
        let Some(at) =
            self.leases.ended.iter().position(|(delivery, _)| delivery.attempt == attempt)
        else {
            return Ack::Unknown;
        };
        let (delivery, outcome) = self.leases.ended[at].clone();
        let mut dispatched = self.leases.dispatched.iter();
        let since = dispatched.any(|(key, later)| *key == delivery.key && *later > attempt);
        match outcome {
            Outcome::Done => Ack::Recorded,
            Outcome::Expired if !since => {
                self.leases.ended[at].1 = Outcome::Done;
                self.end_late(&delivery, code, now);
                Ack::Recorded
            }
            _ => Ack::Stale,
        }
    }

    /// As if it had been handed out till now.
    fn end_late(&mut self, delivery: &Delivery, code: i64, now: i64) {
        for row in &mut self.queue {
            if (row.fetcher, &row.key) == (delivery.fetcher, &delivery.key)
                && row.run <= delivery.run
                && (row.fetcher != 0 || row.run == delivery.run)
            {
                row.dispatched = true;
            }
        }
        let name = self.fetchers.iter().find(|(id, _)| *id == delivery.fetcher);
        let name = name.map_or(String::new(), |(_, name)| name.clone());
        self.last_served.insert((delivery.key.clone(), name), delivery.attempt);
        self.deliveries
            .retain(|other| (other.fetcher, &other.key) != (delivery.fetcher, &delivery.key));
        self.leases.expired.remove(&row_of(delivery));
        self.log.insert(delivery.key.clone(), (delivery.started, Some(now), Some(code)));
        self.end_task(&delivery.key, (delivery.fetcher, delivery.run), code);
        let task = self.ending(&delivery.key, delivery.fetcher, delivery.run);
        self.end_late_bump(delivery.attempt);
        self.settle(&delivery.key, Some(task), code, now);
        self.arm_if_bumped(&delivery.key);
    }

    pub fn release(&mut self, attempt: i64) -> Ack {
        if let Some(delivery) = self.leased(attempt) {
            self.take_back(&delivery, true);
            self.leases.end(&delivery, Outcome::Released);
            return Ack::Recorded;
        }
        match self.leases.ended.iter().find(|(delivery, _)| delivery.attempt == attempt) {
            Some((_, Outcome::Released)) => Ack::Recorded,
            Some(_) => Ack::Stale,
            None => Ack::Unknown,
        }
    }

    /// An operator puts a key's job back: as a release, for classic jobs whose lease lives, too.
    pub fn requeue(&mut self, key: &str, now: i64) -> Requeued {
        let since = now - self.rules.lease_seconds;
        let last = self.deliveries.iter().filter(|delivery| delivery.key == key);
        match last.max_by_key(|delivery| delivery.attempt).cloned() {
            Some(delivery) if delivery.leased || delivery.started >= since => {
                self.take_back(&delivery, true);
                self.leases.end(&delivery, Outcome::Released);
                Requeued::Back(Attempt(delivery.attempt))
            }
            _ if self.queue.iter().any(|row| row.key == key) => Requeued::NotInFlight,
            _ => Requeued::Unknown,
        }
    }

    /// Its key, and whether it is a dead letter now.
    pub fn expire(&mut self, attempt: i64) -> Option<(String, bool)> {
        let delivery = self.leased(attempt)?;
        let dead_letter = delivery.delivery_count >= self.rules.max_expired_leases;
        self.take_back(&delivery, !dead_letter);
        if dead_letter {
            self.deliveries.retain(|other| row_of(other) != row_of(&delivery));
        }
        if self.queue.iter().any(|row| (row.fetcher, row.run, row.key.clone()) == row_of(&delivery))
        {
            self.leases.expired.insert(row_of(&delivery), delivery.delivery_count);
        }
        self.leases.end(&delivery, Outcome::Expired);
        if dead_letter {
            self.dead_letter(&delivery.key, (delivery.fetcher, delivery.run));
            self.arm_if_bumped(&delivery.key);
        }
        Some((delivery.key, dead_letter))
    }

    /// Of one fetcher, or of all.
    pub fn retry(&mut self, key: &str, fetcher: Option<&str>) -> Retried {
        if !self.queue.iter().any(|row| row.key == key) {
            return Retried::Unknown;
        }
        if self.is_on_hold(key) {
            return Retried::Held;
        }
        Retried::Back(self.arm(key, fetcher))
    }

    /// Puts back what has ended of a key; how many rows and tasks.
    pub(super) fn arm(&mut self, key: &str, fetcher: Option<&str>) -> u64 {
        let id = fetcher.map(|name| if name == TASKS_FETCHER { Some(0) } else { self.id(name) });
        let is_meant = |of: i64| id.is_none_or(|id| id == Some(of));
        self.forget_delay(key, is_meant);
        let tasks = if is_meant(0) { self.retry_tasks(key) } else { 0 };
        let rows: Vec<Row> = self.queue.iter().filter(|row| row.key == key).cloned().collect();
        let waits = |row: &&Row| {
            row.dispatched
                && is_meant(row.fetcher)
                && !rows.iter().any(|other| other.fetcher == row.fetcher && other.run > row.run)
                && !self
                    .deliveries
                    .iter()
                    .any(|delivery| (delivery.fetcher, delivery.key.as_str()) == (row.fetcher, key))
        };
        let back: Vec<_> = rows.iter().filter(waits).map(|row| (row.fetcher, row.run)).collect();
        for row in &mut self.queue {
            if row.key == key && back.contains(&(row.fetcher, row.run)) {
                row.dispatched = false;
                self.leases.expired.remove(&(row.fetcher, row.run, row.key.clone()));
            }
        }
        back.len() as u64 + tasks
    }

    pub fn in_flight(&self, now: i64) -> u64 {
        let since = now - self.rules.lease_seconds;
        self.deliveries
            .iter()
            .filter(|delivery| delivery.leased || delivery.started >= since)
            .count() as u64
    }

    /// Leased attempts that ended, and expired leases of rows, as lines.
    pub fn ended(&self) -> Vec<String> {
        let ended = self.leases.ended.iter().map(|(delivery, outcome)| {
            format!("{}|{}|{outcome:?}", delivery.attempt, delivery.key).to_lowercase()
        });
        let row = |((fetcher, run, key), count): (&(i64, i64, String), &i64)| {
            format!("expired_leases|{fetcher}|{run}|{key}|{count}")
        };
        let mut lines: Vec<_> = ended.chain(self.leases.expired.iter().map(row)).collect();
        lines.sort();
        lines
    }
}
