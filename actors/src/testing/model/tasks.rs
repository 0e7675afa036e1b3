//! Single tasks, as `docs/protocol.md` describes them, and the rows of the queue that they have.

use crate::store::{Added, Cancelled};

use super::{Model, Row};

/// The fetcher of single tasks.
const TASKS: (i64, &str) = (0, "@tasks");

/// A single task.
#[derive(Debug, Clone)]
pub struct Single {
    task: i64,
    key: String,
    payload: String,
    status: &'static str,
    /// Of an attempt that somebody else ended: when it started, and its exit code.
    started: Option<i64>,
    code: Option<i64>,
}

impl Model {
    pub fn add_task(&mut self, key: &str, payload: &str, now: i64) -> Added {
        self.resolve_tasks(key);
        let waits = |single: &Single| {
            (single.key.as_str(), &*single.payload, single.status) == (key, payload, "waiting")
                && !self.is_out(single)
        };
        if self.singles.iter().any(waits) {
            return Added::Known;
        }
        if self.singles.len() >= self.rules.max_single_tasks {
            return Added::Full;
        }
        self.last_task = now.max(self.last_task + 1);
        self.singles.push(Single {
            task: self.last_task,
            key: key.to_owned(),
            payload: payload.to_owned(),
            status: "waiting",
            started: None,
            code: None,
        });
        self.resolve_tasks(key);
        // A server tells nobody the number.
        Added::Added(0)
    }

    pub fn cancel_tasks(&mut self, key: &str, now: i64) -> Cancelled {
        self.forget_earlier(key, TASKS.0, i64::MAX);
        let since = now - self.rules.lease_seconds;
        let out = |task: i64| {
            self.deliveries.iter().any(|delivery| {
                (delivery.fetcher, delivery.run, delivery.key.as_str()) == (TASKS.0, task, key)
                    && (delivery.leased || delivery.started >= since)
            })
        };
        let spared: Vec<bool> =
            self.singles.iter().map(|single| single.key != key || out(single.task)).collect();
        let in_flight = self.deliveries.iter().any(|delivery| {
            (delivery.fetcher, delivery.key.as_str()) == (TASKS.0, key)
                && (delivery.leased || delivery.started >= since)
        });
        let (before, mut at) = (self.singles.len(), 0);
        self.singles.retain(|_| {
            at += 1;
            spared[at - 1]
        });
        let deleted = (before - self.singles.len()) as u64;
        self.resolve_tasks(key);
        Cancelled { deleted, more: false, in_flight }
    }

    /// Failed ones and dead letters wait again; how many.
    pub(super) fn retry_tasks(&mut self, key: &str) -> u64 {
        for single in self.singles.iter_mut().filter(|single| single.key == key) {
            (single.started, single.code) = (None, None);
        }
        let ended = |single: &&mut Single| single.key == key && single.status != "waiting";
        if !self.singles.iter_mut().any(|single| ended(&single)) {
            return 0;
        }
        if let Some((task, Some(status), _)) = self.current(key)
            && status != "waiting"
        {
            self.drop_row(key, task);
        }
        let back = self.singles.iter_mut().filter(ended);
        let back = back.map(|single| single.status = "waiting").count();
        self.derive_row(key);
        back as u64
    }

    /// A failed one waits again.
    pub(super) fn retry_task(&mut self, key: &str, task: i64) {
        if self.current(key).is_some_and(|current| current.0 == task) {
            self.drop_row(key, task);
        }
        self.set_status(task, "waiting");
        self.derive_row(key);
    }

    /// The job of a row of the fetcher of single tasks ended.
    pub(super) fn end_task(&mut self, key: &str, (fetcher, task): (i64, i64), code: i64) {
        if fetcher != TASKS.0 {
            return;
        }
        if code == 0 {
            self.singles.retain(|single| single.task != task);
        }
        self.set_status(task, "failed");
        self.derive_row(key);
    }

    pub(super) fn dead_letter(&mut self, key: &str, (fetcher, task): (i64, i64)) {
        if fetcher == TASKS.0 {
            self.set_status(task, "dead_letter");
            self.derive_row(key);
        }
    }

    fn set_status(&mut self, task: i64, status: &'static str) {
        self.singles.iter_mut().filter(|single| single.task == task).for_each(|single| {
            (single.status, single.started, single.code) = (status, None, None);
        });
    }

