//! What a reader answers against what the model knows, one question at a time: each opens the store anew.

use std::thread::park_timeout;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::{FETCHERS, History, KEYS, PREVIEWED};
use crate::store::answers::{Ended, HeldKey, HoldKind, StatsGroup, TaskStatus};
use crate::store::{EndedAttempts, Grouping, Reader, StatsOf, TasksWith};
use shiftboss_protocol::model::Key;

/// Asks a reader, and compares; the number chooses of several that could be asked.
pub type Question = fn(&History, &dyn Reader, usize) -> Result<(), TestCaseError>;

/// All of them; the first one is what a mock answers.
pub const QUESTIONS: [Question; 14] = [
    next_jobs,
    status,
    why,
    ended_attempts,
    history,
    some_ends,
    ends_after,
    jobs_by_minute,
    stats,
    tasks,
    turns,
    search,
    last_starts,
    held,
];
/// All that a task that is kept can have.
pub const STATUSES: [TaskStatus; 5] = [
    TaskStatus::Waiting,
    TaskStatus::InFlight,
    TaskStatus::Delayed,
    TaskStatus::Failed,
    TaskStatus::DeadLetter,
];
const ALL: usize = 10_000;

fn next_jobs(it: &History, reader: &dyn Reader, _: usize) -> Result<(), TestCaseError> {
    let preview = reader.next_jobs(it.now, PREVIEWED).unwrap();
    let dispatched = it.model.preview(it.now, PREVIEWED);
    prop_assert_eq!((preview.paused, preview.keys), (dispatched.paused, dispatched.keys));
    Ok(())
}

fn status(it: &History, reader: &dyn Reader, _: usize) -> Result<(), TestCaseError> {
    let status = reader.status(it.now).unwrap();
    prop_assert_eq!((status.rows, status.paused), (it.model.row_counts(), it.model.is_paused()));
    prop_assert_eq!(status.held.cast_unsigned(), it.model.held_keys().len() as u64);
    prop_assert_eq!(status.backed_off.cast_unsigned(), it.model.backed_off_keys().len() as u64);
    prop_assert_eq!(status.delayed.cast_unsigned(), it.model.delays() as u64);
    let oldest = status.oldest_waiting.map(|waiting| waiting.key);
    prop_assert_eq!(oldest, it.model.first_in_order(it.now));
    prop_assert_eq!(status.bumped.cast_unsigned(), it.model.bumped_keys().len() as u64);
    let pending: i64 = status.fetchers.iter().map(|fetcher| fetcher.pending).sum();
    prop_assert!(pending <= status.rows.pending);
    for fetcher in status.fetchers.iter().filter(|fetcher| FETCHERS.contains(&&*fetcher.name)) {
        let lines = it.model.rows_of(&fetcher.name, fetcher.run);
        prop_assert_eq!(fetcher.lines, lines.cast_signed());
    }
    Ok(())
}

/// Of one key after the other.
fn why(it: &History, reader: &dyn Reader, round: usize) -> Result<(), TestCaseError> {
    let key = KEYS[round % KEYS.len()];
    let why = reader.why(it.now, key, ALL).unwrap();
    prop_assert_eq!(why.as_ref().map(|why| why.state), it.model.key_state(key, it.now));
    let Some(why) = why else {
        return Ok(());
    };
    let rows: Vec<_> =
        why.rows.iter().map(|row| (row.fetcher.clone(), row.run, row.state)).collect();
    prop_assert_eq!(rows, it.model.row_states(key, it.now));
    // An operator's hold is told before that of backoff.
    let hold = holds(it).into_iter().find(|(held, ..)| held == key);
    prop_assert_eq!(why.hold.map(|hold| (key.to_owned(), hold.kind, hold.until)), hold);
    prop_assert_eq!(why.bump.is_some(), it.model.is_in_lane(key));
    let place = why.place.map(|place| place.keys_before as u64);
    prop_assert_eq!(place, it.model.turn(key, it.now).0);
    Ok(())
}

