//! The model's groups: tasks of the keys a to d are in groups by their payloads, each with its own limits.

use std::collections::{BTreeMap, BTreeSet};

use shiftboss_queue::groups::{By, GroupRules, Limits, Rate, Rest, Table};

use super::{Model, Out, Task};

#[derive(Debug, Clone, Default)]
pub struct Groups {
    is_on: bool,
    /// When jobs started, and when the last one ended, and how long it took; in time without steps of the clock.
    starts: BTreeMap<String, Vec<i64>>,
    ends: BTreeMap<String, (i64, i64)>,
    /// By how much the clock was set.
    pub clock: i64,
    /// Those of the single tasks that were added last.
    pub singles: BTreeMap<String, Option<String>>,
}

impl Groups {
    pub fn new(is_on: bool) -> Self {
        Self { is_on, ..Self::default() }
    }
}

/// One job at a time, each five seconds after the one before; two within thirty seconds, and a rest; no limit.
pub fn grouping() -> GroupRules {
    let one = Limits { max_in_flight: Some(1), delay: Some(5_000), ..Limits::default() };
    let two = Limits {
        rest: Some(Rest { factor: 2.0, min: 1_000, max: 20_000 }),
        rate: Some(Rate { starts: 2, window: 30_000 }),
        ..Limits::default()
    };
    let exceptions = vec![("y".to_owned(), two), ("z".to_owned(), Limits::default())];
    let keys = Some("^[a-d]$".to_owned());
    let table = Table { name: "g".to_owned(), by: By::Word(2), keys, limits: one, exceptions };
    GroupRules::new(vec![table]).unwrap()
}

fn group(key: &str, payload: &str) -> Option<String> {
    matches!(key, "a" | "b" | "c" | "d").then(|| payload.to_owned())
}

impl Model {
    pub(super) fn group_of(&self, task: &Task) -> Option<String> {
        match task.fetcher {
            _ if !self.groups.is_on => None,
            0 => self.groups.singles.get(&task.key).cloned().flatten(),
            _ => group(&task.key, &task.payload),
        }
    }

    /// How many jobs of a group are out, keys wait for their turn, and tasks are in it; a key's single tasks are one.
    pub fn counts_of_group(&self, group: &str) -> [i64; 3] {
        let out = self.out.iter().filter(|out| out.group.as_deref() == Some(group)).count();
        let is_in = |it: &&Task| self.group_of(it).as_deref() == Some(group);
        let waits = |key: &&String| self.next(key, None).as_ref().is_some_and(is_in);
        let (singles, rows): (Vec<_>, Vec<_>) =
            self.tasks.iter().filter(is_in).partition(|it| it.fetcher == 0);
        let singles: BTreeSet<&String> = singles.iter().map(|it| &it.key).collect();
        let waiting = self.order().iter().filter(waits).count();
        [out, waiting, rows.len() + singles.len()].map(|it| it as i64)
    }

    /// Those that are closed and have keys: an open one is known as closed until somebody looks.
    pub fn closed_groups(&self) -> u32 {
        let is_closed = |group: &&str| !self.is_open(group) && self.counts_of_group(group)[1] > 0;
        ["x", "y"].into_iter().filter(is_closed).count() as u32
    }

    pub fn added_single(&mut self, key: &str, payload: &str) {
        self.groups.singles.insert(key.to_owned(), group(key, payload));
    }

    fn steady(&self) -> i64 {
        self.now - self.groups.clock
    }

    /// Times in the future count from now on, once they are noticed.
    fn notice(&mut self, group: &str) {
        let now = self.steady();
        let starts = self.groups.starts.get_mut(group).into_iter().flatten();
        let ends = self.groups.ends.get_mut(group).into_iter().map(|it| &mut it.0);
        starts.chain(ends).for_each(|at| *at = now.min(*at));
    }

    /// After a start, those of groups that are closed are, and of those that have jobs out.
    pub fn follow_groups(&mut self) {
        for group in ["x", "y"] {
            if self.out.iter().any(|out| out.group.as_deref() == Some(group))
                || !self.is_open(group)
            {
                self.notice(group);
                self.see_group(group);
            }
        }
    }

    pub fn see_groups(&mut self) {
        ["x", "y"].into_iter().for_each(|group| self.see_group(group));
    }

    /// What is over is forgotten when it is seen that a group is open.
    fn see_group(&mut self, group: &str) {
        if self.is_open(group) {
            self.groups.ends.remove(group);
        }
        if group == "x" && self.is_open(group) {
            self.groups.starts.remove(group);
        }
    }

    /// A group that nothing is in is forgotten with what is over of it.
    pub fn forget_groups(&mut self) {
        for group in ["x", "y"] {
            if self.is_open(group) && self.counts_of_group(group) == [0; 3] {
                self.groups.ends.remove(group);
                if group == "x" {
                    self.groups.starts.remove(group);
                }
            }
        }
    }

    pub fn starts_in(&mut self, group: Option<&str>) {
        let now = self.steady();
        if let Some(group) = group {
            self.notice(group);
            let starts = self.groups.starts.entry(group.to_owned()).or_default();
            starts.retain(|at| now - at < 30);
            starts.push(now);
        }
    }

    pub(super) fn ends_in(&mut self, out: &Out) {
        out.group.iter().for_each(|group| self.notice(group));
        let end = (self.steady(), (self.steady() - (out.started - out.clock)).max(0));
        self.groups.ends.extend(out.group.clone().map(|group| (group, end)));
        self.see_groups();
    }

    /// Whether a task's group is open.
    pub(super) fn may_start(&self, task: &Task) -> bool {
        self.group_of(task).is_none_or(|group| self.is_open(&group))
    }

    fn is_open(&self, group: &str) -> bool {
        let now = self.steady();
        let out = self.out.iter().filter(|out| out.group.as_deref() == Some(group)).count();
        let none = Vec::new();
        let starts = self.groups.starts.get(group).unwrap_or(&none);
        let since = |at: &i64| now - (*at).min(now);
        match group {
            "x" => out < 1 && starts.last().is_none_or(|at| since(at) >= 5),
            "y" => {
                let ended = self.groups.ends.get(group);
                let has_rested =
                    ended.is_none_or(|(at, took)| since(at) >= (took * 2).clamp(1, 20));
                has_rested && starts.iter().filter(|at| since(at) < 30).count() < 2
            }
            _ => true,
        }
    }
}
