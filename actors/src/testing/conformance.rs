//! What every store must pass: each statement of the contract ([`statements`]), and random histories of batches
//! against the naive model, some of which fail as a whole, with restarts in between. Whatever happened, a reader
//! answers what the model knows ([`answers`]).
//!
//! A store's tests call [`passes`] with a [`Subject`]; those of SQLite add edits by hand to the same
//! [`History`].

mod answers;
mod statements;

pub use answers::{QUESTIONS, Question, STATUSES};

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestError, TestRunner};

use super::model::{Model, Rules};
use super::one_by_one::OneByOne;
use crate::file_identity::Position;
use crate::store::{
    AddRows, AddTask, Bump, CancelTasks, Complete, CompleteAttempt, DeleteRuns, Dispatch,
    Dispatched, EndHolds, Expire, Forget, Hold, LeaseHolder, NextHoldEnd, Operation, Outcome,
    Reader, Reading, RegisterRun, Rejected, Release, Request, Requeue, Retry, RowBatch, SetPaused,
    Store, Undo, Unhold,
};
use shiftboss_protocol::model::{Attempt, Key, Row, Run};

pub const KEYS: [&str; 3] = ["alpha", "bravo", "é"];
pub const FETCHERS: [&str; 2] = ["f", "g"];
pub const HALF_DAY: i64 = 43_200;
/// The lease of all that is leased.
const LEASE_SECONDS: u32 = 60;
/// Jobs that are previewed.
const PREVIEWED: usize = 8;
/// Steps of a history for each question to the reader, which opens the store anew and so costs more than all else of a step.
const STEPS_A_QUESTION: usize = 4;

/// A request or a fetcher's doing. Attempts are chosen by how long ago they were given out.
#[derive(Debug, Clone)]
pub enum Word {
    List { fetcher: usize, run: i64, keys: Vec<usize> },
    Delete { fetcher: usize, run: i64 },
    Dispatch { leased: bool },
    Done { back: i64, code: i64 },
    Release { back: i64 },
    Expire { back: i64 },
    Finish { key: usize, code: i64 },
    Undo { back: i64 },
    Retry { key: usize },
    Requeue { key: usize },
    AddTask { key: usize, payload: u8 },
    Cancel { key: usize },
    Pause(bool),
    Hold { key: usize, seconds: Option<u32> },
    Unhold { key: usize },
    Bump { key: usize },
    EndHolds,
    Forget { key: usize },
}

pub fn word() -> impl Strategy<Value = Word> {
    let keys = || 0..KEYS.len();
    let fetchers = || 0..FETCHERS.len();
    // 0 is the last one before the batch; -1 and -2 may be given out in it.
    let back = || prop_oneof![4 => 0..2_i64, 2 => 2..6_i64, 2 => -2..0_i64];
    prop_oneof![
        4 => (fetchers(), 1..4_i64, prop::collection::vec(keys(), 1..4))
            .prop_map(|(fetcher, run, keys)| Word::List { fetcher, run, keys }),
        2 => (fetchers(), 1..4_i64).prop_map(|(fetcher, run)| Word::Delete { fetcher, run }),
        10 => any::<bool>().prop_map(|classic| Word::Dispatch { leased: !classic }),
        5 => (back(), -1..2_i64).prop_map(|(back, code)| Word::Done { back, code }),
        3 => back().prop_map(|back| Word::Release { back }),
        6 => back().prop_map(|back| Word::Expire { back }),
        2 => (keys(), 0..2_i64).prop_map(|(key, code)| Word::Finish { key, code }),
        2 => back().prop_map(|back| Word::Undo { back }),
        2 => keys().prop_map(|key| Word::Retry { key }),
        2 => keys().prop_map(|key| Word::Requeue { key }),
        4 => (keys(), 0..3_u8).prop_map(|(key, payload)| Word::AddTask { key, payload }),
        1 => keys().prop_map(|key| Word::Cancel { key }),
        1 => prop::bool::weighted(0.3).prop_map(Word::Pause),
        2 => (keys(), prop::option::of(0..100_u32))
            .prop_map(|(key, seconds)| Word::Hold { key, seconds }),
        2 => keys().prop_map(|key| Word::Unhold { key }),
        3 => keys().prop_map(|key| Word::Bump { key }),
        2 => Just(Word::EndHolds),
        2 => keys().prop_map(|key| Word::Forget { key }),
    ]
}

/// One step of a history.
#[derive(Debug, Clone)]
pub enum Step {
    /// What is asked in one batch, which may come to nothing.
    Batch { words: Vec<Word>, fails: bool },
    /// The clock is moved, backwards too.
    Clock { by: i64 },
    /// The daemon is started again, after a clean stop or without one.
    Restart { clean: bool },
}

