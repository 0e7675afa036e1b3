//! Answers of the engine in words, and scripts: operations as lines, with the expected answers.

use shiftboss_protocol::model::{Attempt, Idle, Key, LeaseHolder, Row, Run};
use shiftboss_queue::context::Settings;
use shiftboss_queue::engine::Engine;
use shiftboss_queue::error::Rejected;
use shiftboss_queue::hold_rules::HoldOf;
use shiftboss_queue::operation::*;
use shiftboss_queue::record::LastRun;
use shiftboss_queue::records::{Edit, StoreResult};

use crate::subject::{self, Store};

/// The output of a store's future, which must be ready.
pub fn ready<T>(future: impl Future<Output = T>) -> T {
    subject::wait(future)
}

/// Why there is no job, but for when the next one may come.
pub fn why_idle(Idle { paused, busy, delayed, held, groups, others, due: _ }: Idle) -> String {
    let some = |word: &str, number: u32| (number > 0).then(|| format!("{word} {number}"));
    let all = [
        paused.map(|jobs| format!("paused {jobs}")),
        some("busy", busy),
        some("delayed", delayed),
        some("held", held),
        some("groups", groups),
        some("others", others),
    ];
    let all: Vec<String> = all.into_iter().flatten().collect();
    if all.is_empty() { "idle".to_owned() } else { all.join(" ") }
}

/// An answer, in the same words as the model's.
pub fn answer(outcome: &Result<Outcome, Rejected>) -> String {
    use Outcome as Out;
    let Ok(outcome) = outcome else {
        return "rejected".into();
    };
    match outcome {
        Out::Dispatch(Dispatched::Job(attempt, row, _)) => {
            format!("job {} {} {}", attempt.0, row.key, row.payload)
        }
        Out::Dispatch(_) | Out::Expire(None) => "nothing".into(),
        Out::CompleteAttempt(ack) | Out::Release(ack) | Out::Heartbeat(ack) => match ack {
            Ack::Recorded => "recorded".into(),
            Ack::Stopping => "stopping".into(),
            Ack::Stale => "stale".into(),
            Ack::Unknown => "unknown".into(),
        },
        Out::Retry(Retried::Unknown) | Out::Bump(Bumped::Unknown) => "unknown".into(),
        Out::Retry(Retried::Held) | Out::Bump(Bumped::Held) => "held".into(),
        Out::Retry(Retried::Back(count)) => format!("back {count}"),
        Out::Bump(Bumped::Behind(count)) => format!("behind {count}"),
        Out::Undo(it)
        | Out::Unhold(it)
        | Out::UnholdGroup(it)
        | Out::UnholdAll(it)
        | Out::HasWork(it)
        | Out::Prune(it) => it.to_string(),
        Out::HoldAll(HeldAll::Held { replaced, .. }) => format!("held {}", replaced.is_some()),
        Out::HoldAll(HeldAll::Full) => "full".into(),
        Out::Requeue(Requeued::Back(attempt)) => format!("requeued {}", attempt.0),
        Out::Stop(Stopped::Asked { attempt, worker }) => format!("asked {} {worker}", attempt.0),
        Out::Stop(Stopped::Classic) => "classic".into(),
        Out::Stop(Stopped::NotInFlight) => "not in flight".into(),
        Out::Stop(Stopped::Unknown) => "unknown".into(),
        Out::Requeue(Requeued::NotInFlight) => "not in flight".into(),
        Out::Requeue(Requeued::Unknown) => "unknown".into(),
        Out::Expire(Some(it)) => format!("expired {} {}", it.key, it.dead_letter),
        Out::Hold(Held::Held { replaced, .. }) => format!("held {}", replaced.is_some()),
        Out::Hold(Held::Full) | Out::Bump(Bumped::Full) => "full".into(),
        Out::Forget(it) => format!("{it:?}"),
        Out::SetPaused(count) | Out::Drain(count) | Out::CountInFlight(count) => {
            format!("count {count}")
        }
        Out::DeleteRuns(count) => format!("count {count}"),
        Out::RegisterRun(Registered::Run(_)) => "run".into(),
        Out::AddTask(Added::Added(number)) => format!("added {number}"),
        Out::AddTask(Added::Known) => "known".into(),
        Out::AddTask(Added::Full) => "full".into(),
        Out::CancelTasks(it) => format!("cancelled {} {}", it.deleted, it.in_flight),
        Out::NextHoldEnd(None) => "due never".into(),
        Out::NextOpening(None) => "opens never".into(),
        Out::NextOpening(Some(millis)) => format!("opens in {millis}"),
        Out::NextHoldEnd(Some(seconds)) => format!("due in {seconds}"),
        Out::WhyIdle(idle) => why_idle(*idle),
        Out::Leases(leases) => listed(leases.iter().map(|it| format!("{}+{}", it.0.0, it.1))),
        Out::Stops(attempts) => {
            attempts.iter().fold("to stop:".into(), |said, it| format!("{said} {}", it.0))
        }
        Out::Runs(runs) => {
            let of = |it: &StoredRun| {
                let position = it.position.map_or("none".into(), |it| it.offset.to_string());
                let stale = if it.stale { " stale" } else { "" };
                let deleting = if it.deleting { " deleting" } else { "" };
                format!("{} {position} {}{stale}{deleting}", it.run, it.rows)
            };
            listed(runs.iter().map(of))
        }
        _ => "done".into(),
    }
}

