//! A reader's answers after random histories: the next jobs are those that are handed out then, and each listing has as
//! many tasks as are counted.

use proptest::prelude::*;
use shiftboss_protocol::answers::{KeyRow, QueueStatus, RowState, TaskStatus};
use shiftboss_protocol::model::Key;
use shiftboss_queue::context::Settings;
use shiftboss_queue::engine::Engine;
use shiftboss_queue::groups::GroupRules;
use shiftboss_queue::operation::*;
use shiftboss_queue::reader::{EndedAttempts, Grouping, Reader, StatsOf, TasksWith};
use shiftboss_queue::records::{Edit, Records};

use crate::histories::{Step, history, settings};
use crate::questions::started;
use crate::subject::{self, Store};
use crate::words::{dispatch, ready};

const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];
const ALL: usize = 1_000;
const DAY: i64 = 86_400;

fn tasks(reader: &dyn Reader, now: i64, status: TaskStatus, fetcher: Option<&str>) -> i64 {
    let fetcher = fetcher.map(str::to_owned);
    let asked = TasksWith { status: Some(status), fetcher, group: None, since: None, count: ALL };
    reader.tasks(now, &asked).unwrap().tasks.len() as i64
}

/// By what is said of each key.
fn failed_rows(reader: &dyn Reader, now: i64) -> i64 {
    let has_failed = |row: &KeyRow| row.state == RowState::Failed;
    let of = |key| reader.why(now, key, 0).unwrap().map_or(Vec::new(), |why| why.rows);
    KEYS.iter().flat_map(|key| of(key)).filter(has_failed).count() as i64
}

/// Each listing has as many as are counted.
fn counts_are_right(reader: &dyn Reader, now: i64, is_fair: bool) -> Result<(), TestCaseError> {
    let status: QueueStatus = reader.status(now).unwrap();
    let of = |status| tasks(reader, now, status, None);
    prop_assert_eq!(of(TaskStatus::Waiting), status.rows.pending, "waiting");
    // By the reference's rules a worker no longer has a job after 12 hours, but the job still counts as out.
    let out = of(TaskStatus::InFlight);
    prop_assert!(out == status.rows.in_flight || !is_fair, "in flight");
    prop_assert_eq!(status.holders.len() as i64, out, "holders");
    prop_assert_eq!(of(TaskStatus::Delayed), status.delayed, "delayed");
    prop_assert_eq!(of(TaskStatus::DeadLetter), status.dead_letters, "dead letters");
    prop_assert_eq!(failed_rows(reader, now), status.failed, "failed");
    prop_assert_eq!(of(TaskStatus::Failed), status.failed, "failed");
    let held = reader.held(ALL).unwrap().keys.len() as i64;
    prop_assert_eq!(held, status.held + status.backed_off, "held");
    let single = |status| tasks(reader, now, status, Some("@tasks"));
    let ended = single(TaskStatus::Failed) + single(TaskStatus::DeadLetter);
    prop_assert_eq!(ended, status.single_tasks_ended, "single tasks");
    let alone: i64 = status
        .fetchers
        .iter()
        .map(|it| tasks(reader, now, TaskStatus::Waiting, Some(&it.name)))
        .sum();
    prop_assert_eq!(alone, status.rows.pending, "by fetcher");
    Ok(())
}

/// A key's attempts are those among all attempts that are its own, except hand-outs that never arrived; and the sums
/// are sums of all attempts.
fn attempts_are_right(reader: &dyn Reader, now: i64, is_summed: bool) -> Result<(), TestCaseError> {
    let asked = EndedAttempts { count: ALL, ..EndedAttempts::default() };
    let all = reader.ended_attempts(&asked).unwrap().attempts;
    for key in KEYS {
        let own = all.iter().filter(|it| it.key == key && it.outcome != "undone");
        let mut own: Vec<_> = own.cloned().collect();
        own.sort_by_key(|it| -it.attempt);
        let asked = EndedAttempts { key: Some(key.to_owned()), ..asked.clone() };
        prop_assert_eq!(reader.ended_attempts(&asked).unwrap().attempts, own);
    }
    let onward = reader.ends_after(Some(0), ALL).unwrap().attempts;
    prop_assert_eq!(onward.iter().rev().collect::<Vec<_>>(), all.iter().collect::<Vec<_>>());
    let by_minute: i64 = reader.jobs_by_minute(now).unwrap().iter().map(|it| it.jobs).sum();
    let by_code: i64 = reader.status(now).unwrap().done_last_hour.iter().map(|it| it.jobs).sum();
    prop_assert_eq!(by_minute, by_code);
    if !is_summed {
        return Ok(());
    }
    let asked = StatsOf { since: 0, by: Grouping::All, fetchers: Vec::new() };
    let sums = reader.stats(&asked).unwrap().groups.into_iter().next().unwrap_or_default();
    let count = |outcome: &str| all.iter().filter(|it| it.outcome == outcome).count() as i64;
    let [success, timeout, failure] = ["success", "timeout", "failure"].map(count);
    prop_assert_eq!((sums.success, sums.timeout, sums.failure), (success, timeout, failure));
    let [released, undone, expired] = ["released", "undone", "expired"].map(count);
    prop_assert_eq!((sums.released, sums.undone, sums.expired), (released, undone, expired));
    Ok(())
}