pub fn step() -> impl Strategy<Value = Step> {
    let clock = prop_oneof![1..100_i64, -100..0_i64, Just(HALF_DAY), Just(HALF_DAY + 1)];
    let batch = |words, fails| Step::Batch { words, fails };
    prop_oneof![
        20 => word().prop_map(move |word| batch(vec![word], false)),
        10 => (prop::collection::vec(word(), 1..8), prop::bool::weighted(0.2))
            .prop_map(move |(words, fails)| batch(words, fails)),
        1 => prop::collection::vec(word(), 8..64).prop_map(move |words| batch(words, false)),
        1 => any::<bool>().prop_map(|clean| Step::Restart { clean }),
        4 => clock.prop_map(|by| Step::Clock { by }),
    ]
}

/// A model that goes the way of a store.
#[derive(Clone)]
pub struct History {
    pub model: Model,
    pub now: i64,
    /// All numbers of attempts that were given out.
    pub given: Vec<i64>,
}

impl History {
    pub fn new(rules: Rules) -> Self {
        Self { model: Model::new(rules), now: 1_000_000, given: Vec::new() }
    }

    fn last(&self) -> i64 {
        self.given.last().copied().unwrap_or(0)
    }

    pub fn move_clock(&mut self, by: i64) {
        self.now = (self.now + by).max(HALF_DAY * 2);
    }

    /// The operations of some words, in order.
    pub fn batch(&self, words: &[Word]) -> Vec<Operation> {
        words.iter().flat_map(|word| self.operations(word)).collect()
    }

    /// The model does what the store did, and comes to the same.
    pub fn follow(
        &mut self,
        batch: &[Operation],
        outcomes: Vec<Result<Outcome, Rejected>>,
    ) -> Result<(), TestCaseError> {
        prop_assert_eq!(batch.len(), outcomes.len());
        for (operation, outcome) in batch.iter().zip(outcomes) {
            let outcome = outcome.unwrap();
            if let Outcome::Dispatch(Dispatched::Job(attempt, _)) = &outcome {
                prop_assert!(attempt.0 > self.last(), "attempt {} again", attempt.0);
                self.given.push(attempt.0);
                // A store may skip numbers.
                self.model.skip_to(attempt.0);
            }
            let expected = self.model.perform(self.now, operation);
            if !matches!(outcome, Outcome::RegisterRun(_)) {
                prop_assert_eq!(outcome, expected, "{:?}", operation);
            }
        }
        Ok(())
    }

    /// What a store says of itself is what the model knows.
    pub fn check(&self, store: &mut (impl Store + ?Sized)) -> Result<(), TestCaseError> {
        let leases = store.leases().unwrap();
        prop_assert!(leases.iter().all(|(_, seconds)| *seconds == LEASE_SECONDS));
        let leases: BTreeSet<i64> = leases.iter().map(|(attempt, _)| attempt.0).collect();
        prop_assert_eq!(leases, self.model.all_leased().into_iter().collect::<BTreeSet<i64>>());
        for attempt in &self.given {
            let is_leased = store.is_leased(Attempt(*attempt)).unwrap();
            prop_assert_eq!(is_leased, self.model.is_leased(*attempt));
        }
        prop_assert_eq!(store.in_flight(self.now).unwrap(), self.model.in_flight(self.now));
        Ok(())
    }

    fn operations(&self, word: &Word) -> Vec<Operation> {
        let attempt = |back: &i64| Attempt(self.last() - back);
        let mut batch = Vec::new();
        match word {
            Word::List { fetcher, run: started, keys } => {
                let rows: Vec<_> = keys.iter().map(|key| (KEYS[*key], "1")).collect();
                let run = run(FETCHERS[*fetcher], *started);
                (RegisterRun(run.clone()), AddRows(rows_of_run(&run, &rows, true)))
                    .push(&mut batch);
            }
            Word::Delete { fetcher, run: started } => {
                let runs = vec![run(FETCHERS[*fetcher], *started)];
                DeleteRuns { runs, limit: 100 }.push(&mut batch);
            }
            Word::Dispatch { leased } => {
                let holder = leased.then(|| holder("builder", LEASE_SECONDS));
                Dispatch { holder, fetchers: None }.push(&mut batch);
            }
            Word::Done { back, code } => {
                CompleteAttempt { attempt: attempt(back), exit_code: *code }.push(&mut batch);
            }
            Word::Release { back } => Release(attempt(back)).push(&mut batch),
            Word::Expire { back } => Expire(attempt(back)).push(&mut batch),
            Word::Finish { key: at, code } => {
                Complete { key: key(KEYS[*at]), exit_code: *code }.push(&mut batch);
            }
            Word::AddTask { key: at, payload } => {
                AddTask { task: row(KEYS[*at], &payload.to_string()), id: None }.push(&mut batch);
            }
            Word::Cancel { key: at } => CancelTasks(key(KEYS[*at])).push(&mut batch),
            Word::Undo { back } => {
                let key = self.model.key_of(attempt(back).0).unwrap_or_else(|| key("unknown"));
                Undo { key, attempt: attempt(back) }.push(&mut batch);
            }
            Word::Retry { key: at } => {
                Retry { key: key(KEYS[*at]), fetcher: None }.push(&mut batch);
            }
            Word::Requeue { key: at } => Requeue(key(KEYS[*at])).push(&mut batch),
            Word::Pause(paused) => SetPaused(*paused).push(&mut batch),
            Word::Hold { key: at, seconds } => {
                let (reason, by) = ("it is broken".to_owned(), "eve".into());
                Hold { key: key(KEYS[*at]), seconds: *seconds, reason, by }.push(&mut batch);
            }
            Word::Unhold { key: at } => Unhold(key(KEYS[*at])).push(&mut batch),
            Word::Bump { key: at } => {
                Bump { key: key(KEYS[*at]), by: "eve".into() }.push(&mut batch);
            }
            Word::Forget { key: at } => Forget(key(KEYS[*at])).push(&mut batch),
            Word::EndHolds => (NextHoldEnd, EndHolds).push(&mut batch),
        }
        batch
    }
}

