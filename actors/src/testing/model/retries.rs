//! Tasks that failed and are tried again by themselves, as `docs/configuration.md` describes it.

use std::time::Duration;

use crate::store::{CountedEnds, Delays, Retries, RetryRules};

use super::Model;
use super::bumps::{BumpedKey, Retry};

/// Tasks of lists twice, single ones once, and soon.
pub fn tried_again() -> RetryRules {
    let [first, most] = [10, 60].map(Duration::from_secs);
    let delays = Delays::new(first, 3.0, most);
    let lists = Retries { on: CountedEnds::listed(vec![1]), most: 2, delays };
    let single = Retries { on: CountedEnds::failed(), most: 1, ..lists.clone() };
    RetryRules { lists: Some(lists), single: Some(single), ..RetryRules::default() }
}

/// A task whose job ended.
#[derive(Debug, Clone, Copy)]
pub struct EndedTask {
    pub fetcher: i64,
    pub run: i64,
    /// So often it was tried again.
    pub retried: u32,
}

impl Model {
    /// A task whose job is about to end.
    pub(super) fn ending(&self, key: &str, fetcher: i64, run: i64) -> EndedTask {
        let bumps = self.bumps.keys.iter().filter(|bump| bump.key == key);
        let mut retries = bumps.filter_map(|bump| bump.retry.as_ref());
        let its = retries.find(|retry| (retry.fetcher, retry.run) == (fetcher, run));
        EndedTask { fetcher, run, retried: its.map_or(0, |retry| retry.retries) }
    }

    /// A job of the key ended.
    pub(super) fn settle(&mut self, key: &str, task: Option<EndedTask>, code: i64, now: i64) {
        if let Some(EndedTask { fetcher, run, .. }) = task.filter(|_| self.rules.is_fair) {
            self.forget_retries(key, |_, retry| (retry.fetcher, retry.run) == (fetcher, run));
        }
        let is_delayed = task.is_some_and(|task| self.delay(key, task, code, now));
        if !is_delayed {
            self.count_end(key, code, now);
        }
    }

    /// Whether its task is delayed.
    fn delay(&mut self, key: &str, task: EndedTask, code: i64, now: i64) -> bool {
        let EndedTask { fetcher, run, retried } = task;
        let Some((_, name)) = self.fetchers.iter().find(|(id, _)| *id == fetcher) else {
            return false;
        };
        let rule = self.rules.retries.of(name).filter(|_| self.rules.is_fair);
        let Some(delay) = rule.and_then(|rule| rule.delay(key, code, retried)) else {
            return false;
        };
        let is_free = !self.bumps.keys.iter().any(|bump| bump.key == key);
        if !is_free || code == 0 || !self.has_failed(key, (fetcher, run)) {
            return false;
        }
        let retry = Retry { fetcher, run, retries: retried + 1, due: Some(now + delay) };
        let retry = BumpedKey { retry: Some(retry), ..BumpedKey::new(key) };
        self.bumps.keys.push(retry);
        true
    }

    /// Whether the task is one that ended, and that no newer list replaced.
    fn has_failed(&self, key: &str, task: (i64, i64)) -> bool {
        if task.0 == 0 {
            return self.singles_with("failed").contains(&(key.to_owned(), task.1));
        }
        let of_fetcher =
            || self.queue.iter().filter(|row| (row.fetcher, &*row.key) == (task.0, key));
        of_fetcher().any(|row| row.run == task.1 && row.dispatched)
            && !of_fetcher().any(|row| row.run > task.1)
    }

    /// Delayed tasks whose time has come wait again.
    pub(super) fn end_delays(&mut self, now: i64) {
        let due = self.bumps.keys.iter().filter(|bump| bump.due().is_some_and(|due| due <= now));
        for key in due.map(|bump| bump.key.clone()).collect::<Vec<_>>() {
            let is_its = |bump: &&mut BumpedKey| bump.key == key;
            let bump = self.bumps.keys.iter_mut().find(is_its).unwrap();
            let retry = bump.retry.as_mut().unwrap();
            retry.due = None;
            let task = (retry.fetcher, retry.run);
            if !self.back_again(&key, task) {
                self.forget_retries(&key, |_, retry| (retry.fetcher, retry.run) == task);
            }
        }
    }