/// The result of a history.
pub struct Played<S> {
    pub engine: Engine<S>,
    pub now: i64,
    /// No end was written by hand, which no sum counts, and no sum is too old.
    is_summed: bool,
}

pub fn play<S: Records>(
    mut engine: Engine<S>,
    history: &[Step],
    is_fair: bool,
    reopened: fn(S) -> S,
) -> Played<S> {
    let (mut now, mut is_summed) = (1_700_000_000, true);
    for step in history.iter().cloned() {
        match step {
            Step::Passes(seconds) => {
                now += seconds;
                is_summed &= seconds < DAY;
            }
            Step::Set { by, runs } => {
                now += by;
                let by = if runs { by * 1_000 } else { 0 };
                ready(engine.follow_clock(now * 1_000, by)).unwrap();
                ready(engine.apply(now * 1_000, vec![EndHolds.into()])).unwrap();
            }
            Step::Edit(key, last) => {
                is_summed = false;
                ready(engine.edit(now * 1_000, vec![Edit::Log { key, last }])).unwrap();
            }
            Step::Refused(_) => {}
            Step::Restart => {
                let groups = GroupRules::default();
                let settings = Settings { is_fair, groups, ..remembering() };
                engine = Engine::new(reopened(engine.into_store()), settings);
            }
            Step::Batch(mut batch) => {
                // The reference's rules have no expiring leases and no single tasks.
                let is_known =
                    |it: &Operation| !matches!(it, Operation::Expire(_) | Operation::AddTask(_));
                batch.retain(|it| is_fair || is_known(it));
                ready(engine.apply(now * 1_000, batch)).unwrap();
            }
        }
    }
    Played { engine, now, is_summed }
}

/// No key is forgotten: its attempts would no longer be those of the sums.
fn remembering() -> Settings {
    Settings { unlisted_kept: None, ..settings() }
}

fn check(history: &[Step], is_fair: bool) -> Result<(), TestCaseError> {
    let settings = Settings { is_fair, groups: GroupRules::default(), ..remembering() };
    let mut engine = Engine::new(subject::new(), settings.clone());
    started(&mut engine, &settings);
    let Played { mut engine, now, is_summed } = play(engine, history, is_fair, Store::reopened);
    ready(engine.apply(now * 1_000, vec![SetPaused(false).into()])).unwrap();
    let reader = &subject::reader(engine.store());
    counts_are_right(reader, now, is_fair)?;
    attempts_are_right(reader, now, is_summed)?;
    let next = reader.next_jobs(now, ALL).unwrap();
    prop_assert!(!next.truncated);
    for (at, next) in next.keys.iter().enumerate() {
        let why = reader.why(now, &next.key, ALL).unwrap().unwrap();
        prop_assert_eq!(why.place.map(|it| (it.keys_before, it.exact)), Some((at, true)));
    }
    let keys: Vec<Key> = next.keys.iter().map(|next| Key::stored(&next.key)).collect();
    let turns = reader.turns(now, &keys).unwrap();
    let before: Vec<_> = turns.iter().map(|turn| turn.keys_before).collect();
    prop_assert_eq!(before, (0..keys.len() as u64).map(Some).collect::<Vec<_>>());
    let mut given = Vec::new();
    loop {
        match ready(engine.apply(now * 1_000, vec![dispatch(None)])).unwrap().remove(0).unwrap() {
            Outcome::Dispatch(Dispatched::Job(attempt, row, _)) => given.push((attempt.0, row)),
            Outcome::Dispatch(Dispatched::Later) => {}
            _ => break,
        }
    }
    let asked = TasksWith {
        status: Some(TaskStatus::InFlight),
        fetcher: None,
        group: None,
        since: None,
        count: ALL,
    };
    let out = subject::reader(engine.store()).tasks(now, &asked).unwrap().tasks;
    let given: Vec<_> = given
        .into_iter()
        .map(|(attempt, row)| {
            let is_it = |reason: &str| reason.ends_with(&format!(", attempt {attempt}"));
            let fetcher = out.iter().find(|it| is_it(&it.reason)).map(|it| it.fetcher.clone());
            (row.key.to_string(), fetcher.unwrap_or_default(), row.payload)
        })
        .collect();
    let foretold: Vec<_> =
        next.keys.into_iter().map(|it| (it.key, it.fetcher, it.payload)).collect();
    prop_assert_eq!(foretold, given);
    Ok(())
}

proptest! {
    #[test]
    fn previews_equal_dispatches(history in history(false), is_fair in prop::bool::weighted(0.8)) {
        check(&history, is_fair)?;
    }
}