/// The results of edits.
pub fn edited(answers: &StoreResult<Vec<Result<(), Rejected>>>) -> String {
    if answers.as_ref().unwrap()[0].is_ok() { "done".into() } else { "rejected".into() }
}

/// An engine that takes requests in words.
pub struct Script {
    pub engine: Option<Engine<Store>>,
    settings: Settings,
    now: i64,
}

/// What is counted.
const COUNTED: &str =
    "rows waiting in_flight leased redelivered delayed dead failed held backed_off bumped";

/// When scripts begin.
pub const NOW: i64 = 1_700_000_000;

impl Script {
    pub fn new(settings: Settings) -> Self {
        let engine = Some(Engine::new(subject::new(), settings.clone()));
        Self { engine, settings, now: NOW }
    }

    pub fn store(&self) -> &Store {
        self.engine.as_ref().unwrap().store()
    }

    /// Carries a script out: requests, each on a line or before a `;`, as `request -> answer`. Text after `#` is a
    /// comment. `job + a p`: a job with any number.
    pub fn run(&mut self, script: &str) {
        let lines = script.lines().map(|line| line.split('#').next().unwrap_or_default());
        for step in lines.flat_map(|line| line.split(';')).map(str::trim) {
            let (request, right) = step.split_once(" -> ").unwrap_or((step, ""));
            let mut given = self.say(request);
            if right.starts_with("job + ")
                && let Some((_, job)) = given.strip_prefix("job ").and_then(|it| it.split_once(' '))
            {
                given = format!("job + {job}");
            }
            assert!(
                right.is_empty() || given == right,
                "{request}: {given}, right: {right}\n{script}"
            );
        }
    }

    /// Requests joined by `&` are one batch.
    pub fn say(&mut self, request: &str) -> String {
        if request.contains(" & ") {
            let words = |it: &str| operation(&it.split_whitespace().collect::<Vec<_>>());
            return self.ask_all(request.split(" & ").map(words).collect());
        }
        let words: Vec<&str> = request.split_whitespace().collect();
        match words.as_slice() {
            [] => String::new(),
            ["at", seconds] => {
                self.now = NOW + seconds.parse::<i64>().unwrap();
                String::new()
            }
            ["pass", seconds] => {
                self.now += seconds.parse::<i64>().unwrap();
                String::new()
            }
            // The clock is set.
            ["clock", seconds] => {
                let by = seconds.parse::<i64>().unwrap();
                self.now += by;
                self.follow(by)
            }
            ["follow"] => self.follow(0),
            ["log", it, started, rest @ ..] => {
                let finished = rest.first().map(|text| text.parse().unwrap());
                let exit_code = rest.get(1).map(|text| text.parse().unwrap());
                let last = LastRun { started: started.parse().unwrap(), finished, exit_code };
                self.edit(Edit::Log { key: key(it), last })
            }
            ["row", it, run, value] => {
                let is_dequeued = *value == "1";
                self.edit(Edit::Row { key: key(it), run: self::run(run), is_dequeued })
            }
            ["restart"] => {
                let engine = self.engine.take().map(Engine::into_store);
                self.engine = engine.map(|it| Engine::new(it.reopened(), self.settings.clone()));
                String::new()
            }
            ["jobs"] => {
                let jobs =
                    std::iter::from_fn(|| self.say("ready").strip_prefix("job ").map(key_of));
                jobs.collect::<Vec<_>>().join(" ")
            }
            ["list", run, rows @ ..] => {
                self.ask(RegisterRun(self::run(run)).into());
                self.ask(rows_of(run, rows))
            }
            words => self.look(words).unwrap_or_else(|| self.ask(operation(words))),
        }
    }

