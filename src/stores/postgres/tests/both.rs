//! Two stores, one history: what is asked of the reader of one store is answered alike by that of the other.

use std::sync::Arc;

use proptest::prelude::*;
use shiftboss_actors::store::answers::{Log, QueueStatus, Stats, Tasks};
use shiftboss_actors::store::{
    EndedAttempts, EndedRun, FetcherRecord, Grouping, InputDirectory, NoteFetcher, NoteInput,
    Operation, Probe, Reader, RejectFile, Request, StatsOf, Store, TasksWith,
};
use shiftboss_actors::testing::conformance::{
    FETCHERS, History, KEYS, STATUSES, Step, Subject, Word,
};
use shiftboss_actors::testing::model::Rules;
use shiftboss_actors::testing::one_by_one::OneByOne;
use shiftboss_protocol::model::Key;
use tempfile::TempDir;

use super::support::{Site, options};
use crate::stores::{SqliteReader, SqliteStore};

/// Steps of a history for each comparison: each question is a connection.
const STEPS_A_COMPARISON: usize = 6;

/// The same queue twice.
struct Both {
    sqlite: SqliteStore,
    directory: TempDir,
    postgres: Site,
    now: i64,
}

impl Both {
    fn new(rules: Rules, now: i64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sqlite = SqliteStore::open(&directory.path().join("state.db"), &options(rules.clone()));
        Self { sqlite: sqlite.unwrap(), directory, postgres: Site::new(rules, 1), now }
    }

    fn stores(&mut self) -> [&mut dyn Store; 2] {
        [&mut self.sqlite, self.postgres.store()]
    }

    fn readers(&mut self) -> [Arc<dyn Reader>; 2] {
        let sqlite = SqliteReader::new(self.directory.path().join("state.db"));
        [Arc::new(sqlite), self.postgres.reader()]
    }

    fn apply(&mut self, request: impl Request + Clone) {
        let now = self.now;
        for store in self.stores() {
            store.ask(now, request.clone()).unwrap();
        }
    }

    /// Both carry a batch out, with the same outcomes.
    fn goes(&mut self, history: &mut History, batch: &[Operation]) -> Result<(), TestCaseError> {
        let now = history.now;
        let [sqlite, postgres] =
            self.stores().map(|store| store.apply_at_once(now, batch.to_vec()).unwrap());
        history.follow(batch, sqlite)?;
        prop_assert_eq!(postgres.len(), batch.len());
        Ok(())
    }

    fn compare(&mut self) -> Result<(), TestCaseError> {
        // Jobs whose lease is over are seen to, and the server's clock is set.
        self.apply(Probe);
        Pair { readers: self.readers(), now: self.now }.compare()
    }
}

/// Readers of the same queue, SQLite's first.
pub struct Pair {
    pub readers: [Arc<dyn Reader>; 2],
    pub now: i64,
}

impl Pair {
    /// Both answer alike.
    fn agree<T: std::fmt::Debug + PartialEq>(
        &self,
        question: impl Fn(&dyn Reader) -> T,
    ) -> Result<(), TestCaseError> {
        let [sqlite, postgres] = self.readers.each_ref().map(|reader| question(&**reader));
        prop_assert_eq!(postgres, sqlite, "left: PostgreSQL, right: SQLite");
        Ok(())
    }

    pub fn compare(&self) -> Result<(), TestCaseError> {
        let now = self.now;
        self.agree(|reader| alike(reader.status(now).unwrap()))?;
        for key in KEYS.iter().chain(&["unknown"]) {
            self.agree(|reader| reader.why(now, key, 100).unwrap())?;
        }
        for count in [2, 8] {
            self.agree(|reader| reader.next_jobs(now, count).unwrap())?;
        }
        let keys = KEYS.map(Key::stored);
        self.agree(|reader| reader.turns(now, &keys).unwrap())?;
        self.compare_logs(now)?;
        self.compare_tasks(now)
    }

    fn compare_logs(&self, now: i64) -> Result<(), TestCaseError> {
        let all = EndedAttempts { count: 100, ..EndedAttempts::default() };
        let fetcher = FETCHERS[0].to_owned();
        let outcomes = EndedAttempts::FAILED.to_vec();
        let asked = [
            EndedAttempts { outcomes, since: Some(now - 50), ..all.clone() },
            EndedAttempts { fetcher: Some(fetcher.clone()), among: Some(1_000), ..all.clone() },
            EndedAttempts { key: Some(KEYS[2].to_owned()), ..all.clone() },
            all,
        ];
        for asked in asked {
            self.agree(|reader| untimed(reader.ended_attempts(&asked).unwrap()))?;
        }
        let sums = [
            (Grouping::All, Vec::new()),
            (Grouping::Hour, Vec::new()),
            (Grouping::FetcherDay, Vec::new()),
            (Grouping::Day, vec![fetcher]),
        ];
        for (by, fetchers) in sums {
            let asked = StatsOf { since: now - 100_000, by, fetchers };
            self.agree(|reader| unmeasured(reader.stats(&asked).unwrap()))?;
        }
        Ok(())
    }

