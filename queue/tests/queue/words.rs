//! Answers of the engine in words, and scripts: operations as lines, beside what they must be answered.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use shiftboss_protocol::model::{Attempt, Key, LeaseHolder, Row, Run};
use shiftboss_queue::context::Settings;
use shiftboss_queue::engine::Engine;
use shiftboss_queue::operation::{Added, Answer, Lease, Operation as Op, Reading, Rejected, Rows};
use shiftboss_queue::record::LastRun;
use shiftboss_queue::rules::bumps::Bumped;
use shiftboss_queue::rules::completion::Ack;
use shiftboss_queue::rules::retries::Retried;

use crate::subject::{self, Store};

/// What a store says, when it has said it.
pub fn ready<T>(future: impl Future<Output = T>) -> T {
    subject::wait(future)
}

/// A store on the same thread is never waited for.
#[allow(dead_code, reason = "one on a server is")]
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(it) => it,
        Poll::Pending => panic!("it waits"),
    }
}

/// An answer, as a model says it, too.
pub fn answer(answer: &Result<Answer, Rejected>) -> String {
    match answer {
        Err(_) => "rejected".into(),
        Ok(answer) => match answer {
            Answer::Done => "done".into(),
            Answer::Nothing | Answer::Later => "nothing".into(),
            Answer::Job(job) => {
                format!("job {} {} {}", job.attempt.0, job.row.key, job.row.payload)
            }
            Answer::Ack(Ack::Recorded) => "recorded".into(),
            Answer::Ack(Ack::Stale) => "stale".into(),
            Answer::Ack(Ack::Unknown) | Answer::Retried(Retried::Unknown) => "unknown".into(),
            Answer::Bumped(Bumped::Unknown) => "unknown".into(),
            Answer::Retried(Retried::Held) | Answer::Bumped(Bumped::Held) => "held".into(),
            Answer::Retried(Retried::Back(count)) => format!("back {count}"),
            Answer::Bumped(Bumped::At(_)) => "bumped".into(),
            Answer::Is(it) => it.to_string(),
            Answer::Requeued(Some(attempt)) => format!("requeued {}", attempt.0),
            Answer::Requeued(None) => "requeued none".into(),
            Answer::Expired { key, is_dead_letter, .. } => {
                format!("expired {key} {is_dead_letter}")
            }
            Answer::Held(hold) => format!("held {}", hold.is_some()),
            Answer::Forgotten(it) => format!("{it:?}"),
            Answer::Count(count) => format!("count {count}"),
            Answer::Run(_) => "run".into(),
            Answer::Added(Added::Added(number)) => format!("added {number}"),
            Answer::Added(Added::Known) => "known".into(),
            Answer::Added(Added::Full) => "full".into(),
            Answer::Cancelled(it) => format!("cancelled {} {}", it.deleted, it.in_flight),
            Answer::Due(it) => format!("due {it:?}"),
            Answer::Leases(leases) => {
                let of = |it: &Lease| {
                    let since = it.started / 1_000 - NOW;
                    format!("{} {since}+{}", it.attempt.0, it.seconds)
                };
                listed(leases.iter().map(of))
            }
        },
    }
}

