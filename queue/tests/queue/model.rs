//! The specification's order and statuses, written as naively as possible: plain lists, searched from end to end. It
//! shares no code with the rules.

#[path = "model/groups.rs"]
pub mod groups;
#[path = "model/operations.rs"]
mod operations;

use std::collections::{BTreeMap, BTreeSet};

use shiftboss_protocol::model::jitter;
use shiftboss_queue::hold_rules::HoldOf;
use shiftboss_queue::policy::{Backoff, Retries};

/// Settings of every history.
pub const MAX_EXPIRED: u32 = 2;
pub const MAX_SINGLES: usize = 6;
pub const SHARE: i64 = 300;
/// For how many seconds keys are kept that nothing lists.
pub const KEPT: i64 = 700;
/// In microseconds: if a key waits since a time this far in the future, a clock that was ahead set that time.
const AHEAD: i64 = 60_000_000;

type Last = (i64, Option<i64>, Option<i64>);
/// The time, and the delay.
type Due = (i64, i64);

/// A row of a list (run > 0), or a single task (fetcher 0, its number for a run).
#[derive(Debug, Clone, Default, PartialEq)]
struct Task {
    fetcher: i64,
    run: i64,
    key: String,
    payload: String,
    waits: bool,
    expired: u32,
    /// Number of retries, and when it is due; in the lane since, once it was.
    retried: u32,
    due: Option<Due>,
    lane: Option<i64>,
    dead: bool,
}

#[derive(Debug, Clone)]
struct Out {
    attempt: i64,
    key: String,
    fetcher: i64,
    run: i64,
    started: i64,
    leased: bool,
    /// Its lease expired before.
    again: bool,
    /// It is to stop.
    stopping: bool,
    /// Which rows waited before, and all else that a hand-out changes.
    waited: Vec<i64>,
    last: Option<Last>,
    turn: Option<i64>,
    bump: Option<i64>,
    ahead: Option<i64>,
    /// By how much the clock had been set at its start.
    clock: i64,
    group: Option<String>,
}

impl Out {
    fn is_of(&self, task: &Task) -> bool {
        (self.fetcher, self.run, &self.key) == (task.fetcher, task.run, &task.key)
    }
}

