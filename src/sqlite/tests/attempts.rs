//! Leased attempts against the naive model, over random histories: each attempt ends exactly once,
//! nobody gets a job that somebody holds, and a job that comes back is at its old place. Single tasks among
//! them are kept until one of their jobs succeeds.

mod events;

use proptest::prelude::*;
use shiftboss_actors::model::Attempt;
use shiftboss_actors::store::{Dispatch, Store, Tasks};

use events::{Event, FETCHERS, HALF_DAY, KEYS, Word, event};

use super::model::Model;
use super::support::{FAIR, Site, batch, cases, holder, key, options, rows_of, run};
use super::tasks::task;
use crate::sqlite::{Options, SqliteStore};

/// A store and its model, going through the same history.
struct Pair {
    site: Option<Site>,
    options: Options,
    model: Model,
    now: i64,
    /// All numbers that were given out and committed.
    given: Vec<i64>,
    last: i64,
}

impl Pair {
    fn new(max_attempts: u32) -> Self {
        let options = Options { max_attempts, ..options(FAIR) };
        let site = Site::opened(tempfile::tempdir().unwrap(), &options);
        let model = Model::new(FAIR).with_max_attempts(max_attempts.into());
        Self { site: Some(site), options, model, now: 1_000_000, given: Vec::new(), last: 0 }
    }

    fn site(&mut self) -> &mut Site {
        self.site.as_mut().unwrap()
    }

    /// Runs a mutation in the open transaction, or in one of its own.
    fn mutate<T>(&mut self, mutation: impl FnOnce(&mut SqliteStore) -> T) -> T {
        let site = self.site();
        if site.store.in_transaction() { mutation(&mut site.store) } else { site.commit(mutation) }
    }

    fn apply(&mut self, event: &Event) -> Result<(), TestCaseError> {
        match event {
            Event::Word(word) => self.say(word)?,
            Event::Together { words, fails } => self.say_together(words, *fails)?,
            Event::Restart { clean } => self.restart(*clean),
            Event::TakenBack => {
                let sql = "PRAGMA foreign_keys = ON; DELETE FROM fetcher_runs WHERE fetcher_id = 0";
                self.site().edit(sql);
                self.model.take_back_tasks();
                self.restart(true);
            }
            Event::Clock { by } => self.now = (self.now + by).max(HALF_DAY * 2),
            _ => self.edit(event),
        }
        Ok(())
    }

    fn restart(&mut self, clean: bool) {
        let site = self.site.take().unwrap();
        self.site = Some(site.restart(&self.options, clean));
        self.model.restore_tasks(&KEYS);
        // What was rolled back nobody saw.
        self.last = self.given.last().copied().unwrap_or(0);
    }

    fn say_together(&mut self, words: &[Word], fails: bool) -> Result<(), TestCaseError> {
        let before = (self.model.clone(), self.given.clone());
        self.site().store.begin().unwrap();
        for word in words {
            self.say(word)?;
        }
        if fails {
            self.site().store.roll_back().unwrap();
            (self.model, self.given) = before;
        } else {
            self.site().store.commit().unwrap();
        }
        self.site().check_slots();
        Ok(())
    }