    fn back_again(&mut self, key: &str, task: (i64, i64)) -> bool {
        let is_out = self.deliveries.iter().any(|it| (&*it.key, it.fetcher) == (key, task.0));
        if !self.has_failed(key, task) || task.0 != 0 && is_out {
            return false;
        }
        if task.0 == 0 {
            self.retry_task(key, task.1);
        }
        let rows = self.queue.iter_mut().filter(|row| row.key == key && task.0 != 0);
        for row in rows.filter(|row| (row.fetcher, row.run) == task) {
            row.dispatched = false;
        }
        true
    }

    /// What the key's tasks are tried again for is past, of those that are meant.
    fn forget_retries(&mut self, key: &str, is_meant: impl Fn(&BumpedKey, &Retry) -> bool) {
        self.bumps.keys.retain(|bump| {
            let retry = bump.retry.as_ref().filter(|_| bump.key == key);
            !retry.is_some_and(|retry| is_meant(bump, retry))
        });
    }

    /// Somebody puts a delayed task back, of a fetcher that is meant.
    pub(super) fn forget_delay(&mut self, key: &str, is_meant: impl Fn(i64) -> bool) {
        self.forget_retries(key, |_, retry| retry.due.is_some() && is_meant(retry.fetcher));
    }

    /// A fetcher's newer list names the key, or its single tasks are cancelled.
    pub(super) fn forget_earlier(&mut self, key: &str, fetcher: i64, newer: i64) {
        let is_fair = self.rules.is_fair;
        self.forget_retries(key, |bump, retry| {
            is_fair && bump.attempt.is_none() && retry.fetcher == fetcher && retry.run < newer
        });
    }

    /// The key was handed out, and its task that is tried again waits no more.
    pub(super) fn forget_stale(&mut self, key: &str) {
        let model = self.clone();
        self.forget_retries(key, |bump, retry| {
            let waits = if retry.fetcher == 0 {
                model.singles_with("waiting").contains(&(key.to_owned(), retry.run))
            } else {
                model.queue.iter().any(|row| {
                    let task = (row.fetcher, row.run, &*row.key);
                    task == (retry.fetcher, retry.run, key) && !row.dispatched
                })
            };
            bump.waits() && !waits
        });
    }

    pub(super) fn next_due(&self, now: i64) -> Option<u64> {
        let first = self.bumps.keys.iter().filter_map(BumpedKey::due).min()?;
        Some((first - now).max(0).cast_unsigned())
    }

    /// Tasks that are delayed, as (key, run), by when they are due.
    pub(super) fn delayed(&self) -> Vec<(String, i64)> {
        let delayed = self.bumps.keys.iter().filter_map(|bump| {
            let retry = bump.retry.as_ref()?;
            Some((retry.due?, bump.key.clone(), (retry.fetcher, retry.run)))
        });
        let mut delayed: Vec<_> =
            delayed.filter(|(_, key, task)| self.has_failed(key, *task)).collect();
        delayed.sort();
        delayed.into_iter().map(|(_, key, task)| (key, task.1)).collect()
    }

    /// Whether a row's task is delayed.
    pub(super) fn is_delayed(&self, key: &str, task: (i64, i64)) -> bool {
        self.bumps.keys.iter().any(|bump| {
            let retry = bump.retry.as_ref().filter(|retry| retry.due.is_some());
            bump.key == key && retry.is_some_and(|retry| (retry.fetcher, retry.run) == task)
        })
    }

    /// Rows of the table.
    pub fn delays(&self) -> usize {
        self.bumps.keys.iter().filter(|bump| bump.due().is_some()).count()
    }
}
