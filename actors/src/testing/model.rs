//! A naive model of spec 2 and 5: plain lists, searched through from end to end.

mod backoff;
mod bumps;
mod keys;
mod leases;
mod perform;
mod retries;
mod rules;
mod tables;
mod tasks;
mod views;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::store::answers::Hold;
use backoff::Backoffs;
pub use backoff::often_in_a_row;
use bumps::Bumps;
use leases::{Leases, Outcome};
pub use retries::tried_again;
pub use rules::Rules;
use tasks::Single;

/// A queue row.
#[derive(Debug, Clone)]
struct Row {
    fetcher: i64,
    run: i64,
    key: String,
    payload: String,
    dispatched: bool,
}

/// A log row: started, finished, exit code.
type Log = (i64, Option<i64>, Option<i64>);

/// A dispatch whose end is not known.
#[derive(Debug, Clone)]
struct Delivery {
    key: String,
    attempt: i64,
    fetcher: i64,
    run: i64,
    started: i64,
    before: Option<Log>,
    last_served: Option<i64>,
    marked_runs: Vec<i64>,
    /// Which try of its row it is.
    delivery_count: i64,
    /// It is leased to a worker that speaks protocol 2.
    leased: bool,
    /// That worker.
    worker: Arc<str>,
}

/// The queue as the specification describes it.
#[derive(Debug, Clone)]
pub struct Model {
    pub rules: Rules,
    fetchers: Vec<(i64, String)>,
    last_fetcher: i64,
    /// fetcher, started, complete
    runs: Vec<(i64, i64, bool)>,
    queue: Vec<Row>,
    log: BTreeMap<String, Log>,
    deliveries: Vec<Delivery>,
    last_served: BTreeMap<(String, String), i64>,
    attempts: i64,
    leases: Leases,
    singles: Vec<Single>,
    /// The last number of a single task.
    last_task: i64,
    /// Those of operators.
    holds: BTreeMap<String, Hold>,
    backoffs: Backoffs,
    bumps: Bumps,
    /// A key was forgotten, whose jobs are summed up still.
    has_forgotten: bool,
}

impl Model {
    pub fn new(rules: Rules) -> Self {
        Self {
            fetchers: Vec::new(),
            last_fetcher: 0,
            runs: Vec::new(),
            queue: Vec::new(),
            log: BTreeMap::new(),
            deliveries: Vec::new(),
            last_served: BTreeMap::new(),
            attempts: 0,
            leases: Leases::default(),
            singles: Vec::new(),
            last_task: 0,
            holds: BTreeMap::new(),
            backoffs: Backoffs::default(),
            bumps: Bumps::new(if rules.is_fair { rules.bump_share } else { 0 }),
            has_forgotten: false,
            rules,
        }
    }

    fn id(&self, name: &str) -> Option<i64> {
        self.fetchers.iter().find(|(_, known)| known == name).map(|(id, _)| *id)
    }

    fn name(&self, id: i64) -> String {
        self.fetchers.iter().find(|(known, _)| *known == id).unwrap().1.clone()
    }

    pub fn register(&mut self, name: &str, run: i64) {
        let id = self.id(name).unwrap_or_else(|| {
            self.last_fetcher += 1;
            self.fetchers.push((self.last_fetcher, name.to_owned()));
            self.last_fetcher
        });
        if !self.runs.iter().any(|(f, r, _)| (*f, *r) == (id, run)) {
            self.runs.push((id, run, false));
        }
    }

    pub fn add(&mut self, name: &str, run: i64, rows: &[(String, String)], complete: bool) {
        let fetcher = self.id(name).unwrap();
        for (key, payload) in rows {
            let is_new = !self
                .queue
                .iter()
                .any(|row| (row.fetcher, row.run, &row.key) == (fetcher, run, key));
            if is_new {
                self.forget_earlier(key, fetcher, run);
            }
            let known = self
                .queue
                .iter_mut()
                .find(|row| (row.fetcher, row.run, &row.key) == (fetcher, run, key));
            match known {
                Some(row) => row.payload.clone_from(payload),
                None => self.queue.push(Row {
                    fetcher,
                    run,
                    key: key.clone(),
                    payload: payload.clone(),
                    dispatched: false,
                }),
            }
        }
        self.runs.iter_mut().find(|(f, r, _)| (*f, *r) == (fetcher, run)).unwrap().2 = complete;
    }

