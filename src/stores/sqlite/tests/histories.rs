//! The store against the naive model, over random histories: same answers, same tables, and all
//! that the triggers keep equal to what can be counted.

use std::ops::Range;

use proptest::prelude::*;
use shiftboss_actors::store::answers::Hold;
use shiftboss_actors::store::{Dispatched, EndHolds};
use shiftboss_actors::testing::model::{Model, Rules};
use shiftboss_actors::testing::one_by_one::OneByOne;
use shiftboss_protocol::model::Attempt;

use super::support::{FAIR, Site, batch, cases, key, options_by, run};
use crate::stores::sqlite::Policy;

/// So many that several are known to be next at a time.
pub const KEYS: [&str; 10] =
    ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "é"];
const FETCHERS: [&str; 3] = ["f", "g", "h"];
const HALF_DAY: i64 = 43_200;

/// One thing that happens. Keys, fetchers and attempts are chosen by index.
#[derive(Debug, Clone)]
pub enum Event {
    Add { fetcher: usize, run: i64, rows: Vec<(usize, u8)>, complete: bool },
    Delete { fetcher: usize, run: i64, step: usize },
    Dispatch,
    Finish { key: usize, code: i64 },
    Undo { back: i64 },
    Clock { by: i64 },
    EndHolds,
    ReplaceLog { key: usize, ago: i64, took: Option<i64> },
    RestartLog { key: usize, ago: i64 },
    RefinishLog { key: usize, ended: bool },
    SetDispatched { key: usize, dispatched: bool },
    SetHeld { key: usize, held: bool },
    SetBumped { key: usize, bumped: bool },
}

fn index(of: Range<usize>) -> Range<usize> {
    of
}

pub fn event() -> impl Strategy<Value = Event> {
    let keys = || index(0..KEYS.len());
    let fetchers = || index(0..FETCHERS.len());
    let rows = prop::collection::vec((keys(), 0..3_u8), 0..12);
    let ago = || prop_oneof![Just(0), 1..100_i64, Just(HALF_DAY), Just(HALF_DAY + 1)];
    prop_oneof![
        4 => (fetchers(), 1..4_i64, rows, any::<bool>())
            .prop_map(|(fetcher, run, rows, complete)| Event::Add { fetcher, run, rows, complete }),
        2 => (fetchers(), 1..4_i64, 1..4_usize)
            .prop_map(|(fetcher, run, step)| Event::Delete { fetcher, run, step }),
        24 => Just(Event::Dispatch),
        16 => (keys(), -1..2_i64).prop_map(|(key, code)| Event::Finish { key, code }),
        3 => (0..4_i64).prop_map(|back| Event::Undo { back }),
        3 => prop_oneof![
            1..100_i64, -100..0_i64, Just(HALF_DAY), Just(HALF_DAY + 1), Just(-HALF_DAY - 1),
        ].prop_map(|by| Event::Clock { by }),
        3 => Just(Event::EndHolds),
        1 => (keys(), ago(), prop::option::of(0..100_i64))
            .prop_map(|(key, ago, took)| Event::ReplaceLog { key, ago, took }),
        1 => (keys(), ago()).prop_map(|(key, ago)| Event::RestartLog { key, ago }),
        1 => (keys(), any::<bool>()).prop_map(|(key, ended)| Event::RefinishLog { key, ended }),
        1 => (keys(), any::<bool>())
            .prop_map(|(key, dispatched)| Event::SetDispatched { key, dispatched }),
        1 => (keys(), any::<bool>()).prop_map(|(key, held)| Event::SetHeld { key, held }),
        1 => (keys(), any::<bool>()).prop_map(|(key, bumped)| Event::SetBumped { key, bumped }),
    ]
}

/// A store and its model, going through the same history.
pub struct Pair {
    pub site: Site,
    pub model: Model,
    pub now: i64,
    attempts: i64,
}

impl Pair {
    pub fn new(policy: Policy) -> Self {
        let lease_seconds = policy.lease();
        let rules =
            Rules { is_fair: policy != Policy::Classic, lease_seconds, ..Rules::after_failures() };
        let options = options_by(&rules, policy);
        let site = Site::opened(tempfile::tempdir().unwrap(), &options);
        let model = Model::new(rules);
        Self { site, model, now: 1_000_000, attempts: 0 }
    }

    pub fn apply(&mut self, event: &Event) -> Result<(), TestCaseError> {
        let now = self.now;
        match event {
            Event::Add { fetcher, run: started, rows, complete } => {
                self.add(FETCHERS[*fetcher], *started, rows, *complete);
            }
            Event::Delete { fetcher, run: started, step } => {
                let gone = run(FETCHERS[*fetcher], *started);
                while self.site.delete_step(&gone, *step) {}
                self.model.delete(FETCHERS[*fetcher], *started);
                self.model.forget_bumps();
            }
            Event::Dispatch => self.dispatch()?,
            Event::Finish { key: at, code } => {
                self.site.commit(|store| store.finish(&key(KEYS[*at]), *code, now)).unwrap();
                self.model.finish(KEYS[*at], *code, now);
            }
            Event::Undo { back } => {
                let attempt = self.attempts - back;
                prop_assert_eq!(self.site.undo(Attempt(attempt)), self.model.undo(attempt));
            }
            Event::Clock { by } => self.now = (now + by).max(HALF_DAY * 2),
            Event::EndHolds => {
                self.site.commit(|store| store.ask(now, EndHolds)).unwrap();
                self.model.end_holds(now);
                self.model.forget_bumps();
            }
            _ => self.edit(event),
        }
        Ok(())
    }

