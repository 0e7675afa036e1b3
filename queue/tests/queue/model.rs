//! The specification's order and statuses, as naively as they can be written: plain lists, searched from end to end. It shares no
//! code with the rules.

use std::collections::BTreeMap;

use shiftboss_protocol::model::jitter;
use shiftboss_queue::operation::*;
use shiftboss_queue::policy::{Backoff, Retries};
use shiftboss_queue::record::LastRun;

/// Settings of every history.
pub const MAX_EXPIRED: u32 = 2;
pub const MAX_SINGLES: usize = 6;
pub const SHARE: i64 = 300;
/// In microseconds: what waits since so much later than now was told so by a clock that was ahead.
const AHEAD: i64 = 60_000_000;

type Last = (i64, Option<i64>, Option<i64>);
/// When, and how long it was to take.
type Due = (i64, i64);

/// A row of a list (run > 0), or a single task (fetcher 0, its number for a run).
#[derive(Debug, Clone, PartialEq)]
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
    /// Which rows waited before, and all else that a hand-out changes.
    waited: Vec<i64>,
    last: Option<Last>,
    turn: Option<i64>,
    bump: Option<i64>,
    ahead: Option<i64>,
}

impl Out {
    fn is_of(&self, task: &Task) -> bool {
        (self.fetcher, self.run, &self.key) == (task.fetcher, task.run, &task.key)
    }
}