    /// The log says that a job ended whose dispatch is not known; whether it was a single task's.
    pub(super) fn note_end(&mut self, key: &str) -> bool {
        let Some((started, Some(_), code)) = self.log.get(key) else {
            return false;
        };
        let is_its = |single: &&mut Single| {
            single.key == key && single.status == "waiting" && single.started == Some(*started)
        };
        let singles = self.singles.iter_mut().filter(is_its);
        singles.map(|single| single.code = Some(code.unwrap_or(0))).count() > 0
    }

    /// Whether a dispatch of it is known.
    fn is_out(&self, single: &Single) -> bool {
        self.deliveries.iter().any(|delivery| {
            (delivery.fetcher, delivery.run, &delivery.key) == (TASKS.0, single.task, &single.key)
        })
    }

    /// The task whose row a key has, its status, and whether it is dispatched.
    fn current(&self, key: &str) -> Option<(i64, Option<&'static str>, bool)> {
        let row =
            self.queue.iter().find(|row| (row.fetcher, row.key.as_str()) == (TASKS.0, key))?;
        let single = self.singles.iter().find(|single| single.task == row.run);
        Some((row.run, single.map(|single| single.status), row.dispatched))
    }

    pub(super) fn resolve_tasks(&mut self, key: &str) {
        let has_ended = |single: &&Single| single.key == key && single.code.is_some();
        if let Some((task, code)) =
            self.singles.iter().find(has_ended).and_then(|single| Some((single.task, single.code?)))
        {
            self.end_task(key, (TASKS.0, task), code);
        }
        let ended = self.log.get(key).filter(|log| log.1.is_some()).map(|log| log.2.unwrap_or(0));
        if let (Some((task, Some("waiting"), true)), Some(code)) = (self.current(key), ended)
            && !self.singles.iter().any(|single| single.task == task && self.is_out(single))
        {
            self.end_task(key, (TASKS.0, task), code);
        }
        self.derive_row(key);
    }

    fn derive_row(&mut self, key: &str) {
        let leased = |task: i64| {
            self.deliveries.iter().any(|delivery| {
                (delivery.fetcher, delivery.run, delivery.key.as_str()) == (TASKS.0, task, key)
                    && delivery.leased
            })
        };
        let current = self.current(key);
        match current {
            Some((_, Some("waiting"), _)) => return,
            Some((task, None, _)) if leased(task) => return,
            _ => {}
        }
        let of_key = self.singles.iter().filter(|single| single.key == key);
        let (waiting, ended): (Vec<_>, Vec<_>) =
            of_key.cloned().partition(|single| single.status == "waiting");
        let first = waiting.into_iter().min_by_key(|single| single.task);
        if first.is_none() && matches!(current, Some((_, Some(_), _))) {
            return;
        }
        if let Some((task, ..)) = current {
            self.drop_row(key, task);
        }
        let last = ended.into_iter().max_by_key(|single| (single.status, single.task));
        if let Some(next) = first.or(last) {
            self.put_row(next);
        }
    }

    fn drop_row(&mut self, key: &str, task: i64) {
        debug_assert!(self.current(key).is_some_and(|current| current.0 == task));
        self.delete(TASKS.1, task);
    }

    fn put_row(&mut self, single: Single) {
        if self.id(TASKS.1).is_none() {
            self.fetchers.push((TASKS.0, TASKS.1.to_owned()));
        }
        let dispatched = single.status != "waiting" || self.is_out(&single);
        let Single { task, key, payload, status, .. } = single;
        self.runs.push((TASKS.0, task, true));
        if status == "dead_letter" {
            self.leases.expired.insert((TASKS.0, task, key.clone()), self.rules.max_expired_leases);
        }
        self.queue.push(Row { fetcher: TASKS.0, run: task, key, payload, dispatched });
    }

    /// Those with a status, as (key, number), the oldest first.
    pub(super) fn singles_with(&self, status: &str) -> Vec<(String, i64)> {
        let with = self.singles.iter().filter(|single| single.status == status);
        with.map(|single| (single.key.clone(), single.task)).collect()
    }

    /// The single tasks, as lines.
    pub(super) fn single_lines(&self) -> Vec<String> {
        let line = |single: &Single| {
            let Single { task, key, payload, status, .. } = single;
            format!("single|{task}|{key}|{payload}|{status}")
        };
        self.singles.iter().map(line).collect()
    }
}
