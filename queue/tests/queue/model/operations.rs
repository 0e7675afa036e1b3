//! What each operation does to the model, and its answer.

use std::collections::{BTreeMap, BTreeSet};

use shiftboss_protocol::model::{Idle, jitter};
use shiftboss_queue::operation::*;
use shiftboss_queue::record::LastRun;

use crate::words::why_idle;

use super::{AHEAD, MAX_EXPIRED, MAX_SINGLES, Model, Out, Task};

impl Model {
    /// Carries an operation out, and returns its answer.
    pub fn perform(&mut self, op: &Operation) -> String {
        let answer = self.on_attempt(op).or_else(|| self.on_list(op));
        let answer = answer.unwrap_or_else(|| self.on_key(op));
        self.tidy();
        self.look();
        self.forget_groups();
        answer
    }

    fn on_attempt(&mut self, op: &Operation) -> Option<String> {
        use Operation as Op;
        Some(match op {
            Op::Dispatch(it) => {
                let of = |names: &Vec<std::sync::Arc<str>>| -> Vec<i64> {
                    names.iter().filter_map(|name| self.fetcher(name)).collect()
                };
                let of = it.fetchers.as_ref().map(of);
                self.dispatch(it.holder.is_some(), of.as_deref())
            }
            Op::Complete(Complete { key, exit_code }) => {
                self.complete(key.as_str(), *exit_code);
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
                    match out.stopping {
                        true => self.cancel(out),
                        false => _ = self.take_back(out, "released"),
                    }
                    "recorded".into()
                }
                None => match self.ends.get(&attempt.0) {
                    None => "unknown".into(),
                    Some(("released" | "cancelled", _)) => "recorded".into(),
                    Some(_) => "stale".into(),
                },
            },
            Op::Undo(Undo { key, attempt }) => {
                let out = self.take(|out| out.attempt == attempt.0 && out.key == key.as_str());
                out.map(|out| self.take_back(out, "undone")).is_some().to_string()
            }
            Op::Requeue(Requeue(key)) => match self.take(|out| out.key == key.as_str()) {
                Some(out) => format!("requeued {}", self.take_back(out, "released")),
                None if self.is_listed(key.as_str()) => "not in flight".into(),
                None => "unknown".into(),
            },
            Op::Stop(Stop(key)) => match self.out.iter().position(|out| out.key == key.as_str()) {
                Some(at) if self.out[at].leased => {
                    self.out[at].stopping = true;
                    format!("asked {} w", self.out[at].attempt)
                }
                Some(_) => "classic".into(),
                None if self.is_listed(key.as_str()) => "not in flight".into(),
                None => "unknown".into(),
            },
            Op::Stops(_) => {
                let stops = self.out.iter().filter(|out| out.stopping).map(|out| out.attempt);
                let stops = stops.collect::<BTreeSet<_>>().into_iter();
                stops.fold("to stop:".into(), |said, it| format!("{said} {it}"))
            }
            Op::Expire(Expire(attempt)) => match self.take(|out| out.attempt == attempt.0) {
                Some(out) if out.stopping => {
                    let answer = format!("expired {} false", out.key);
                    self.cancel(out);
                    answer
                }
                Some(out) => self.expire(out),
                None => "nothing".into(),
            },
            _ => return None,
        })
    }

    /// As if it had not been handed out; its number.
    fn take_back(&mut self, out: Out, how: &'static str) -> i64 {
        let attempt = out.attempt;
        self.restore(&out);
        self.sum_up(&out, how);
        self.ends.insert(attempt, (how, out));
        attempt
    }

    /// A classic worker's report of an end: of the job that is out, or late, or a correction of an earlier end.
    fn complete(&mut self, key: &str, code: i64) {
        if let Some(out) = self.take(|out| out.key == key) {
            self.end(out, code);
        } else if let Some(late) = self.classic_late(key) {
            self.end_late(late, code);
        } else if self.last.contains_key(key) {
            self.count_anew(key, self.now, code);
            self.correct(key, code);
            let last = self.last.get_mut(key).unwrap();
            (last.1, last.2) = (Some(self.now), Some(code));
        }
    }

    /// The end of a key's last run is counted with this code instead.
    fn count_anew(&mut self, key: &str, finished: i64, code: i64) {
        if let Some((_, Some(before), was)) = self.last.get(key) {
            *self.minutes.entry((before.div_euclid(60), was.unwrap())).or_default() -= 1;
        }
        *self.minutes.entry((finished.div_euclid(60), code)).or_default() += 1;
    }

    /// The end of a key's last attempt is corrected: if its fetcher was not served since, its row ended so.
    fn correct(&mut self, key: &str, code: i64) {
        let mut ends = self.ends.iter().rev();
        let last = ends.find(|(_, (how, it))| it.key == key && *how != "undone");
        let Some((attempt, fetcher)) = last.map(|it| (*it.0, it.1.1.fetcher)) else { return };
        if self.turns.get(&(key.to_owned(), fetcher)) == Some(&attempt) {
            self.ended(key, fetcher, code);
        }
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

    /// Its key was not handed out since, except for hand-outs that never arrived, and its task waits.
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
            self.ended(&out.key, out.fetcher, 0);
        }
        let mut is_dead = false;
        if let Some(at) = self.tasks.iter().position(|it| out.is_of(it)) {
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

    fn on_list(&mut self, op: &Operation) -> Option<String> {
        use Operation as Op;
        Some(match op {
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
                    return Some("rejected".into());
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
            _ => return None,
        })
    }

    fn on_key(&mut self, op: &Operation) -> String {
        use Operation as Op;
        match op {
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
            Op::HoldAll(HoldAll { of, seconds, .. }) => {
                let delay = seconds.map(i64::from);
                let until = delay.map(|delay| (self.now + delay, delay));
                format!("held {}", self.rules.insert(of.clone(), until).is_some())
            }
            Op::UnholdAll(UnholdAll(of)) => self.rules.remove(of).is_some().to_string(),
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
                    // Keys that may go, whatever happens to groups.
                    let mut order = self.order();
                    let is_free = |it: &Task| self.group_of(it).is_none();
                    order.retain(|key| self.next(key, None).is_some_and(is_free));
                    let before = self.bumps.iter().filter(|it| *it.1 < at && order.contains(it.0));
                    format!("behind {}", before.count())
                }
            },
            Op::EndHolds(_) => {
                self.wake();
                self.see_groups();
                self.forget_old();
                "done".into()
            }
            Op::SetPaused(SetPaused(paused)) => {
                self.paused = *paused;
                format!("count {}", self.out.len())
            }
            Op::CountInFlight(_) => format!("count {}", self.out.len()),
            Op::WhyIdle(_) => {
                let waits = self.tasks.iter().filter(|it| it.waits && self.is_newest(it));
                let waits = waits.filter(|it| !self.is_going(it)).count();
                let backed_off = self.failures.values().filter(|it| it.1.is_some()).count();
                let delayed = self.tasks.iter().filter(|it| it.due.is_some()).count();
                why_idle(Idle {
                    paused: self.paused.then_some(waits as u32),
                    busy: self.out.len() as u32,
                    delayed: delayed as u32,
                    held: (self.holds.len() + backed_off) as u32,
                    groups: self.closed_groups(),
                    others: 0,
                    due: None,
                })
            }
            Op::HasWork(_) if self.paused => "false".into(),
            Op::HasWork(_) => {
                self.see_groups();
                (!self.that_may_go(None).is_empty()).to_string()
            }
            other => panic!("the model knows nothing of {other:?}"),
        }
    }

    /// The clock was set by `by` seconds.
    pub fn follow_clock(&mut self, by: i64) {
        self.groups.clock += by;
        let holds = self.holds.values_mut().flatten();
        let failures = self.failures.values_mut().filter_map(|it| it.1.as_mut());
        let tasks = self.tasks.iter_mut().filter_map(|it| it.due.as_mut());
        let rules = self.rules.values_mut().flatten();
        for (at, delay) in holds.chain(rules).chain(failures).chain(tasks) {
            *at = (*at + by).min(self.now + *delay);
        }
        self.look();
    }

    /// The log was edited.
    pub fn edit_log(&mut self, key: &str, last: LastRun) -> String {
        let now = (last.started, last.finished, last.exit_code);
        if let Some(finished) = last.finished.filter(|_| self.last.contains_key(key)) {
            self.count_anew(key, finished, last.exit_code.unwrap());
        }
        if let Some(out) = self.take(|out| out.key == key) {
            let (attempt, minute) = (out.attempt, self.now.div_euclid(60));
            self.end(out, last.exit_code.unwrap());
            // No attempt of ours ended.
            *self.minutes.get_mut(&(minute, last.exit_code.unwrap())).unwrap() -= 1;
            self.summed.remove(&attempt);
        }
        if let Some(code) = last.exit_code {
            self.correct(key, code);
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
        // Nothing is known of a line that was removed and comes again, even if a job of it is out.
        let is_of_it = |it: &&mut Out| (it.fetcher, it.run, &*it.key) == (fetcher, run, key);
        self.out.iter_mut().filter(is_of_it).for_each(|it| it.again = false);
        let (key, payload) = (key.to_owned(), payload.to_owned());
        self.tasks.push(Task { fetcher, run, key, payload, waits: true, ..Task::default() });
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
        self.added_single(key, payload);
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
        self.rules.retain(|_, until| until.is_none_or(|until| until.0 > now));
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
}