    fn say(&mut self, word: &Word) -> Result<(), TestCaseError> {
        let (now, last) = (self.now, self.last);
        match word {
            Word::List { fetcher, run, keys } => self.list(FETCHERS[*fetcher], *run, keys),
            Word::Delete { fetcher, run: started } => self.delete(FETCHERS[*fetcher], *started),
            Word::Dispatch { leased } => self.dispatch(*leased)?,
            Word::Done { back, code } => {
                let attempt = Attempt(last - back);
                let told = self.mutate(|store| store.finish_attempt(attempt, *code, now)).unwrap();
                prop_assert_eq!(told, self.model.finish_attempt(attempt.0, *code, now));
            }
            Word::Release { back } => {
                let attempt = Attempt(last - back);
                let told = self.mutate(|store| store.release(attempt, now)).unwrap();
                prop_assert_eq!(told, self.model.release(attempt.0));
            }
            Word::Expire { back } => {
                let attempt = Attempt(last - back);
                let lost = self.mutate(|store| store.expire(attempt, now)).unwrap();
                let lost = lost.map(|lost| (lost.key.to_string(), lost.dead_letter));
                prop_assert_eq!(lost, self.model.expire(attempt.0));
            }
            Word::Finish { key: at, code } => {
                self.mutate(|store| store.finish(&key(KEYS[*at]), *code, now)).unwrap();
                self.model.finish(KEYS[*at], *code, now);
            }
            Word::AddTask { key: at, payload } => {
                let payload = payload.to_string();
                let single = task(KEYS[*at], &payload);
                let added = self.mutate(|store| store.add_task(&single, now)).unwrap();
                prop_assert_eq!(added, self.model.add_task(KEYS[*at], &payload, now));
            }
            Word::Cancel { key: at } => {
                let gone = self.mutate(|store| store.cancel_tasks(&key(KEYS[*at]), now)).unwrap();
                prop_assert_eq!(gone, self.model.cancel_tasks(KEYS[*at], now));
            }
            Word::Undo { back } => self.undo(Attempt(last - back))?,
            Word::Retry { key: at } => {
                let rows = self.mutate(|store| store.retry(&key(KEYS[*at]), None)).unwrap();
                prop_assert_eq!(rows, self.model.retry(KEYS[*at]));
            }
            Word::Requeue { key: at } => {
                let of = key(KEYS[*at]);
                let requeued = self.mutate(|store| store.requeue(&of, now)).unwrap();
                prop_assert_eq!(requeued, self.model.requeue(KEYS[*at], now));
            }
            Word::Pause(paused) => {
                self.mutate(|store| store.set_paused(*paused)).unwrap();
                self.model.pause(*paused);
            }
        }
        Ok(())
    }

    fn list(&mut self, fetcher: &str, started: i64, keys: &[usize]) {
        let rows: Vec<_> = keys.iter().map(|key| (KEYS[*key], "1")).collect();
        let run = run(fetcher, started);
        self.mutate(|store| {
            store.register_run(&run).unwrap();
            store.add_rows(&batch(&run, &rows, true)).unwrap();
        });
        let rows: Vec<_> =
            rows.iter().map(|(key, text)| (key.to_string(), text.to_string())).collect();
        self.model.register(fetcher, started);
        self.model.add(fetcher, started, &rows, true);
    }

    fn delete(&mut self, fetcher: &str, started: i64) {
        let gone = run(fetcher, started);
        self.mutate(
            |store| {
                while store.delete_runs(std::slice::from_ref(&gone), 2).unwrap() == 0 {}
            },
        );
        self.model.delete(fetcher, started);
    }

    fn dispatch(&mut self, leased: bool) -> Result<(), TestCaseError> {
        let (now, holder) = (self.now, holder("builder", 60));
        let holder = leased.then_some(&holder);
        let answer = match self.mutate(|store| store.dispatch(now, holder)).unwrap() {
            Dispatch::Job(attempt, job) => {
                Some((attempt.0, format!("{} {}", job.key, job.payload)))
            }
            Dispatch::Nothing => None,
            Dispatch::Later => return Err(TestCaseError::fail("nothing is being deleted")),
        };
        if let Some((attempt, _)) = &answer {
            prop_assert!(*attempt > self.last, "attempt {} again", attempt);
            self.last = *attempt;
            self.given.push(*attempt);
            self.model.skip_to(*attempt);
        }
        prop_assert_eq!(answer, self.model.dispatch_to(now, leased));
        Ok(())
    }