/// An engine that is asked in words.
pub struct Script {
    pub engine: Option<Engine<Store>>,
    settings: Settings,
    now: i64,
}

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

    /// Carries a script out: lines of `request -> answer`. What is after `#` is for people.
    pub fn run(&mut self, script: &str) {
        for line in script.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let (request, right) = line.split_once(" -> ").unwrap_or((line, ""));
            let given = self.say(request);
            assert!(
                right.is_empty() || given == right,
                "{request}: {given}, right: {right}\n{script}"
            );
        }
    }

    pub fn say(&mut self, request: &str) -> String {
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
            // Somebody sets the clock.
            ["clock", seconds] => {
                let by = seconds.parse::<i64>().unwrap();
                self.now += by;
                self.ask(Op::FollowClock { by: by * 1_000 })
            }
            ["ran", key] => {
                let log = subject::log(self.store());
                log.get(*key).map_or("never".into(), |it| format!("{} {:?}", it.0 - NOW, it.2))
            }
            ["restart"] => {
                let engine = self.engine.take().map(Engine::into_store);
                self.engine = engine.map(|it| Engine::new(it.reopened(), self.settings.clone()));
                String::new()
            }
            ["counts"] => {
                let names = [
                    "rows",
                    "waiting",
                    "in_flight",
                    "leased",
                    "redelivered",
                    "delayed",
                    "dead",
                    "failed",
                    "held",
                    "backed_off",
                    "bumped",
                ];
                let counts = subject::counts(self.store());
                let sum = |at: usize| counts.values().map(|it| it[at]).sum::<i64>();
                let sums = names.iter().enumerate().map(|(at, name)| (name, sum(at)));
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
            ["jobs"] => {
                let jobs =
                    std::iter::from_fn(|| self.say("ready").strip_prefix("job ").map(key_of));
                jobs.collect::<Vec<_>>().join(" ")
            }
            ["list", run, rows @ ..] => {
                self.ask(Op::RegisterRun(self::run(run)));
                self.ask(rows_of(run, rows))
            }
            _ => self.ask(operation(&words)),
        }
    }

    fn ask(&mut self, operation: Op) -> String {
        let engine = self.engine.as_mut().unwrap();
        answer(&ready(engine.apply(self.now * 1_000, vec![operation])).unwrap()[0])
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

fn rows_of(run: &str, rows: &[&str]) -> Op {
    let rows = rows.iter().map(|text| row(text)).collect();
    let (skipped, complete, position, reading) = (0, true, None, Reading::Onward);
    Op::AddRows(Rows { run: self::run(run), rows, skipped, complete, position, reading })
}

fn operation(words: &[&str]) -> Op {
    let number = |text: &str| text.parse::<i64>().unwrap();
    let attempt = |text: &str| Attempt(number(text));
    let holder = || LeaseHolder { worker: "w".into(), lease_seconds: 60 };
    match words {
        ["ready"] => Op::Dispatch { holder: None, fetchers: None },
        ["lease"] => Op::Dispatch { holder: Some(holder()), fetchers: None },
        ["lease", fetchers @ ..] => Op::Dispatch {
            holder: Some(holder()),
            fetchers: Some(fetchers.iter().map(|it| (*it).into()).collect()),
        },
        ["done", it, code] => Op::CompleteAttempt { attempt: attempt(it), exit_code: number(code) },
        ["finish", it, code] => Op::Complete { key: key(it), exit_code: number(code) },
        ["release", it] => Op::Release(attempt(it)),
        ["undo", it] => Op::Undo(attempt(it)),
        ["expire", it] => Op::Expire(attempt(it)),
        ["beat", it] => Op::Heartbeat(attempt(it)),
        ["requeue", it] => Op::Requeue(key(it)),
        ["register", it] => Op::RegisterRun(run(it)),
        ["more", run, rows @ ..] => rows_of(run, rows),
        ["go", it] => Op::BeginDeletion(run(it)),
        ["delete", it] => Op::DeleteRuns { runs: vec![run(it)], limit: 1_000 },
        ["add", it] => Op::AddTask { task: row(it), id: None },
        ["add", it, id] => Op::AddTask { task: row(it), id: Some((*id).into()) },
        ["cancel", it] => Op::CancelTasks(key(it)),
        ["retry", it] => Op::Retry { key: key(it), fetcher: None },
        ["hold", it, seconds @ ..] => Op::Hold {
            key: key(it),
            seconds: seconds.first().map(|text| text.parse().unwrap()),
            reason: String::new(),
            by: "o".into(),
        },
        ["unhold", it] => Op::Unhold(key(it)),
        ["bump", it] => Op::Bump { key: key(it), by: "o".into() },
        ["forget", it] => Op::Forget(key(it)),
        ["wake"] => Op::Wake,
        ["follow"] => Op::FollowClock { by: 0 },
        ["pause"] => Op::SetPaused(true),
        ["resume"] => Op::SetPaused(false),
        ["due"] => Op::NextDue,
        ["leases"] => Op::Leases,
        ["log", it, started] => Op::EditLog {
            key: key(it),
            last: LastRun { started: number(started), finished: None, exit_code: None },
        },
        ["log", it, started, finished, code] => {
            let (finished, exit_code) = (Some(number(finished)), Some(number(code)));
            Op::EditLog {
                key: key(it),
                last: LastRun { started: number(started), finished, exit_code },
            }
        }
        ["row", it, run, value] => {
            Op::EditRow { key: key(it), run: self::run(run), is_dequeued: *value == "1" }
        }
        other => panic!("no request: {other:?}"),
    }
}