fn ended_attempts(it: &History, reader: &dyn Reader, _: usize) -> Result<(), TestCaseError> {
    let asked = EndedAttempts { count: ALL, ..EndedAttempts::default() };
    let ended = reader.ended_attempts(&asked).unwrap().attempts.into_iter();
    let is_done = |outcome: &str| ["success", "failure", "timeout"].contains(&outcome);
    let leased = ended.filter(|ended| ended.worker.is_some());
    let mut leased: Vec<_> =
        leased.map(|ended| (ended.attempt, ended.key, is_done(&ended.outcome))).collect();
    // They are in the order of their ends, which the model does not keep.
    leased.sort_by_key(|(attempt, ..)| -attempt);
    prop_assert_eq!(leased, it.model.ended_leases());
    Ok(())
}

/// A key's attempts are those of all that are its own, but for hand-outs that never arrived.
fn history(_: &History, reader: &dyn Reader, round: usize) -> Result<(), TestCaseError> {
    let key = KEYS[round % KEYS.len()];
    let asked = EndedAttempts { count: ALL, ..EndedAttempts::default() };
    let all = reader.ended_attempts(&asked).unwrap().attempts;
    prop_assert!(all.is_sorted_by(|later, sooner| later.ended > sooner.ended), "{all:?}");
    let mut expected: Vec<_> =
        all.iter().filter(|it| it.key == key && it.outcome != "undone").cloned().collect();
    expected.sort_by_key(|ended| -ended.attempt);
    let of_key = EndedAttempts { key: Some(key.to_owned()), ..asked.clone() };
    prop_assert_eq!(reader.ended_attempts(&of_key).unwrap().attempts, expected);
    let Some(middle) = all.get(all.len() / 2) else {
        return Ok(());
    };
    let older = EndedAttempts { before: Some(middle.ended), ..asked };
    prop_assert_eq!(&reader.ended_attempts(&older).unwrap().attempts, &all[all.len() / 2 + 1..]);
    Ok(())
}

/// Those that are asked for are those of all that are so, among the last ones.
fn some_ends(_: &History, reader: &dyn Reader, round: usize) -> Result<(), TestCaseError> {
    let asked = EndedAttempts { count: ALL, ..EndedAttempts::default() };
    let ends = |asked: &EndedAttempts| reader.ended_attempts(asked).unwrap();
    let all = ends(&asked).attempts;
    let expected = |of: usize, is_wanted: &dyn Fn(&Ended) -> bool| -> Vec<Ended> {
        all.iter().take(of).filter(|it| is_wanted(it)).cloned().collect()
    };
    let outcome = ["success", "failure", "released", "expired", "undone"][round % 5];
    let of_outcome = EndedAttempts { outcomes: vec![outcome, "timeout"], ..asked.clone() };
    let is_so = |ended: &Ended| [outcome, "timeout"].contains(&&*ended.outcome);
    prop_assert_eq!(ends(&of_outcome).attempts, expected(ALL, &is_so));
    let among = 1 + round % 4;
    let found = ends(&EndedAttempts { among: Some(among), ..of_outcome });
    prop_assert_eq!(found.attempts, expected(among, &is_so));
    prop_assert_eq!(found.looked_to, all.get(among - 1).map(|last| last.ended));
    let fetcher = FETCHERS[round % FETCHERS.len()].to_owned();
    let of_fetcher = EndedAttempts { fetcher: Some(fetcher.clone()), ..asked };
    let is_its = |ended: &Ended| ended.fetcher.as_ref() == Some(&fetcher);
    prop_assert_eq!(ends(&of_fetcher).attempts, expected(ALL, &is_its));
    Ok(())
}

