//! Leased attempts against the naive model, over random histories: each attempt ends exactly once,
//! nobody gets a job that somebody holds, and a job that comes back is at its old place. Single tasks among
//! them are kept until one of their jobs succeeds. Others edit the tables meanwhile.

mod events;

use std::sync::Arc;

use proptest::prelude::*;
use shiftboss_actors::store::{Operation, Reader, Store};
use shiftboss_actors::testing::conformance::{self, History, KEYS, Step, Subject};
use shiftboss_actors::testing::model::Rules;
use shiftboss_actors::testing::one_by_one::OneByOne;

use events::{Event, event};

use super::support::{FAIR, Site, cases, options_by};
use crate::stores::sqlite::Options;
use crate::stores::{self, Database};

/// A store that can be started again.
struct Restarted {
    site: Option<Site>,
    options: Options,
}

impl Restarted {
    fn new(rules: Rules) -> Self {
        let options = options_by(&rules, FAIR);
        let site = Site::opened(tempfile::tempdir().unwrap(), &options);
        Self { site: Some(site), options }
    }

    fn site(&mut self) -> &mut Site {
        self.site.as_mut().unwrap()
    }
}

impl Subject for Restarted {
    fn store(&mut self) -> &mut dyn Store {
        &mut self.site().store
    }

    fn fail(&mut self, now: i64, batch: Vec<Operation>) {
        self.site().fail_batch(now, batch);
    }

    fn restart(&mut self, clean: bool) {
        let site = self.site.take().unwrap();
        self.site = Some(site.restart(&self.options, clean));
    }

    fn reader(&mut self) -> Arc<dyn Reader> {
        let database = Database::File(self.site().directory.path().join("state.db"));
        stores::reader(&database).unwrap()
    }
}

/// A store and its model, going through the same history.
struct Pair {
    subject: Restarted,
    history: History,
}

impl Pair {
    fn new(max_expired_leases: i64) -> Self {
        let rules = Rules { max_expired_leases, ..Rules::after_failures() };
        Self { subject: Restarted::new(rules.clone()), history: History::new(rules) }
    }

    fn apply(&mut self, event: &Event) -> Result<(), TestCaseError> {
        let Self { subject, history } = self;
        match event {
            Event::Step(Step::Batch { words, fails: true }) => {
                subject.fail(history.now, history.batch(words));
            }
            Event::Step(Step::Batch { words, fails: false }) => {
                let batch = history.batch(words);
                if !batch.iter().all(Operation::only_reads) {
                    history.model.resolve_edited();
                }
                let store = &mut subject.site().store;
                let outcomes = store.apply_at_once(history.now, batch.clone()).unwrap();
                subject.site().check_partitions();
                history.follow(&batch, outcomes)?;
            }
            Event::Step(Step::Restart { clean }) => self.restart(*clean),
            Event::Step(Step::Clock { by }) => history.move_clock(*by),
            Event::TakenBack => {
                let sql = "PRAGMA foreign_keys = ON; DELETE FROM fetcher_runs WHERE fetcher_id = 0";
                subject.site().edit(sql);
                history.model.take_back_tasks();
                self.restart(true);
            }
            _ => self.edit(event),
        }
        Ok(())
    }

    fn restart(&mut self, clean: bool) {
        self.subject.restart(clean);
        self.history.model.restore_tasks(&KEYS);
    }

    /// Edits by another connection, as operators make them.
    fn edit(&mut self, event: &Event) {
        let now = self.history.now;
        let model = &mut self.history.model;
        let outside = &self.subject.site.as_ref().unwrap().outside;
        match event {
            Event::FinishLog { key } => {
                let sql = "UPDATE log SET finished = ?2 WHERE attr_path = ?1";
                outside.execute(sql, (KEYS[*key], now)).unwrap();
                model.refinish_log(KEYS[*key], Some(now));
            }
            Event::DeleteLog { key } => {
                outside.execute("DELETE FROM log WHERE attr_path = ?1", [KEYS[*key]]).unwrap();
                // No trigger of the reference's does that; whoever wants the place too says so.
                let sql = "UPDATE queue SET last_started = NULL WHERE attr_path = ?1";
                outside.execute(sql, [KEYS[*key]]).unwrap();
                model.delete_log(KEYS[*key]);
            }
            Event::RestartLog { key, ago } => {
                let sql = "UPDATE log SET started = ?2 WHERE attr_path = ?1";
                outside.execute(sql, (KEYS[*key], now - ago)).unwrap();
                model.restart_log(KEYS[*key], now - ago);
            }
            _ => {}
        }
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        self.check_attempts()?;
        let tables = self.history.model.tables();
        let site = self.subject.site();
        prop_assert_eq!(site.tables(), tables);
        site.check_kept();
        self.history.check(&mut site.store)
    }

    /// Every attempt is in flight or has ended, and is leased as the model says.
    fn check_attempts(&mut self) -> Result<(), TestCaseError> {
        let History { model, given, .. } = &self.history;
        let kept = given.iter().filter(|attempt| !model.is_forgotten(**attempt));
        let (kept, ended) = (kept.map(i64::to_string).collect::<Vec<_>>(), model.ended());
        let site = self.subject.site();
        let known = site.rows(
            "SELECT attempt FROM shiftboss_in_flight UNION ALL
             SELECT attempt FROM shiftboss_attempts ORDER BY attempt",
        );
        prop_assert_eq!(known, kept);
        let twice = "SELECT attr_path FROM shiftboss_deliveries WHERE lease IS NOT NULL
            GROUP BY attr_path HAVING count(*) > 1";
        prop_assert_eq!(site.rows(twice), Vec::<String>::new());
        let stored = site.rows(
            "SELECT line FROM (
                SELECT attempt || '|' || attr_path || '|' || outcome AS line
                    FROM shiftboss_attempts WHERE worker IS NOT NULL
                UNION ALL SELECT 'expired_leases|' || fetcher_id || '|' || run_started || '|' || attr_path
                    || '|' || expired_leases FROM shiftboss_expired_leases
            ) ORDER BY line",
        );
        prop_assert_eq!(stored, ended);
        Ok(())
    }
}

proptest! {
    #![proptest_config(cases(150))]

    /// Any interleaving of requests, ends, restarts and edits leaves each attempt ended exactly once.
    #[test]
    fn each_attempt_ends_exactly_once(
        max_expired_leases in 2..4_i64,
        history in prop::collection::vec(event(), 1..80),
    ) {
        let mut pair = Pair::new(max_expired_leases);
        for event in &history {
            pair.apply(event)?;
            pair.check()?;
        }
    }
}

/// What every store must pass.
#[test]
fn conforms() {
    conformance::passes(cases(100), Restarted::new);
}