    fn add(&mut self, fetcher: &str, started: i64, rows: &[(usize, u8)], complete: bool) {
        let rows: Vec<(String, String)> = rows
            .iter()
            .map(|(key, payload)| (KEYS[*key].to_owned(), payload.to_string()))
            .collect();
        let texts: Vec<_> =
            rows.iter().map(|(key, payload)| (key.as_str(), payload.as_str())).collect();
        let run = run(fetcher, started);
        self.site.commit(|store| {
            store.register_run(&run).unwrap();
            store.add_rows(&batch(&run, &texts, complete)).unwrap();
        });
        self.model.register(fetcher, started);
        self.model.add(fetcher, started, &rows, complete);
    }

    fn dispatch(&mut self) -> Result<(), TestCaseError> {
        let now = self.now;
        let answer = self.site.commit(|store| store.dispatch(now, None)).unwrap();
        let answer = match answer {
            Dispatched::Job(attempt, job) => {
                Some((attempt.0, format!("{} {}", job.key, job.payload)))
            }
            Dispatched::Nothing => None,
            Dispatched::Later => return Err(TestCaseError::fail("nothing is being deleted")),
        };
        self.attempts = answer.as_ref().map_or(self.attempts, |(attempt, _)| *attempt);
        prop_assert_eq!(answer, self.model.dispatch(now));
        Ok(())
    }

    /// Edits by another connection, as operators make them.
    fn edit(&mut self, event: &Event) {
        let now = self.now;
        match event {
            Event::ReplaceLog { key, ago, took } => {
                let (key, started) = (KEYS[*key], now - ago);
                let finished = took.map(|took| started + took);
                let sql = "INSERT OR REPLACE INTO log VALUES (?1, ?2, ?3, NULL)";
                self.site.outside.execute(sql, (key, started, finished)).unwrap();
                self.model.replace_log(key, (started, finished, None));
            }
            Event::RestartLog { key, ago } => {
                let sql = "UPDATE log SET started = ?2 WHERE attr_path = ?1";
                self.site.outside.execute(sql, (KEYS[*key], now - ago)).unwrap();
                self.model.restart_log(KEYS[*key], now - ago);
            }
            Event::RefinishLog { key, ended } => {
                let finished = ended.then_some(now);
                let sql = "UPDATE log SET finished = ?2 WHERE attr_path = ?1";
                self.site.outside.execute(sql, (KEYS[*key], finished)).unwrap();
                self.model.refinish_log(KEYS[*key], finished);
            }
            Event::SetDispatched { key, dispatched } => {
                let sql = "UPDATE queue SET is_dequeued = ?2 WHERE attr_path = ?1";
                self.site.outside.execute(sql, (KEYS[*key], dispatched)).unwrap();
                self.model.set_dispatched(KEYS[*key], *dispatched);
            }
            Event::SetHeld { key, held: true } => {
                let sql =
                    "INSERT OR REPLACE INTO shiftboss_holds VALUES (?1, 'hold', 0, NULL, '', '')";
                self.site.outside.execute(sql, [KEYS[*key]]).unwrap();
                self.model.hold(KEYS[*key], Hold::of_operator(None, "", "", 0));
            }
            Event::SetHeld { key, held: false } => {
                let sql = "DELETE FROM shiftboss_holds WHERE attr_path = ?1";
                self.site.outside.execute(sql, [KEYS[*key]]).unwrap();
                self.model.unhold(KEYS[*key]);
            }
            Event::SetBumped { key, bumped } => {
                let sql = if *bumped {
                    "INSERT OR REPLACE INTO shiftboss_bumps (attr_path, since, by) VALUES (?1, 0, '')"
                } else {
                    "DELETE FROM shiftboss_bumps WHERE attr_path = ?1"
                };
                self.site.outside.execute(sql, [KEYS[*key]]).unwrap();
                self.model.set_bumped(KEYS[*key], *bumped);
            }
            _ => {}
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.site.tables(), self.model.tables());
        self.site.check_kept();
        Ok(())
    }
}

fn goes_the_same_way(policy: Policy, history: &[Event]) -> Result<(), TestCaseError> {
    let mut pair = Pair::new(policy);
    for event in history {
        pair.apply(event)?;
        pair.check()?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(300))]

    /// With the default policy.
    #[test]
    fn fair_histories(history in prop::collection::vec(event(), 1..120)) {
        goes_the_same_way(FAIR, &history)?;
    }

    /// With the Python supervisor's.
    #[test]
    fn classic_histories(history in prop::collection::vec(event(), 1..120)) {
        goes_the_same_way(Policy::Classic, &history)?;
    }
}