    pub fn delete(&mut self, name: &str, run: i64) {
        let Some(fetcher) = self.id(name) else {
            return;
        };
        let (log, queue) = (&self.log, &self.queue);
        // A delivery whose row went before, with a run of the same name, is left alone.
        let listed = |key: &str| {
            queue.iter().any(|row| (row.fetcher, row.run, row.key.as_str()) == (fetcher, run, key))
        };
        self.deliveries.retain(|delivery| {
            let in_flight = log.get(&delivery.key).filter(|log| log.1.is_none());
            (delivery.fetcher, delivery.run) != (fetcher, run)
                || delivery.leased
                || !listed(&delivery.key)
                || in_flight.is_some_and(|log| log.0 == delivery.started)
        });
        self.leases.expired.retain(|row, _| (row.0, row.1) != (fetcher, run));
        self.queue.retain(|row| (row.fetcher, row.run) != (fetcher, run));
        self.runs.retain(|(f, r, _)| (*f, *r) != (fetcher, run));
        if !self.runs.iter().any(|(f, ..)| *f == fetcher) {
            self.fetchers.retain(|(id, _)| *id != fetcher);
        }
    }

    /// The rows that may be dispatched, not looking at whether their key is in flight.
    fn candidates(&self) -> Vec<&Row> {
        let newest = |row: &&Row| {
            !self.queue.iter().any(|other| {
                (other.fetcher, &other.key) == (row.fetcher, &row.key) && other.run > row.run
            })
        };
        let leased = |row: &Row| {
            self.deliveries.iter().any(|delivery| {
                (delivery.fetcher, delivery.run, &delivery.key) == (row.fetcher, row.run, &row.key)
            })
        };
        self.queue.iter().filter(newest).filter(|row| !row.dispatched || leased(row)).collect()
    }

    /// When a row's fetcher was last served with its key.
    fn last_served(&self, row: &Row) -> Option<i64> {
        self.last_served.get(&(row.key.clone(), self.name(row.fetcher))).copied()
    }

    /// The row that is handed out next, paused or not; and whether it goes before the order.
    fn next_row(&self, now: i64) -> Option<(Row, bool)> {
        let bumped = self.bumped_row(now).map(|row| (row, true));
        bumped.or_else(|| self.first_row(now, |_| true).map(|row| (row, false)))
    }

    /// The first row in order, of the keys that are meant.
    fn first_row(&self, now: i64, is_meant: impl Fn(&str) -> bool) -> Option<Row> {
        let kept = |key: &str| {
            self.is_on_hold(key)
                || self.deliveries.iter().any(|delivery| delivery.leased && delivery.key == key)
        };
        let free = |key: &str| match self.log.get(key) {
            None | Some((_, Some(_), _)) => true,
            Some((started, None, _)) => started + self.rules.lease_seconds < now,
        };
        let started = |row: &Row| self.log.get(&row.key).map(|log| log.0);
        let fair = self.rules.is_fair;
        let rank = |row: &Row| {
            let turn = if fair { (row.dispatched, self.last_served(row)) } else { (false, None) };
            (started(row), (self.rules.jitter)(&row.key), row.key.clone(), turn, row.fetcher)
        };
        let is_eligible = |row: &&Row| is_meant(&row.key) && free(&row.key) && !kept(&row.key);
        let eligible = self.candidates().into_iter().filter(is_eligible);
        eligible.min_by_key(|row| rank(row)).cloned()
    }

    /// `key payload` of the next job, and its attempt.
    pub fn dispatch(&mut self, now: i64) -> Option<(i64, String)> {
        self.dispatch_to(now, false)
    }

    /// The same, to a worker that holds a lease or to a classic one.
    pub fn dispatch_to(&mut self, now: i64, leased: bool) -> Option<(i64, String)> {
        if self.leases.paused {
            return None;
        }
        let (row, is_before_order) = self.next_row(now)?;
        let last_served = self.last_served(&row);
        self.attempts += 1;
        self.bump_goes_out(&row, is_before_order);
        if self.rules.is_fair {
            self.record_dispatch(&row, now, last_served, leased);
        }
        for other in &mut self.queue {
            if (other.fetcher, &other.key) == (row.fetcher, &row.key) {
                other.dispatched = true;
            }
        }
        self.log.insert(row.key.clone(), (now, None, None));
        if self.rules.is_fair {
            self.forget_stale(&row.key);
        }
        Some((self.attempts, format!("{} {}", row.key, row.payload)))
    }

