//! What a reader answers against what the model knows, one question at a time: each opens the store anew.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::{FETCHERS, History, KEYS, PREVIEWED};
use crate::store::answers::{Ended, StatsGroup, TaskStatus};
use crate::store::{EndedAttempts, Grouping, Reader, StatsOf, TasksWith};
use shiftboss_protocol::model::Key;

/// Asks a reader, and compares; the number chooses of several that could be asked.
pub type Question = fn(&History, &dyn Reader, usize) -> Result<(), TestCaseError>;

/// All of them; the first one is what a mock answers.
pub const QUESTIONS: [Question; 8] =
    [next_jobs, status, why, ended_attempts, history, stats, tasks, turns];
const STATUSES: [TaskStatus; 4] =
    [TaskStatus::Waiting, TaskStatus::InFlight, TaskStatus::Failed, TaskStatus::DeadLetter];
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
    let oldest = status.oldest_waiting.map(|waiting| waiting.key);
    prop_assert_eq!(oldest, it.model.order(it.now).into_iter().next());
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
    let why = reader.why(it.now, key).unwrap();
    prop_assert_eq!(why.as_ref().map(|why| why.state), it.model.key_state(key, it.now));
    let Some(why) = why else {
        return Ok(());
    };
    let rows: Vec<_> = why.rows.into_iter().map(|row| (row.fetcher, row.run, row.state)).collect();
    prop_assert_eq!(rows, it.model.row_states(key, it.now));
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

/// What is summed up is the sum of the attempts.
fn stats(_: &History, reader: &dyn Reader, _: usize) -> Result<(), TestCaseError> {
    let asked = EndedAttempts { count: ALL, ..EndedAttempts::default() };
    let all = reader.ended_attempts(&asked).unwrap().attempts;
    let count = |outcome: &str| all.iter().filter(|it| it.outcome == outcome).count() as i64;
    let [success, timeout, failure] = ["success", "timeout", "failure"].map(count);
    let jobs = success + timeout + failure;
    let is_done = |ended: &&Ended| ended.exit_code.is_some();
    let took = |ended: &Ended| ended.took_ms.unwrap_or(ended.duration_seconds * 1_000);
    let took: i64 = all.iter().filter(is_done).map(took).sum();
    for by in [Grouping::All, Grouping::Fetcher, Grouping::Hour, Grouping::Day] {
        let groups = reader.stats(&StatsOf { since: 0, by }).unwrap().groups;
        let sum = |member: fn(&StatsGroup) -> i64| groups.iter().map(member).sum::<i64>();
        prop_assert_eq!(sum(|group| group.jobs), jobs, "{:?}: {:?} of {:?}", by, groups, all);
        prop_assert_eq!((sum(|it| it.success), sum(|it| it.timeout)), (success, timeout));
        prop_assert_eq!(sum(|it| it.failure), failure);
        let others = (sum(|it| it.released), sum(|it| it.undone), sum(|it| it.expired));
        prop_assert_eq!(others, (count("released"), count("undone"), count("expired")));
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