#[derive(Debug, Clone, Default)]
pub struct Model {
    pub now: i64,
    /// What is too old is so by the latest time that was ever seen.
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
    /// Of attempts: how they ended, and the key's and task's of those that expired.
    ends: BTreeMap<i64, (&'static str, Out)>,
    /// Of attempts: when they ended and how, as it is summed up.
    summed: BTreeMap<i64, (i64, &'static str, Out)>,
    minutes: BTreeMap<(i64, i64), i64>,
    holds: BTreeMap<String, Option<Due>>,
    failures: BTreeMap<String, (u32, Option<Due>)>,
    /// Where keys stand whose last start lay in the future when they were seen first.
    ahead: BTreeMap<String, i64>,
    bumps: BTreeMap<String, i64>,
    /// The lane's, of each daemon.
    credits: [i64; 2],
    /// The daemon that is asked.
    pub daemon: usize,
    attempts: i64,
    lanes: i64,
    numbers: i64,
    last_since: i64,
    paused: bool,
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
        let mut tasks: Vec<&Task> = of_key.filter(|it| !self.is_going(it)).collect();
        // Of single tasks the first one alone.
        let first = tasks.iter().filter(|it| it.fetcher == 0).map(|it| it.run).min();
        tasks.retain(|it| it.fetcher != 0 || Some(it.run) == first);
        tasks
    }

    fn is_held(&self, key: &str) -> bool {
        self.holds.contains_key(key) || self.failures.get(key).is_some_and(|it| it.1.is_some())
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

    /// What goes before the order: bumped keys, then those of tasks that are tried again.
    fn lane(&self) -> Option<String> {
        let order = self.order();
        let bumped = self.bumps.iter().map(|(key, at)| (0, *at, key));
        let retried = self.tasks.iter().filter_map(|it| {
            let waits = it.waits && (it.fetcher == 0 || self.is_newest(it));
            Some((1, it.lane.filter(|_| waits)?, &it.key))
        });
        let lane = bumped.chain(retried).filter(|(_, _, key)| order.contains(key));
        lane.min().map(|(_, _, key)| key.clone())
    }

    fn dispatch(&mut self, leased: bool) -> String {
        if self.paused {
            return "nothing".into();
        }
        let lane = self.lane().filter(|_| self.credits[self.daemon] >= 1_000);
        let is_lane = lane.is_some();
        let Some(key) = lane.or_else(|| self.order().first().cloned()) else {
            return "nothing".into();
        };
        let turn = |it: &&Task| {
            (self.turns.get(&(it.key.clone(), it.fetcher)).copied().unwrap_or(0), it.fetcher)
        };
        let Task { fetcher, run, payload, expired, .. } =
            self.candidates(&key).into_iter().min_by_key(turn).unwrap().clone();
        self.attempts += 1;
        let credit = &mut self.credits[self.daemon];
        *credit = (*credit + SHARE - if is_lane { 1_000 } else { 0 }).min(1_000 + SHARE);
        let is_served =
            |it: &Task| it.key == key && it.fetcher == fetcher && (fetcher > 0 || it.run == run);
        let waited = self.tasks.iter().filter(|it| is_served(it) && it.waits).map(|it| it.run);
        self.out.push(Out {
            attempt: self.attempts,
            key: key.clone(),
            fetcher,
            run,
            started: self.now,
            leased,
            again: expired > 0,
            waited: waited.collect(),
            last: self.last.get(&key).copied(),
            turn: self.turns.insert((key.clone(), fetcher), self.attempts),
            bump: self.bumps.remove(&key),
            ahead: self.ahead.remove(&key),
        });
        self.tasks.iter_mut().filter(|it| is_served(it)).for_each(|it| it.waits = false);
        self.last.insert(key.clone(), (self.now, None, None));
        format!("job {} {key} {payload}", self.attempts)
    }

    fn take(&mut self, is_meant: impl Fn(&Out) -> bool) -> Option<Out> {
        let at = self.out.iter().position(is_meant)?;
        Some(self.out.remove(at))
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

    fn sum_up(&mut self, out: &Out, outcome: &'static str) {
        self.summed.insert(out.attempt, (self.now, outcome, out.clone()));
    }

    fn end(&mut self, out: Out, code: i64) {
        self.sum_up(
            &out,
            match code {
                0 => "success",
                124 => "timeout",
                _ => "failure",
            },
        );
        *self.minutes.entry((self.now.div_euclid(60), code)).or_default() += 1;
        self.last.insert(out.key.clone(), (out.started, Some(self.now), Some(code)));
        let task = self
            .tasks
            .iter()
            .position(|it| (it.fetcher, it.run, &it.key) == (out.fetcher, out.run, &out.key));
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

    /// What is left of a key that nothing lists any more.
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

    /// Carries an operation out, and says what it is answered.
    pub fn perform(&mut self, op: &Operation) -> String {
        let answer = self.on_attempt(op).unwrap_or_else(|| self.on_key(op));
        self.tidy();
        self.look();
        answer
    }

    fn on_attempt(&mut self, op: &Operation) -> Option<String> {
        use Operation as Op;
        Some(match op {
            Op::Dispatch(it) => self.dispatch(it.holder.is_some()),
            Op::Complete(Complete { key, exit_code }) => {
                match self.take(|out| out.key == key.as_str()) {
                    Some(out) => self.end(out, *exit_code),
                    None => {
                        if let Some(late) = self.classic_late(key.as_str()) {
                            self.end_late(late, *exit_code);
                        } else if let Some(last) = self.last.get_mut(key.as_str()) {
                            let minutes = &mut self.minutes;
                            if let (_, Some(finished), code) = *last {
                                let minute = (finished.div_euclid(60), code.unwrap());
                                *minutes.entry(minute).or_default() -= 1;
                            }
                            let minute = (self.now.div_euclid(60), *exit_code);
                            *minutes.entry(minute).or_default() += 1;
                            (last.1, last.2) = (Some(self.now), Some(*exit_code));
                        }
                    }
                }
                "done".into()
            }
            Op::CompleteAttempt(CompleteAttempt { attempt, exit_code }) => {
                if let Some(out) = self.take(|out| out.attempt == attempt.0) {
                    self.end(out, *exit_code);
                    return Some("recorded".into());
                }
                match self.ends.get(&attempt.0).cloned() {
                    None => "unknown".into(),
                    Some(("done", _)) => "recorded".into(),
                    Some(("expired", out)) if self.counts_late(&out) => {
                        self.end_late(out, *exit_code);
                        "recorded".into()
                    }
                    Some(_) => "stale".into(),
                }
            }
            Op::Release(Release(attempt)) => match self.take(|out| out.attempt == attempt.0) {
                Some(out) => {
                    self.restore(&out);
                    self.sum_up(&out, "released");
                    self.ends.insert(out.attempt, ("released", out));
                    "recorded".into()
                }
                None => match self.ends.get(&attempt.0) {
                    None => "unknown".into(),
                    Some(("released", _)) => "recorded".into(),
                    Some(_) => "stale".into(),
                },
            },
            Op::Undo(Undo { key, attempt }) => {
                match self.take(|out| out.attempt == attempt.0 && out.key == key.as_str()) {
                    Some(out) => {
                        self.restore(&out);
                        self.sum_up(&out, "undone");
                        self.ends.insert(out.attempt, ("undone", out));
                        "true".into()
                    }
                    None => "false".into(),
                }
            }
            Op::Requeue(Requeue(key)) => match self.take(|out| out.key == key.as_str()) {
                Some(out) => {
                    self.restore(&out);
                    let attempt = out.attempt;
                    self.sum_up(&out, "released");
                    self.ends.insert(attempt, ("released", out));
                    format!("requeued {attempt}")
                }
                None if self.is_listed(key.as_str()) => "not in flight".into(),
                None => "unknown".into(),
            },
            Op::Expire(Expire(attempt)) => match self.take(|out| out.attempt == attempt.0) {
                Some(out) => self.expire(out),
                None => "nothing".into(),
            },
            _ => return None,
        })
    }

    fn end_late(&mut self, out: Out, exit_code: i64) {
        self.ahead.remove(&out.key);
        self.turns.insert((out.key.clone(), out.fetcher), out.attempt);
        // Those of older runs were out with it.
        let is_its = |it: &Task| it.run == out.run || it.fetcher != 0 && it.run < out.run;
        for it in &mut self.tasks {
            it.waits &= it.key != out.key || it.fetcher != out.fetcher || !is_its(it);
        }
        self.end(out, exit_code);
    }

    /// The last attempt of a key, if it was a classic worker's and its result still counts.
    fn classic_late(&self, key: &str) -> Option<Out> {
        let mut ends = self.ends.values().rev();
        let (how, out) = ends.find(|(how, it)| it.key == key && *how != "undone")?;
        let is_late = *how == "expired" && !out.leased && self.counts_late(out);
        is_late.then(|| out.clone())
    }

    /// Its key was not handed out since, but for hand-outs that never arrived, and its task waits.
    fn counts_late(&self, out: &Out) -> bool {
        let since = self.ends.iter().any(|(attempt, (how, it))| {
            it.key == out.key && *attempt > out.attempt && *how != "undone"
        });
        !since && !self.out.iter().any(|it| it.key == out.key)
    }

    fn expire(&mut self, out: Out) -> String {
        let (last, turn) = (self.last.get(&out.key).copied(), out.attempt);
        self.restore(&out);
        if !out.leased {
            self.last.insert(out.key.clone(), last.unwrap());
            self.ahead.remove(&out.key);
            self.turns.insert((out.key.clone(), out.fetcher), turn);
        }
        let mut is_dead = false;
        let is_its = |it: &Task| (it.fetcher, it.run, &it.key) == (out.fetcher, out.run, &out.key);
        if let Some(at) = self.tasks.iter().position(is_its) {
            let it = &mut self.tasks[at];
            it.expired += 1;
            is_dead = it.expired >= MAX_EXPIRED;
            if is_dead {
                (it.waits, it.dead) = (false, true);
                (it.retried, it.due, it.lane) = (0, None, None);
            }
        }
        let answer = format!("expired {} {is_dead}", out.key);
        self.sum_up(&out, "expired");
        self.ends.insert(out.attempt, ("expired", out));
        answer
    }

    fn on_key(&mut self, op: &Operation) -> String {
        use Operation as Op;
        match op {
            Op::RegisterRun(RegisterRun(run)) => {
                let fetcher = self.fetcher(&run.fetcher).unwrap_or_else(|| {
                    self.fetchers.push(run.fetcher.to_string());
                    self.fetchers.len() as i64
                });
                let new = (self.now * 1_000_000, false);
                let (_, is_going) = *self.runs.entry((fetcher, run.started)).or_insert(new);
                if is_going { "rejected".into() } else { "run".into() }
            }
            Op::AddRows(AddRows(rows)) => {
                let run = self.fetcher(&rows.run.fetcher).map(|id| (id, rows.run.started));
                let Some((run, (since, false))) =
                    run.and_then(|run| Some((run, *self.runs.get(&run)?)))
                else {
                    return "rejected".into();
                };
                let now = self.now * 1_000_000;
                let since = if now - since < 600_000_000 { since } else { now - now % 600_000_000 };
                for row in &rows.rows {
                    self.add(run, row.key.as_str(), &row.payload, since);
                }
                "done".into()
            }
            Op::DeleteRuns(DeleteRuns { runs, .. }) => {
                for run in runs {
                    if let Some(fetcher) = self.fetcher(&run.fetcher) {
                        self.runs.remove(&(fetcher, run.started));
                        self.tasks.retain(|it| (it.fetcher, it.run) != (fetcher, run.started));
                    }
                }
                format!("count {}", runs.len())
            }
            Op::BeginDeletion(BeginDeletion(run)) => {
                if let Some(run) = self.fetcher(&run.fetcher).map(|id| (id, run.started))
                    && let Some(run) = self.runs.get_mut(&run)
                {
                    run.1 = true;
                }
                "done".into()
            }
            Op::AddTask(AddTask { task, .. }) => self.add_task(task.key.as_str(), &task.payload),
            Op::CancelTasks(CancelTasks(key)) => {
                let out = self.out.iter().find(|out| out.key == key.as_str() && out.fetcher == 0);
                let out = out.map(|out| out.run);
                let before = self.tasks.len();
                self.tasks
                    .retain(|it| it.fetcher != 0 || it.key != key.as_str() || Some(it.run) == out);
                format!("cancelled {} {}", before - self.tasks.len(), out.is_some())
            }
            Op::Retry(Retry { key, fetcher }) => {
                let fetcher = fetcher.as_ref().map(|name| self.fetcher(name).unwrap_or(-1));
                match key.as_str() {
                    key if !self.is_listed(key) => "unknown".into(),
                    key if self.is_held(key) => "held".into(),
                    key => format!("back {}", self.arm(key, fetcher)),
                }
            }
            Op::Hold(Hold { key, seconds, .. }) => {
                let delay = seconds.map(i64::from);
                let until = delay.map(|delay| (self.now + delay, delay));
                format!("held {}", self.holds.insert(key.to_string(), until).is_some())
            }
            Op::Unhold(Unhold(key)) => {
                let backed_off = self.failures.get_mut(key.as_str()).and_then(|it| it.1.take());
                (self.holds.remove(key.as_str()).is_some() | backed_off.is_some()).to_string()
            }
            Op::Bump(Bump { key, .. }) => match key.as_str() {
                key if !self.is_listed(key) => "unknown".into(),
                key if self.is_held(key) => "held".into(),
                key => {
                    self.arm(key, None);
                    let Some(at) = self.bumps.get(key).copied() else {
                        self.lanes += 1;
                        self.bumps.insert(key.to_owned(), self.lanes);
                        return format!("behind {}", self.bumps.len() - 1);
                    };
                    // Those that may go.
                    let order = self.order();
                    let before = self.bumps.iter().filter(|it| *it.1 < at && order.contains(it.0));
                    format!("behind {}", before.count())
                }
            },
            Op::EndHolds(_) => {
                self.wake();
                "done".into()
            }
            Op::SetPaused(SetPaused(paused)) => {
                self.paused = *paused;
                format!("count {}", self.out.len())
            }
            Op::CountInFlight(_) => format!("count {}", self.out.len()),
            Op::WhyIdle(_) if self.paused => {
                let waits = self.tasks.iter().filter(|it| it.waits && self.is_newest(it));
                format!("paused {}", waits.filter(|it| !self.is_going(it)).count())
            }
            Op::WhyIdle(_) if self.out.is_empty() => "idle".into(),
            Op::WhyIdle(_) => format!("busy {}", self.out.len()),
            Op::HasWork(_) => (!self.paused && !self.order().is_empty()).to_string(),
            other => panic!("the model knows nothing of {other:?}"),
        }
    }

    /// The clock was set by so many seconds.
    pub fn follow_clock(&mut self, by: i64) {
        let holds = self.holds.values_mut().flatten();
        let failures = self.failures.values_mut().filter_map(|it| it.1.as_mut());
        let tasks = self.tasks.iter_mut().filter_map(|it| it.due.as_mut());
        for (at, delay) in holds.chain(failures).chain(tasks) {
            *at = (*at + by).min(self.now + *delay);
        }
        self.look();
    }

    /// Somebody wrote into the log.
    pub fn edit_log(&mut self, key: &str, last: LastRun) -> String {
        let now = (last.started, last.finished, last.exit_code);
        if let (Some(before), Some(finished)) = (self.last.get(key), last.finished) {
            if let (_, Some(finished), code) = *before {
                let minute = (finished.div_euclid(60), code.unwrap());
                *self.minutes.entry(minute).or_default() -= 1;
            }
            let minute = (finished.div_euclid(60), last.exit_code.unwrap());
            *self.minutes.entry(minute).or_default() += 1;
        }
        if let Some(out) = self.take(|out| out.key == key) {
            let (attempt, minute) = (out.attempt, self.now.div_euclid(60));
            self.end(out, last.exit_code.unwrap());
            // No attempt of ours ended.
            *self.minutes.get_mut(&(minute, last.exit_code.unwrap())).unwrap() -= 1;
            self.summed.remove(&attempt);
        }
        self.ahead.remove(key);
        self.last.insert(key.to_owned(), now);
        self.tidy();
        self.look();
        "done".into()
    }

    fn add(&mut self, (fetcher, run): (i64, i64), key: &str, payload: &str, since: i64) {
        let known = |it: &&mut Task| (it.fetcher, it.run, &*it.key) == (fetcher, run, key);
        if let Some(it) = self.tasks.iter_mut().find(known) {
            it.payload = payload.to_owned();
            return;
        }
        self.since.entry(key.to_owned()).or_insert(since);
        // Of a line that went and comes again nothing is known, though a job of it is out.
        let is_of_it = |it: &&mut Out| (it.fetcher, it.run, &*it.key) == (fetcher, run, key);
        self.out.iter_mut().filter(is_of_it).for_each(|it| it.again = false);
        let (key, payload) = (key.to_owned(), payload.to_owned());
        let (waits, expired, retried, due, lane, dead) = (true, 0, 0, None, None, false);
        self.tasks.push(Task {
            fetcher,
            run,
            key,
            payload,
            waits,
            expired,
            retried,
            due,
            lane,
            dead,
        });
    }

    fn add_task(&mut self, key: &str, payload: &str) -> String {
        let singles = || self.tasks.iter().filter(|it| it.fetcher == 0);
        if singles().any(|it| it.key == key && it.payload == payload && it.waits) {
            return "known".into();
        }
        if singles().count() >= MAX_SINGLES {
            return "full".into();
        }
        self.numbers += 1;
        let (now, last) = (self.now * 1_000_000, self.last_since);
        self.last_since = if last > now + AHEAD { now } else { now.max(last + 1) };
        self.add((0, self.numbers), key, payload, self.last_since);
        format!("added {}", self.numbers)
    }

    fn wake(&mut self) {
        let now = self.now;
        let holds =
            self.holds.iter().filter_map(|(key, until)| Some((key.clone(), until.as_ref()?.0)));
        let backoffs = self.failures.iter().filter_map(|(key, it)| Some((key.clone(), it.1?.0)));
        let mut over = BTreeMap::<String, i64>::new();
        for (key, until) in holds.chain(backoffs) {
            let first = over.entry(key).or_insert(until);
            *first = until.min(*first);
        }
        self.holds.retain(|_, until| until.is_none_or(|until| until.0 > now));
        for (_, until) in self.failures.values_mut() {
            *until = until.filter(|until| until.0 > now);
        }
        let mut due: Vec<usize> = (0..self.tasks.len())
            .filter(|at| self.tasks[*at].due.is_some_and(|due| due.0 <= now))
            .collect();
        // One key after the other, by when the first thing of it is due.
        due.sort_by_key(|at| {
            let it = &self.tasks[*at];
            let of_key = self.tasks.iter().filter(|other| other.key == it.key);
            let first = of_key
                .filter_map(|other| Some(other.due?.0))
                .chain(over.get(&it.key).copied())
                .min();
            (first, jitter(&it.key), it.due.map(|due| due.0), it.fetcher == 0, it.fetcher, it.run)
        });
        for at in due {
            self.lanes += 1;
            let lane = self.lanes;
            let it = &mut self.tasks[at];
            (it.waits, it.due, it.lane) = (true, None, Some(lane));
        }
    }

    /// What is counted, by fetcher and run: rows, those that wait, jobs that are out, leased ones, those that are out again,
    /// delayed tasks, dead letters, failed single tasks; and of keys, as run -1 of none: held, backed off, bumped.
    pub fn counts(&self) -> BTreeMap<(i64, i64), [i64; 11]> {
        let mut counts = BTreeMap::<_, [i64; 11]>::new();
        let run = |fetcher, run| (fetcher, if fetcher == 0 { 0 } else { run });
        for it in &self.tasks {
            let counts = counts.entry(run(it.fetcher, it.run)).or_default();
            let is_out = self.out.iter().any(|out| out.key == it.key && out.is_of(it));
            let has_failed = it.fetcher == 0 && !it.waits && !it.dead && it.due.is_none();
            counts[0] += 1;
            counts[1] += i64::from(it.waits && self.is_newest(it));
            counts[5] += i64::from(it.due.is_some());
            counts[6] += i64::from(it.dead);
            counts[7] += i64::from(has_failed && !is_out);
        }
        for out in &self.out {
            let counts = counts.entry(run(out.fetcher, out.run)).or_default();
            counts[2] += 1;
            counts[3] += i64::from(out.leased);
            counts[4] += i64::from(out.again);
        }
        let backed_off = self.failures.values().filter(|it| it.1.is_some()).count();
        let keys = [self.holds.len(), backed_off, self.bumps.len()].map(|count| count as i64);
        if keys != [0; 3] {
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

    pub fn started(retries: Retries, backoff: Backoff) -> Self {
        let (retries, backoff) = (Some(retries), Some(backoff));
        Self { credits: [1_000; 2], retries, backoff, ..Self::default() }
    }
}