fn key(text: &str) -> Key {
    Key::stored(text)
}

fn run(fetcher: &str, started: i64) -> Run {
    Run { fetcher: fetcher.into(), started }
}

fn holder(worker: &str, lease_seconds: u32) -> LeaseHolder {
    LeaseHolder { worker: worker.into(), lease_seconds }
}

fn row(key_of: &str, payload: &str) -> Row {
    Row { key: key(key_of), payload: payload.to_owned() }
}

fn rows_of_run(run: &Run, rows: &[(&str, &str)], complete: bool) -> RowBatch {
    RowBatch {
        run: run.clone(),
        rows: rows.iter().map(|(key, payload)| row(key, payload)).collect(),
        skipped: 0,
        from: None,
        by_range: false,
        position: Position::default(),
        complete,
        reading: Reading::Onward,
    }
}

/// A store that is compared with the model.
pub trait Subject {
    fn store(&mut self) -> &mut dyn Store;

    /// Has a batch fail: nothing of it may have happened.
    fn fail(&mut self, now: i64, batch: Vec<Operation>);

    /// Opens it again, after a clean stop or without one.
    fn restart(&mut self, clean: bool);

    /// Who reads it.
    fn reader(&mut self) -> Arc<dyn Reader>;

    /// What the reader answers: all that can be asked, but of a mock.
    fn questions(&self) -> &'static [Question] {
        &QUESTIONS
    }
}

/// Checks the statements, and compares stores that `open` makes with the model, over so many random histories.
///
/// # Panics
/// When one of them differs, with the shortest history that shows it.
pub fn passes<S: Subject>(config: ProptestConfig, open: impl Fn(Rules) -> S) {
    statements::hold(&open);
    histories_match(config, open);
}

/// Compares stores that `open` makes with the model, over so many random histories.
///
/// # Panics
/// When one of them differs, with the shortest history that shows it.
pub fn histories_match<S: Subject>(config: ProptestConfig, open: impl Fn(Rules) -> S) {
    let strategy = (2..4_i64, prop::collection::vec(step(), 1..60));
    let mut runner = TestRunner::new(config);
    let outcome = runner.run(&strategy, |(max_expired_leases, history)| {
        let rules = Rules { max_expired_leases, ..Rules::after_failures() };
        goes_the_same_way(&mut open(rules.clone()), History::new(rules), &history)
    });
    if let Err(TestError::Fail(reason, input)) = &outcome {
        panic!("{reason}\nthe shortest history: {input:#?}");
    }
    outcome.unwrap();
}

fn goes_the_same_way(
    subject: &mut impl Subject,
    mut history: History,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    for (at, step) in steps.iter().enumerate() {
        match step {
            Step::Clock { by } => history.move_clock(*by),
            Step::Restart { clean } => subject.restart(*clean),
            Step::Batch { words, fails: true } => {
                subject.fail(history.now, history.batch(words));
            }
            Step::Batch { words, fails: false } => {
                let batch = history.batch(words);
                let outcomes = subject.store().apply_at_once(history.now, batch.clone()).unwrap();
                history.follow(&batch, outcomes)?;
            }
        }
        history.check(subject.store())?;
        if at % STEPS_A_QUESTION == 0 {
            let round = at / STEPS_A_QUESTION;
            let questions = subject.questions();
            questions[round % questions.len()](&history, &*subject.reader(), round)?;
        }
    }
    // Another key and another status for each length.
    let questions = subject.questions();
    questions.iter().try_for_each(|ask| ask(&history, &*subject.reader(), steps.len()))
}