    fn undo(&mut self, attempt: Attempt) -> Result<(), TestCaseError> {
        let sql = format!("SELECT attr_path FROM shiftboss_flights WHERE attempt = {}", attempt.0);
        let found = rows_of(&self.site().store.connection, &sql);
        let of = key(found.first().map_or("unknown", String::as_str));
        let undone = self.mutate(|store| store.undo(&of, attempt)).unwrap();
        prop_assert_eq!(undone, self.model.undo(attempt.0));
        Ok(())
    }

    /// Edits by another connection, as operators make them.
    fn edit(&mut self, event: &Event) {
        let now = self.now;
        let outside = &self.site.as_ref().unwrap().outside;
        match event {
            Event::FinishLog { key } => {
                let sql = "UPDATE log SET finished = ?2 WHERE attr_path = ?1";
                outside.execute(sql, (KEYS[*key], now)).unwrap();
                self.model.refinish_log(KEYS[*key], Some(now));
            }
            Event::DeleteLog { key } => {
                outside.execute("DELETE FROM log WHERE attr_path = ?1", [KEYS[*key]]).unwrap();
                // No trigger of the reference's does that; whoever wants the place too says so.
                let sql = "UPDATE queue SET last_started = NULL WHERE attr_path = ?1";
                outside.execute(sql, [KEYS[*key]]).unwrap();
                self.model.delete_log(KEYS[*key]);
            }
            Event::RestartLog { key, ago } => {
                let sql = "UPDATE log SET started = ?2 WHERE attr_path = ?1";
                outside.execute(sql, (KEYS[*key], now - ago)).unwrap();
                self.model.restart_log(KEYS[*key], now - ago);
            }
            _ => {}
        }
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        let now = self.now;
        self.check_attempts()?;
        let (given, model) = (self.given.clone(), self.model.clone());
        let site = self.site();
        prop_assert_eq!(site.tables(), model.tables());
        site.check_kept();
        for attempt in given {
            prop_assert_eq!(site.store.is_held(Attempt(attempt)).unwrap(), model.is_held(attempt));
        }
        let leases = site.store.leases().unwrap();
        prop_assert!(leases.iter().all(|(_, seconds)| *seconds == 60));
        let leases: Vec<_> = leases.iter().map(|(attempt, _)| attempt.0).collect();
        prop_assert_eq!(leases, model.held());
        prop_assert_eq!(site.store.in_flight(now).unwrap(), model.in_flight(now));
        Ok(())
    }

    /// Every attempt is in flight or has ended, and is leased as the model says.
    fn check_attempts(&mut self) -> Result<(), TestCaseError> {
        let (given, ended) = (self.given.clone(), self.model.ended());
        let site = self.site();
        let known = site.rows(
            "SELECT attempt FROM shiftboss_flights UNION ALL
             SELECT attempt FROM shiftboss_attempts ORDER BY attempt",
        );
        prop_assert_eq!(known, given.iter().map(i64::to_string).collect::<Vec<_>>());
        let twice = "SELECT attr_path FROM shiftboss_flights WHERE lease IS NOT NULL
            GROUP BY attr_path HAVING count(*) > 1";
        prop_assert_eq!(site.rows(twice), Vec::<String>::new());
        let stored = site.rows(
            "SELECT line FROM (
                SELECT attempt || '|' || attr_path || '|' || outcome AS line
                    FROM shiftboss_attempts WHERE worker IS NOT NULL
                UNION ALL SELECT 'tries|' || fetcher_id || '|' || run_started || '|' || attr_path
                    || '|' || tries FROM shiftboss_tries
            ) ORDER BY line",
        );
        prop_assert_eq!(stored, ended);
        Ok(())
    }
}

proptest! {
    #![proptest_config(cases(300))]

    /// Any interleaving of requests, ends, restarts and edits leaves each attempt ended exactly once.
    #[test]
    fn each_attempt_ends_exactly_once(
        max_attempts in 2..4_u32,
        history in prop::collection::vec(event(), 1..80),
    ) {
        let mut pair = Pair::new(max_attempts);
        for event in &history {
            pair.apply(event)?;
            pair.check()?;
        }
    }
}
