//! What other connections do to the model's tables, and what they see there.

use super::leases::Outcome;
use super::{Log, Model};

impl Model {
    /// `INSERT OR REPLACE` of a log row from outside.
    pub fn replace_log(&mut self, key: &str, row: Log) {
        self.log.insert(key.to_owned(), row);
        if row.1.is_some() {
            self.complete_by_hand(key);
        }
    }

    /// Somebody ended a job in the log: if that row is its attempt's, it is done.
    fn complete_by_hand(&mut self, key: &str) {
        let attempts = self.deliveries.iter().filter(|delivery| delivery.key == key);
        let last =
            attempts.max_by_key(|delivery| delivery.attempt).map(|delivery| delivery.started);
        let is_its = self.log.get(key).map(|log| log.0) == last;
        let before = self.deliveries.clone();
        self.complete_delivery(key, if is_its { Outcome::Done } else { Outcome::Expired });
        for delivery in before.iter().filter(|delivery| delivery.fetcher == 0) {
            if !self.deliveries.iter().any(|left| left.attempt == delivery.attempt) {
                self.note_attempt(delivery.run, delivery.started);
            }
        }
        self.note_end(key);
    }

    /// `DELETE` of a log row from outside.
    pub fn delete_log(&mut self, key: &str) {
        self.log.remove(key);
    }

    /// `UPDATE log SET started` from outside.
    pub fn restart_log(&mut self, key: &str, started: i64) {
        if let Some(log) = self.log.get_mut(key) {
            log.0 = started;
        }
    }

    /// `UPDATE log SET finished` from outside.
    pub fn refinish_log(&mut self, key: &str, finished: Option<i64>) {
        if let Some(log) = self.log.get_mut(key) {
            let ends = log.1.is_none() && finished.is_some();
            log.1 = finished;
            if ends {
                self.complete_by_hand(key);
            } else {
                self.note_end(key);
            }
        }
    }

    /// `UPDATE queue SET is_dequeued` of a key in all runs, from outside.
    pub fn set_dispatched(&mut self, key: &str, dispatched: bool) {
        for row in self.queue.iter_mut().filter(|row| row.key == key) {
            row.dispatched = dispatched;
        }
    }
    /// The public tables, deliveries, and when fetchers were last served, as lines.
    pub fn tables(&self) -> Vec<String> {
        let text = |value: Option<i64>| value.map_or("-".to_owned(), |value| value.to_string());
        let mut lines = Vec::new();
        for (id, name) in &self.fetchers {
            lines.push(format!("fetcher|{id}|{name}"));
        }
        for (fetcher, run, complete) in &self.runs {
            lines.push(format!("run|{fetcher}|{run}|{}", i32::from(*complete)));
        }
        for row in &self.queue {
            let started = text(self.log.get(&row.key).map(|log| log.0));
            let (fetcher, run, key, payload) = (row.fetcher, row.run, &row.key, &row.payload);
            let dispatched = i32::from(row.dispatched);
            lines.push(format!("queue|{fetcher}|{run}|{key}|{payload}|{dispatched}|{started}"));
        }
        for (key, (started, finished, code)) in &self.log {
            lines.push(format!("log|{key}|{started}|{}|{}", text(*finished), text(*code)));
        }
        for delivery in &self.deliveries {
            lines.push(format!("delivery|{}|{}", delivery.key, delivery.attempt));
        }
        for ((key, name), attempt) in &self.last_served {
            lines.push(format!("last_served|{key}|{name}|{attempt}"));
        }
        lines.extend(self.single_lines());
        lines.sort();
        lines
    }
}