/// Who reads on from the last end that he read meets each once, in order; on a server once no transaction is open that began before
/// them, in whichever database.
fn ends_after(_: &History, reader: &dyn Reader, round: usize) -> Result<(), TestCaseError> {
    let asked = EndedAttempts { count: ALL, ..EndedAttempts::default() };
    let all = reader.ended_attempts(&asked).unwrap().attempts.into_iter().rev();
    let (expected, mut found, mut after) = (all.collect::<Vec<_>>(), Vec::new(), 0);
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let ends = reader.ends_after(Some(after), 1 + round % 3).unwrap();
        prop_assert_eq!(ends.is_kept, found.last().is_some_and(|it: &Ended| it.ended == after));
        if ends.attempts.is_empty() {
            if found.len() >= expected.len() || Instant::now() > deadline {
                break;
            }
            park_timeout(Duration::from_millis(5));
        }
        after = ends.upto;
        found.extend(ends.attempts);
    }
    prop_assert_eq!(found, expected);
    let now = reader.ends_after(None, ALL).unwrap();
    prop_assert!(now.attempts.is_empty() && now.upto >= after);
    prop_assert!(reader.ends_after(Some(now.upto), ALL).unwrap().attempts.is_empty());
    Ok(())
}

/// Keys that are listed or ran are found by how they begin; the log tells when they ran.
fn search(it: &History, reader: &dyn Reader, round: usize) -> Result<(), TestCaseError> {
    let prefix = ["", "a", "alpha", "alphas", "b", "é", "z"][round % 7];
    let found = reader.search(prefix, 2).unwrap();
    let mut expected: Vec<_> =
        it.model.known_keys().into_iter().filter(|(key, ..)| key.starts_with(prefix)).collect();
    prop_assert_eq!(found.truncated, expected.len() > 2);
    expected.truncate(2);
    let found = found.keys.into_iter().map(|key| (key.key, key.last_started, key.exit_code));
    prop_assert_eq!(found.collect::<Vec<_>>(), expected);
    Ok(())
}

type HoldOf = (String, HoldKind, Option<i64>);

/// All holds of the model, those of operators first.
fn holds(it: &History) -> Vec<HoldOf> {
    let hold = |(key, until)| (key, HoldKind::Hold, until);
    let backoff = |(key, until)| (key, HoldKind::Backoff, Some(until));
    let holds = it.model.held_keys().into_iter().map(hold);
    holds.chain(it.model.backed_off_keys().into_iter().map(backoff)).collect()
}

/// All of them, and some.
fn held(it: &History, reader: &dyn Reader, _: usize) -> Result<(), TestCaseError> {
    let found = reader.held(ALL).unwrap();
    let order = |held: &HeldKey| (held.hold.kind == HoldKind::Backoff, -held.hold.since);
    prop_assert!(!found.truncated && found.keys.is_sorted_by_key(order));
    let held = found.keys.iter().map(|held| (held.key.clone(), held.hold.kind, held.hold.until));
    let mut held: Vec<HoldOf> = held.collect();
    held.sort_by_key(|(key, kind, _)| (*kind == HoldKind::Backoff, key.clone()));
    prop_assert_eq!(held, holds(it));
    let first = reader.held(1).unwrap();
    prop_assert_eq!(first.truncated, found.keys.len() > 1);
    prop_assert_eq!(first.keys, found.keys.into_iter().take(1).collect::<Vec<_>>());
    Ok(())
}

/// So few rows are all looked at.
fn last_starts(it: &History, reader: &dyn Reader, _: usize) -> Result<(), TestCaseError> {
    let mut found = reader.last_starts().unwrap();
    found.started.sort_unstable();
    prop_assert_eq!((found.started, found.is_all), (it.model.last_starts(), true));
    Ok(())
}

/// They are those of the last hour that `status` tells by exit code.
fn jobs_by_minute(it: &History, reader: &dyn Reader, _: usize) -> Result<(), TestCaseError> {
    let (status, minutes) =
        (reader.status(it.now).unwrap(), reader.jobs_by_minute(it.now).unwrap());
    let by_code: i64 = status.done_last_hour.iter().map(|done| done.jobs).sum();
    prop_assert_eq!(minutes.iter().map(|minute| minute.jobs).sum::<i64>(), by_code);
    let is_within =
        |since: i64| minutes.first().is_some_and(|it| (it.since..it.since + 60).contains(&since));
    prop_assert!(status.done_since.is_none_or(is_within));
    let is_told = [status.busy_seconds.is_some(), status.done_since.is_some()];
    prop_assert_eq!(is_told, [!minutes.is_empty(); 2]);
    prop_assert!(minutes.is_sorted_by(|one, next| next.since >= one.since + 60));
    prop_assert!(minutes.iter().all(|minute| minute.jobs > 0 && minute.since % 60 == 0));
    Ok(())
}