    fn record_dispatch(&mut self, row: &Row, now: i64, last_served: Option<i64>, leased: bool) {
        let delivery_count = 1 + self.expired_before(row);
        self.overtake(row);
        let queue = &self.queue;
        self.deliveries.retain(|delivery| {
            delivery.key != row.key
                || queue.iter().any(|row| {
                    (row.fetcher, row.run, &row.key)
                        == (delivery.fetcher, delivery.run, &delivery.key)
                })
        });
        let of_row = |other: &&Row| (other.fetcher, &other.key) == (row.fetcher, &row.key);
        let marked = queue.iter().filter(of_row).filter(|other| !other.dispatched);
        self.deliveries.push(Delivery {
            key: row.key.clone(),
            attempt: self.attempts,
            fetcher: row.fetcher,
            run: row.run,
            started: now,
            before: self.log.get(&row.key).copied(),
            last_served,
            marked_runs: marked.map(|other| other.run).collect(),
            delivery_count,
            leased,
            worker: "".into(),
        });
        self.last_served.insert((row.key.clone(), self.name(row.fetcher)), self.attempts);
    }

    /// The deliveries of a key's last dispatch's fetcher are over.
    fn complete_delivery(&mut self, key: &str, outcome: Outcome) {
        let last = self.deliveries.iter().filter(|delivery| delivery.key == key);
        if let Some(last) = last.max_by_key(|delivery| delivery.attempt).cloned() {
            self.leases.end(&last, outcome);
            let fetcher = last.fetcher;
            self.deliveries.retain(|delivery| delivery.key != key || delivery.fetcher != fetcher);
        }
    }

    pub fn finish(&mut self, key: &str, code: i64, now: i64) {
        if let Some(log) = self.log.get_mut(key) {
            let in_flight = log.1.is_none();
            (log.1, log.2) = (Some(now), Some(code));
            if in_flight {
                self.forget_expired_leases(key);
                let deliveries = self.deliveries.iter().filter(|delivery| delivery.key == key);
                let last = deliveries.max_by_key(|delivery| delivery.attempt);
                let task = last.map(|last| self.ending(key, last.fetcher, last.run));
                self.complete_delivery(key, Outcome::Done);
                self.forget_bumps();
                match task {
                    Some(task) => self.end_task(key, (task.fetcher, task.run), code),
                    None => self.note_task_end(key),
                }
                self.settle(key, task, code, now);
                return self.arm_if_bumped(key);
            }
            self.note_task_end(key);
        }
    }

    /// A job ended whose dispatch is not known: it may have been a single task's.
    fn note_task_end(&mut self, key: &str) {
        if self.note_end(key) {
            self.resolve_tasks(key);
        }
    }

    pub fn undo(&mut self, attempt: i64) -> bool {
        let Some(delivery) =
            self.deliveries.iter().find(|delivery| delivery.attempt == attempt).cloned()
        else {
            return false;
        };
        let last = self
            .deliveries
            .iter()
            .filter(|other| other.key == delivery.key)
            .map(|other| other.attempt)
            .max();
        let log = self.log.get(&delivery.key);
        if last != Some(attempt)
            || log.is_none_or(|log| log.1.is_some() || log.0 != delivery.started)
        {
            return false;
        }
        self.take_back(&delivery, true);
        self.leases.end(&delivery, Outcome::Undone);
        true
    }

    /// All that a dispatch changed is as it was before it; but for rows that are to stay out.
    fn take_back(&mut self, delivery: &Delivery, rearm: bool) {
        if rearm {
            self.restore_bump(delivery.attempt);
        }
        for row in &mut self.queue {
            if (row.fetcher, &row.key) == (delivery.fetcher, &delivery.key)
                && rearm
                && delivery.marked_runs.contains(&row.run)
            {
                row.dispatched = false;
            }
        }
        // Also of a fetcher that is gone: they are kept by its name.
        let mut served =
            self.last_served.iter().filter(|(_, attempt)| **attempt == delivery.attempt);
        if let Some(name) = served.next().map(|(name, _)| name.clone()) {
            match delivery.last_served {
                Some(before) => self.last_served.insert(name, before),
                None => self.last_served.remove(&name),
            };
        }
        let log = self.log.get(&delivery.key);
        if log.is_some_and(|log| log.1.is_none() && log.0 == delivery.started) {
            match delivery.before {
                Some(before) => self.log.insert(delivery.key.clone(), before),
                None => self.log.remove(&delivery.key),
            };
        }
        self.deliveries.retain(|other| other.attempt != delivery.attempt);
    }
}