    /// The store's content, or what ended, if the words ask for that.
    fn look(&mut self, words: &[&str]) -> Option<String> {
        Some(match words {
            ["ends"] => {
                let ends = self.engine.as_mut().unwrap().take_ends();
                let of = |it: &JobEnd| {
                    let JobEnd { fetcher, outcome, took_ms, revisit_seconds, .. } = it;
                    format!("{fetcher} {} {took_ms} {revisit_seconds:?}", outcome.word())
                };
                listed(ends.iter().map(of))
            }
            ["ran", key] => {
                let log = subject::log(self.store());
                log.get(*key).map_or("never".into(), |it| format!("{} {:?}", it.0 - NOW, it.2))
            }
            ["counts"] => {
                let counts = subject::counts(self.store());
                let sum = |at: usize| counts.values().map(|it| it[at]).sum::<i64>();
                let sums = COUNTED.split(' ').enumerate().map(|(at, name)| (name, sum(at)));
                listed(sums.filter(|it| it.1 != 0).map(|(name, sum)| format!("{name} {sum}")))
            }
            ["hours"] => {
                let of = |((hour, fetcher, outcome), sums): (&(i64, i64, String), &[i64; 4])| {
                    let [jobs, took_ms, revisits, seconds] = sums;
                    let hour = hour - NOW / 3_600;
                    format!("{hour}:{fetcher}:{outcome} {jobs} {took_ms} {revisits} {seconds}")
                };
                let hours = subject::hours(self.store());
                listed(hours.iter().map(of))
            }
            ["minutes"] => {
                let minutes = subject::minutes(self.store());
                let of = |((minute, code), jobs): (&(i64, i64), &i64)| {
                    format!("{}:{code} {jobs}", minute - NOW / 60)
                };
                listed(minutes.iter().map(of))
            }
            _ => return None,
        })
    }

    /// In a batch of its own.
    pub fn ask(&mut self, operation: Operation) -> String {
        self.ask_all(vec![operation])
    }

    fn ask_all(&mut self, batch: Vec<Operation>) -> String {
        let engine = self.engine.as_mut().unwrap();
        let mut answers = ready(engine.apply(self.now * 1_000, batch.clone())).unwrap();
        // Keys get their routes first.
        let is_scoped =
            matches!(&batch[..], [Operation::Dispatch(Dispatch { fetchers: Some(_), .. })]);
        while is_scoped && answers == [Ok(Outcome::Dispatch(Dispatched::Later))] {
            answers = ready(engine.apply(self.now * 1_000, batch.clone())).unwrap();
        }
        answers.iter().map(answer).collect::<Vec<_>>().join(" & ")
    }

    fn edit(&mut self, edit: Edit) -> String {
        let engine = self.engine.as_mut().unwrap();
        edited(&ready(engine.edit(self.now * 1_000, vec![edit])))
    }

    fn follow(&mut self, by: i64) -> String {
        let engine = self.engine.as_mut().unwrap();
        ready(engine.follow_clock(self.now * 1_000, by * 1_000)).unwrap();
        String::new()
    }
}

fn listed(words: impl Iterator<Item = String>) -> String {
    let words: Vec<String> = words.collect();
    if words.is_empty() { "none".into() } else { words.join(", ") }
}

