//! What a reader answers against what the model knows, one question at a time: each opens the store anew.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::{FETCHERS, History, KEYS, PREVIEWED};
use crate::store::answers::TaskStatus;
use crate::store::{EndedAttempts, Reader, TasksWith};
use shiftboss_protocol::model::Key;

/// Asks a reader, and compares; the number chooses of several that could be asked.
pub type Question = fn(&History, &dyn Reader, usize) -> Result<(), TestCaseError>;

/// All of them; the first one is what a mock answers.
pub const QUESTIONS: [Question; 6] = [next_jobs, status, why, ended_attempts, tasks, turns];
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
    let leased: Vec<_> =
        leased.map(|ended| (ended.attempt, ended.key, is_done(&ended.outcome))).collect();
    prop_assert_eq!(leased, it.model.ended_leases());
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