#[derive(Debug, Clone, Default)]
pub struct Model {
    pub now: i64,
    /// The latest time ever seen, by which things are too old.
    pub latest: i64,
    retries: Option<Retries>,
    backoff: Option<Backoff>,
    fetchers: Vec<String>,
    runs: BTreeMap<(i64, i64), (i64, bool)>,
    tasks: Vec<Task>,
    since: BTreeMap<String, i64>,
    last: BTreeMap<String, Last>,
    turns: BTreeMap<(String, i64), i64>,
    out: Vec<Out>,
    /// How attempts ended, with the key and task of expired ones.
    ends: BTreeMap<i64, (&'static str, Out)>,
    /// The rows of lists, by key and fetcher, that ended with another code than 0 when their fetcher was served last.
    failed: BTreeSet<(String, i64)>,
    /// When and how attempts ended, for the sums.
    summed: BTreeMap<i64, (i64, &'static str, Out)>,
    minutes: BTreeMap<(i64, i64), i64>,
    holds: BTreeMap<String, Option<Due>>,
    rules: BTreeMap<HoldOf, Option<Due>>,
    failures: BTreeMap<String, (u32, Option<Due>)>,
    /// The places of keys whose last start lay in the future when first noticed.
    ahead: BTreeMap<String, i64>,
    bumps: BTreeMap<String, i64>,
    /// The lane's, of each daemon.
    credits: [i64; 2],
    /// The daemon that gets the requests.
    pub daemon: usize,
    attempts: i64,
    lanes: i64,
    numbers: i64,
    last_since: i64,
    paused: bool,
    groups: groups::Groups,
    /// When each daemon forgets old keys next.
    next_pass: [i64; 2],
}

impl Model {
    fn fetcher(&self, name: &str) -> Option<i64> {
        if name == "@tasks" {
            return Some(0);
        }
        self.fetchers.iter().position(|known| known == name).map(|at| at as i64 + 1)
    }

    fn is_newest(&self, task: &Task) -> bool {
        task.fetcher == 0
            || !self
                .tasks
                .iter()
                .any(|it| (it.fetcher, &it.key) == (task.fetcher, &task.key) && it.run > task.run)
    }

    fn is_going(&self, task: &Task) -> bool {
        self.runs.get(&(task.fetcher, task.run)).is_some_and(|run| run.1)
    }

    /// The tasks of a key that may be handed out, if it is free.
    fn candidates(&self, key: &str) -> Vec<&Task> {
        let of_key = self.tasks.iter().filter(|it| it.key == key && it.waits && self.is_newest(it));
        let free = of_key.filter(|it| !self.is_going(it) && !self.is_held_by_rule(it));
        let mut tasks: Vec<&Task> = free.collect();
        // Of single tasks only the first.
        let first = tasks.iter().filter(|it| it.fetcher == 0).map(|it| it.run).min();
        tasks.retain(|it| it.fetcher != 0 || Some(it.run) == first);
        tasks
    }

    fn is_held(&self, key: &str) -> bool {
        self.holds.contains_key(key) || self.failures.get(key).is_some_and(|it| it.1.is_some())
    }

    fn is_held_by_rule(&self, task: &Task) -> bool {
        let fetcher = (task.fetcher > 0).then(|| &*self.fetchers[task.fetcher as usize - 1]);
        let is_of = |of: &HoldOf| match of {
            HoldOf::Prefix(text) => task.key.starts_with(&**text),
            HoldOf::Fetcher(name) => fetcher.unwrap_or("@tasks") == &**name,
        };
        self.rules.keys().any(is_of)
    }

    /// Keys that are ready, the first one first.
    fn order(&self) -> Vec<String> {
        let mut keys: Vec<&String> = self.tasks.iter().map(|it| &it.key).collect();
        keys.sort();
        keys.dedup();
        keys.retain(|key| {
            !self.is_held(key)
                && !self.out.iter().any(|out| out.key == **key)
                && !self.candidates(key).is_empty()
        });
        keys.sort_by_key(|key| {
            let last = self.stands_at(key);
            let turn = last.unwrap_or_else(|| self.since.get(*key).copied().unwrap_or(0));
            (last.is_some(), turn, jitter(key), (*key).clone())
        });
        keys.into_iter().cloned().collect()
    }

    fn stands_at(&self, key: &str) -> Option<i64> {
        self.last.get(key).map(|last| self.ahead.get(key).copied().unwrap_or(last.0))
    }

    /// Keys whose turns lie in the future have them now.
    fn look(&mut self) {
        for key in self.order() {
            let now = self.now * 1_000_000;
            match self.stands_at(&key) {
                Some(at) if at > self.now => drop(self.ahead.insert(key, self.now)),
                None if self.since[&key] > now + AHEAD => drop(self.since.insert(key, now)),
                _ => {}
            }
        }
    }

    /// Those of the keys that have a task for these fetchers' workers, of a group that is open.
    fn that_may_go(&self, of: Option<&[i64]>) -> Vec<String> {
        let mut order = self.order();
        order.retain(|key| self.next(key, of).is_some_and(|it| self.may_start(it)));
        order
    }

    /// The task of a key that these fetchers' workers would get.
    fn next(&self, key: &str, of: Option<&[i64]>) -> Option<&Task> {
        let turn = |it: &&Task| {
            (self.turns.get(&(it.key.clone(), it.fetcher)).copied().unwrap_or(0), it.fetcher)
        };
        // Of those that workers named only the ones that may start now.
        let of_scope =
            |it: &&Task| of.is_none_or(|of| of.contains(&it.fetcher) && self.may_start(it));
        self.candidates(key).into_iter().filter(of_scope).min_by_key(turn)
    }

    /// What goes ahead of the order: bumped keys, then those of tasks that are tried again.
    fn lane(&self, of: Option<&[i64]>) -> Option<String> {
        let order = self.that_may_go(of);
        let bumped = self.bumps.iter().map(|(key, at)| (0, *at, key));
        let retried = self.tasks.iter().filter_map(|it| {
            let waits = it.waits && (it.fetcher == 0 || self.is_newest(it));
            Some((1, it.lane.filter(|_| waits)?, &it.key))
        });
        let lane = bumped.chain(retried).filter(|(_, _, key)| order.contains(key));
        lane.min().map(|(_, _, key)| key.clone())
    }

    fn dispatch(&mut self, leased: bool, of: Option<&[i64]>) -> String {
        if self.paused {
            return "nothing".into();
        }
        self.see_groups();
        let lane = self.lane(of).filter(|_| self.credits[self.daemon] >= 1_000);
        let is_lane = lane.is_some();
        let Some(key) = lane.or_else(|| self.that_may_go(of).first().cloned()) else {
            return "nothing".into();
        };
        let next = self.next(&key, of).unwrap().clone();
        let group = self.group_of(&next);
        let Task { fetcher, run, payload, expired, .. } = next;
        self.attempts += 1;
        self.starts_in(group.as_deref());
        let credit = &mut self.credits[self.daemon];
        *credit = (*credit + SHARE - if is_lane { 1_000 } else { 0 }).min(1_000 + SHARE);
        let is_served =
            |it: &Task| it.key == key && it.fetcher == fetcher && (fetcher > 0 || it.run == run);
        let waited = self.tasks.iter().filter(|it| is_served(it) && it.waits).map(|it| it.run);
        self.out.push(Out {
            clock: self.groups.clock,
            attempt: self.attempts,
            key: key.clone(),
            fetcher,
            run,
            started: self.now,
            leased,
            again: expired > 0,
            stopping: false,
            waited: waited.collect(),
            last: self.last.get(&key).copied(),
            turn: self.turns.insert((key.clone(), fetcher), self.attempts),
            bump: self.bumps.remove(&key),
            ahead: self.ahead.remove(&key),
            group,
        });
        self.tasks.iter_mut().filter(|it| is_served(it)).for_each(|it| it.waits = false);
        self.last.insert(key.clone(), (self.now, None, None));
        format!("job {} {key} {payload}", self.attempts)
    }

    fn take(&mut self, is_meant: impl Fn(&Out) -> bool) -> Option<Out> {
        let at = self.out.iter().position(is_meant)?;
        let out = self.out.remove(at);
        self.ends_in(&out);
        Some(out)
    }

    /// As it was before the hand-out.
    fn restore(&mut self, out: &Out) {
        for it in self.tasks.iter_mut().filter(|it| it.key == out.key && it.fetcher == out.fetcher)
        {
            it.waits |= out.waited.contains(&it.run);
        }
        match out.last {
            Some(last) => self.last.insert(out.key.clone(), last),
            None => self.last.remove(&out.key),
        };
        match out.turn {
            Some(turn) => self.turns.insert((out.key.clone(), out.fetcher), turn),
            None => self.turns.remove(&(out.key.clone(), out.fetcher)),
        };
        if let Some(ahead) = out.ahead {
            self.ahead.insert(out.key.clone(), ahead);
        }
        if let Some(bump) = out.bump {
            self.bumps.entry(out.key.clone()).or_insert(bump);
        }
    }

    fn ended(&mut self, key: &str, fetcher: i64, code: i64) {
        let of = (key.to_owned(), fetcher);
        if code == 0 {
            self.failed.remove(&of)
        } else {
            self.failed.insert(of)
        };
    }

    fn sum_up(&mut self, out: &Out, outcome: &'static str) {
        self.summed.insert(out.attempt, (self.now, outcome, out.clone()));
    }

    fn end(&mut self, out: Out, code: i64) {
        let outcome = if code == 0 { "success" } else { "failure" };
        self.sum_up(&out, if code == 124 { "timeout" } else { outcome });
        *self.minutes.entry((self.now.div_euclid(60), code)).or_default() += 1;
        self.last.insert(out.key.clone(), (out.started, Some(self.now), Some(code)));
        self.ended(&out.key, out.fetcher, code);
        let task = self.tasks.iter().position(|it| out.is_of(it));
        let mut retried = 0;
        if let Some(at) = task {
            let it = &mut self.tasks[at];
            retried = it.retried;
            (it.expired, it.retried, it.due, it.lane) = (0, 0, None, None);
            it.dead = false;
        }
        let mut is_delayed = false;
        if let (Some(at), Some(rule)) = (task, &self.retries)
            && let Some(delay) = rule.delay(&out.key, code, retried)
            && self.is_newest(&self.tasks[at])
            && !self.tasks[at].waits
        {
            let it = &mut self.tasks[at];
            (it.retried, it.due, is_delayed) = (retried + 1, Some((self.now + delay, delay)), true);
        }
        if out.fetcher == 0 && code == 0 {
            self.tasks.retain(|it| (it.fetcher, it.run) != (0, out.run));
        }
        if let Some(rule) = self.backoff.as_ref().filter(|_| !is_delayed) {
            if rule.on.counts(code) {
                let failures = self.failures.get(&out.key).map_or(0, |it| it.0) + 1;
                let until =
                    rule.delay(&out.key, failures.into()).map(|delay| (self.now + delay, delay));
                self.failures.insert(out.key.clone(), (failures, until));
            } else {
                self.failures.remove(&out.key);
            }
        }
        if self.bumps.contains_key(&out.key) {
            self.arm(&out.key, None);
        }
        self.ends.insert(out.attempt, ("done", out));
    }

    /// It is over, because it was to stop.
    fn cancel(&mut self, out: Out) {
        self.sum_up(&out, "cancelled");
        *self.minutes.entry((self.now.div_euclid(60), 143)).or_default() += 1;
        self.last.insert(out.key.clone(), (out.started, Some(self.now), Some(143)));
        self.ended(&out.key, out.fetcher, 0);
        if let Some(it) = self.tasks.iter_mut().find(|it| out.is_of(it)) {
            (it.expired, it.retried, it.due, it.lane) = (0, 0, None, None);
            it.dead = false;
        }
        if out.fetcher == 0 {
            self.tasks.retain(|it| (it.fetcher, it.run) != (0, out.run));
        }
        if self.bumps.contains_key(&out.key) {
            self.arm(&out.key, None);
        }
        self.ends.insert(out.attempt, ("cancelled", out));
    }

    fn arm(&mut self, key: &str, fetcher: Option<i64>) -> usize {
        let out = self.out.iter().find(|out| out.key == key).map(|out| (out.fetcher, out.run));
        let is_out = |it: &Task| {
            out.is_some_and(|(fetcher, run)| {
                it.fetcher == fetcher && (fetcher > 0 || it.run == run)
            })
        };
        let newest: Vec<bool> = self.tasks.iter().map(|it| self.is_newest(it)).collect();
        let mut back = 0;
        for (it, is_newest) in self.tasks.iter_mut().zip(newest) {
            if it.key == key && is_newest && fetcher.is_none_or(|only| only == it.fetcher) {
                if it.due.take().is_some() {
                    it.retried = 0;
                }
                if !it.waits && !is_out(it) {
                    (it.waits, it.expired, it.retried, it.lane) = (true, 0, 0, None);
                    it.dead = false;
                    back += 1;
                }
            }
        }
        back
    }

    fn is_listed(&self, key: &str) -> bool {
        self.tasks.iter().any(|it| it.key == key)
    }

    /// All of which anything is known.
    fn keys(&self) -> BTreeSet<String> {
        let known = self.since.keys().chain(self.last.keys()).chain(self.holds.keys());
        known.cloned().collect()
    }

    fn is_unlisted(&self, key: &str) -> bool {
        let is_out = self.out.iter().any(|out| out.key == key);
        !self.is_listed(key) && !is_out && !self.is_held(key)
    }

    /// The daemon of the last step was started again: it begins a pass at once.
    pub fn restarted(&mut self) {
        self.next_pass[self.daemon] = 0;
    }

    /// Forgets keys that nothing lists, and that have not run for long, if it is time for that.
    pub(super) fn forget_old(&mut self) {
        let next = &mut self.next_pass[self.daemon];
        if (1..=3_600).contains(&(*next - self.now)) {
            return;
        }
        *next = self.now + 3_600;
        let old = |key: &String| {
            let ran = self.last.get(key).map(|last| last.0.max(last.1.unwrap_or(last.0)));
            let came = self.since.get(key).map(|since| since.div_euclid(1_000_000));
            self.is_unlisted(key) && ran.or(came).is_none_or(|last| last < self.now - KEPT)
        };
        for key in self.keys().into_iter().filter(old).collect::<Vec<_>>() {
            self.since.remove(&key);
            self.last.remove(&key);
            self.failures.remove(&key);
            self.ahead.remove(&key);
            self.turns.retain(|(of, _), _| *of != key);
            self.failed.retain(|(of, _)| *of != key);
            self.ends.retain(|_, (_, out)| out.key != key);
        }
    }

    /// Removes what is left of a key that nothing lists any more.
    fn tidy(&mut self) {
        let listed: Vec<String> = self.tasks.iter().map(|it| it.key.clone()).collect();
        self.bumps.retain(|key, _| listed.contains(key));
        let newest: Vec<bool> = self.tasks.iter().map(|it| self.is_newest(it)).collect();
        let out: Vec<_> = self.out.iter().map(|it| (it.fetcher, it.run, it.key.clone())).collect();
        for (it, is_newest) in self.tasks.iter_mut().zip(newest) {
            if !is_newest && !out.contains(&(it.fetcher, it.run, it.key.clone())) {
                (it.expired, it.retried, it.due, it.lane) = (0, 0, None, None);
                it.dead = false;
            }
        }
    }

    /// What is counted, by fetcher and run: rows, those that wait, jobs that are out, leased ones, those that are out again,
    /// delayed tasks, dead letters, those that failed; and of keys, as run -1 of none: held, backed off, bumped, all, and those that
    /// nothing lists.
    pub fn counts(&self) -> BTreeMap<(i64, i64), [i64; 13]> {
        let mut counts = BTreeMap::<_, [i64; 13]>::new();
        let run = |fetcher, run| (fetcher, if fetcher == 0 { 0 } else { run });
        for it in &self.tasks {
            let counts = counts.entry(run(it.fetcher, it.run)).or_default();
            let is_out = |out: &Out| {
                out.is_of(it) || out.key == it.key && it.fetcher > 0 && out.fetcher == it.fetcher
            };
            let is_out = self.out.iter().any(is_out);
            let has_failed = it.fetcher == 0 || self.failed.contains(&(it.key.clone(), it.fetcher));
            let is_over = !it.waits && !it.dead && it.due.is_none() && self.is_newest(it);
            counts[0] += 1;
            counts[1] += i64::from(it.waits && self.is_newest(it));
            counts[5] += i64::from(it.due.is_some());
            counts[6] += i64::from(it.dead);
            counts[7] += i64::from(has_failed && is_over && !is_out);
        }
        for out in &self.out {
            let counts = counts.entry(run(out.fetcher, out.run)).or_default();
            counts[2] += 1;
            counts[3] += i64::from(out.leased);
            counts[4] += i64::from(out.again);
        }
        let backed_off = self.failures.values().filter(|it| it.1.is_some()).count();
        let keys = self.keys();
        let unlisted = keys.iter().filter(|key| self.is_unlisted(key)).count();
        let keys = [self.holds.len(), backed_off, self.bumps.len(), keys.len(), unlisted];
        let keys = keys.map(|count| count as i64);
        if keys != [0; 5] {
            counts.entry((0, -1)).or_default()[8..].copy_from_slice(&keys);
        }
        counts
    }

    /// Sums of attempts that ended, by hour, fetcher and outcome, of 90 days.
    pub fn hours(&self) -> BTreeMap<(i64, i64, String), [i64; 4]> {
        let mut hours = BTreeMap::<_, [i64; 4]>::new();
        for (ended, outcome, out) in self.summed.values() {
            let took = if *outcome == "undone" { 0 } else { (ended - out.started).max(0) };
            let revisit = out.last.map(|last| (out.started - last.0).max(0));
            let hour = ended.div_euclid(3_600);
            let sums = hours.entry((hour, out.fetcher, (*outcome).to_owned())).or_default();
            let more = [1, took * 1_000, i64::from(revisit.is_some()), revisit.unwrap_or(0)];
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
        hours.retain(|(hour, ..), _| *hour >= self.latest.div_euclid(3_600) - 90 * 24);
        hours
    }

    /// Jobs by minute and exit code, of an hour.
    pub fn minutes(&self) -> BTreeMap<(i64, i64), i64> {
        let first = self.latest.div_euclid(60) - 60;
        let kept = self.minutes.iter().filter(|((at, _), jobs)| *at >= first && **jobs != 0);
        kept.map(|(at, jobs)| (*at, *jobs)).collect()
    }

    /// What the log says.
    pub fn log(&self) -> &BTreeMap<String, Last> {
        &self.last
    }

    pub fn started(retries: Retries, backoff: Backoff, is_grouped: bool) -> Self {
        let (retries, backoff) = (Some(retries), Some(backoff));
        let groups = groups::Groups::new(is_grouped);
        Self { credits: [1_000; 2], retries, backoff, groups, ..Self::default() }
    }
}