/// The key of `attempt key payload`.
fn key_of(job: &str) -> String {
    job.split(' ').nth(1).unwrap().to_owned()
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

/// `f.1`
fn run(text: &str) -> Run {
    let (fetcher, started) = text.split_once('.').unwrap();
    Run { fetcher: fetcher.into(), started: started.parse().unwrap() }
}

fn row(text: &str) -> Row {
    let (key, payload) = text.split_once('=').unwrap_or((text, "p"));
    Row { key: self::key(key), payload: payload.into() }
}

fn rows_of(run: &str, rows: &[&str]) -> Operation {
    let rows = rows.iter().map(|text| row(text)).collect();
    AddRows(RowBatch::of(self::run(run), rows)).into()
}

pub fn dispatch(holder: Option<LeaseHolder>) -> Operation {
    Dispatch { holder, fetchers: None }.into()
}

pub fn holder() -> LeaseHolder {
    LeaseHolder { worker: "w".into(), lease_seconds: 60 }
}

fn hold_of(kind: &str, it: &str) -> HoldOf {
    if kind == "prefix" { HoldOf::Prefix(it.into()) } else { HoldOf::Fetcher(it.into()) }
}

fn operation(words: &[&str]) -> Operation {
    let number = |text: &str| text.parse::<i64>().unwrap();
    let attempt = |text: &str| Attempt(number(text));
    let by: std::sync::Arc<str> = "o".into();
    match words {
        ["ready"] => dispatch(None),
        ["lease"] => dispatch(Some(holder())),
        ["lease", fetchers @ ..] => {
            let fetchers = Some(fetchers.iter().map(|it| (*it).into()).collect());
            Dispatch { holder: Some(holder()), fetchers }.into()
        }
        ["done", it, code] => {
            CompleteAttempt { attempt: attempt(it), exit_code: number(code) }.into()
        }
        ["finish", it, code] => Complete { key: key(it), exit_code: number(code) }.into(),
        ["release", it] => Release(attempt(it)).into(),
        ["undo", key, it] => Undo { key: self::key(key), attempt: attempt(it) }.into(),
        ["expire", it] => Expire(attempt(it)).into(),
        ["beat", it] => Heartbeat(attempt(it)).into(),
        ["requeue", it] => Requeue(key(it)).into(),
        ["register", it] => RegisterRun(run(it)).into(),
        ["more", run, rows @ ..] => rows_of(run, rows),
        ["go", it] => BeginDeletion(run(it)).into(),
        ["delete", it] => DeleteRuns { runs: vec![run(it)], limit: 1_000 }.into(),
        ["prune", it] => Prune { run: run(it), limit: 1_000 }.into(),
        ["add", it, id @ ..] => {
            AddTask { task: row(it), id: id.first().map(|id| (*id).into()) }.into()
        }
        ["cancel", it] => CancelTasks(key(it)).into(),
        ["retry", it] => Retry { key: key(it), fetcher: None }.into(),
        ["hold", it, seconds @ ..] => {
            let seconds = seconds.first().map(|text| text.parse().unwrap());
            Hold { key: key(it), seconds, reason: String::new(), by }.into()
        }
        ["stop", it] => Stop(key(it)).into(),
        ["stops"] => Stops.into(),
        ["unhold", it] => Unhold(key(it)).into(),
        ["hold-all", kind, it, seconds @ ..] => {
            let seconds = seconds.first().map(|text| text.parse().unwrap());
            HoldAll { of: hold_of(kind, it), seconds, reason: String::new(), by }.into()
        }
        ["unhold-all", kind, it] => UnholdAll(hold_of(kind, it)).into(),
        ["bump", it] => Bump { key: key(it), by }.into(),
        ["forget", it] => Forget(key(it)).into(),
        ["wake"] => EndHolds.into(),
        ["pause"] => SetPaused(true).into(),
        ["resume"] => SetPaused(false).into(),
        ["due"] => NextHoldEnd.into(),
        ["opens"] => NextOpening.into(),
        ["leases"] => Leases.into(),
        ["runs"] => Runs.into(),
        ["idle", of @ ..] => {
            let of = of.iter().map(|it| (*it).into()).collect::<Vec<_>>();
            WhyIdle((!of.is_empty()).then_some(of)).into()
        }
        ["out"] => CountInFlight.into(),
        ["work"] => HasWork.into(),
        ["probe"] => Probe.into(),
        other => panic!("no request: {other:?}"),
    }
}