    fn compare_tasks(&self, now: i64) -> Result<(), TestCaseError> {
        for status in STATUSES {
            let all = TasksWith { status, fetcher: None, since: None, count: 100 };
            let of = |fetcher: &str| TasksWith { fetcher: Some(fetcher.to_owned()), ..all.clone() };
            let recent = TasksWith { since: Some(now - 50), count: 1, ..all.clone() };
            for asked in [of(FETCHERS[0]), of("@tasks"), recent, all.clone()] {
                self.agree(|reader| -> Tasks { reader.tasks(now, &asked).unwrap() })?;
            }
        }
        Ok(())
    }
}

/// Without what is each store's own.
fn alike(mut status: QueueStatus) -> QueueStatus {
    status.holders.iter_mut().for_each(|held| held.daemon = None);
    status.rejected_files.iter_mut().for_each(|rejected| rejected.daemon = None);
    QueueStatus {
        schema_version: 0,
        moved_to: None,
        not_stopped: None,
        daemons: Vec::new(),
        relays: Vec::new(),
        ..status
    }
}

/// One store measures how long jobs took, the other takes it from its clock. Ends of one batch are in an order of their own:
/// on a server those of plain keys come first.
fn untimed(mut log: Log) -> Log {
    log.attempts.sort_by_key(|ended| -ended.attempt);
    for ended in &mut log.attempts {
        (ended.took_ms, ended.ended) = (None, 0);
    }
    log
}

fn unmeasured(mut stats: Stats) -> Stats {
    stats.groups.iter_mut().for_each(|group| group.mean_ms = None);
    stats
}

fn answers_alike(rules: Rules, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut history = History::new(rules.clone());
    let mut both = Both::new(rules, history.now);
    for (at, step) in steps.iter().enumerate() {
        match step {
            Step::Clock { by } => history.move_clock(*by),
            Step::Restart { .. } => {}
            Step::Batch { words, .. } => {
                let batch = history.batch(words);
                both.goes(&mut history, &batch)?;
            }
        }
        both.now = history.now;
        if at % STEPS_A_COMPARISON == 0 || at + 1 == steps.len() {
            both.compare()?;
        }
    }
    Ok(())
}

/// A bumped key that comes in its turn is said to be one, also at the end of the lane.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn bumped_keys_are_shown_alike() {
    let list = |run| Word::List { fetcher: 0, run, keys: vec![0, 1, 2] };
    let bump = |key| Word::Bump { key };
    let batch = |words| Step::Batch { words, fails: false };
    // The first one spends what the lane may spend, so that the order comes first afterwards.
    let mut steps = vec![batch(vec![list(1), bump(0)])];
    for _ in KEYS {
        steps.push(batch(vec![Word::Dispatch { leased: true }]));
        steps.push(batch(vec![Word::Done { back: 0, code: 0 }]));
        steps.push(Step::Clock { by: 1 });
    }
    steps.push(batch(vec![list(2), bump(2), bump(1), bump(0)]));
    answers_alike(Rules::default(), &steps).unwrap();
}

/// What a daemon notes of its input directory, its fetchers and files that it leaves out.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn notes_are_answered_alike() {
    let mut both = Both::new(Rules::default(), 1_000_000);
    both.apply(NoteInput(InputDirectory::Lost("no such directory".to_owned())));
    both.now += 10;
    both.apply(NoteInput(InputDirectory::Lost("not a directory".to_owned())));
    both.apply(RejectFile { name: "b.1".to_owned(), reason: "is a pipe".to_owned() });
    both.apply(RejectFile { name: "a.1".to_owned(), reason: "is empty".to_owned() });
    for (name, state, began) in
        [("g", "running, list", 1_000_005), ("f", "running", 5), ("é", "broken off", 5)]
    {
        let last_run = EndedRun { started: 1, ended: 2, exit_code: 7, message: "no".to_owned() };
        both.apply(NoteFetcher(FetcherRecord {
            name: name.into(),
            state: state.to_owned(),
            run_started: Some(began),
            last_run: Some(last_run),
            next_run: None,
        }));
    }
    both.compare().unwrap();
    let [status, _] = both.readers().map(|reader| reader.status(both.now).unwrap());
    assert_eq!((status.managed_fetchers.len(), status.rejected_files.len()), (3, 2));
}