/// What is summed up is the sum of the attempts.
fn stats(it: &History, reader: &dyn Reader, _: usize) -> Result<(), TestCaseError> {
    if it.model.has_forgotten() {
        return Ok(());
    }
    let asked = EndedAttempts { count: ALL, ..EndedAttempts::default() };
    let all = reader.ended_attempts(&asked).unwrap().attempts;
    let count = |outcome: &str| all.iter().filter(|it| it.outcome == outcome).count() as i64;
    let [success, timeout, failure] = ["success", "timeout", "failure"].map(count);
    let jobs = success + timeout + failure;
    let is_done = |ended: &&Ended| ended.exit_code.is_some();
    let took = |ended: &Ended| ended.took_ms.unwrap_or(ended.duration_seconds * 1_000);
    let took: i64 = all.iter().filter(is_done).map(took).sum();
    for by in [Grouping::All, Grouping::Fetcher, Grouping::Hour, Grouping::Day] {
        let asked = StatsOf { since: 0, by, fetchers: Vec::new() };
        let groups = reader.stats(&asked).unwrap().groups;
        let sum = |member: fn(&StatsGroup) -> i64| groups.iter().map(member).sum::<i64>();
        prop_assert_eq!(sum(|group| group.jobs), jobs, "{:?}: {:?} of {:?}", by, groups, all);
        prop_assert_eq!((sum(|it| it.success), sum(|it| it.timeout)), (success, timeout));
        prop_assert_eq!(sum(|it| it.failure), failure);
        let others = (sum(|it| it.released), sum(|it| it.undone), sum(|it| it.expired));
        prop_assert_eq!(others, (count("released"), count("undone"), count("expired")));
        if by == Grouping::Fetcher {
            let of = FETCHERS[jobs as usize % 2];
            let fetchers = vec![of.to_owned()];
            let alone = reader.stats(&StatsOf { since: 0, by, fetchers }).unwrap().groups;
            let is_its = |group: &&StatsGroup| group.fetcher.as_deref() == Some(of);
            prop_assert_eq!(alone, groups.iter().filter(is_its).cloned().collect::<Vec<_>>());
        }
        if by == Grouping::All {
            let mean = groups.first().and_then(|group| group.mean_ms);
            prop_assert_eq!(mean, (jobs > 0).then(|| took / jobs));
        }
    }
    Ok(())
}

/// With one status after the other.
fn tasks(it: &History, reader: &dyn Reader, round: usize) -> Result<(), TestCaseError> {
    let status = STATUSES[round % STATUSES.len()];
    let fetcher = (status == TaskStatus::Failed).then(|| "@tasks".to_owned());
    let asked = TasksWith { status, fetcher, since: None, count: ALL - 1 };
    let tasks = reader.tasks(it.now, &asked).unwrap().tasks.into_iter();
    let mut tasks: Vec<_> = tasks.map(|task| (task.key, task.run)).collect();
    let mut expected = it.model.tasks_with(status, it.now);
    if status == TaskStatus::Failed {
        // They are in the order of their ends, which the model does not keep.
        tasks.sort();
        expected.sort();
    }
    prop_assert_eq!(tasks, expected, "{:?}", status);
    Ok(())
}

fn turns(it: &History, reader: &dyn Reader, _: usize) -> Result<(), TestCaseError> {
    let turns = reader.turns(it.now, &KEYS.map(Key::stored)).unwrap();
    let turns: Vec<_> = turns.iter().map(|turn| (turn.keys_before, turn.tasks_before)).collect();
    let expected: Vec<_> = KEYS.iter().map(|key| it.model.turn(key, it.now)).collect();
    prop_assert_eq!(turns, expected);
    Ok(())
}
