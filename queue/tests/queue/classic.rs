//! `--classic`: random histories against the reference's rules (spec 2), written naively.

use std::collections::BTreeMap;

use proptest::prelude::*;
use shiftboss_protocol::model::{Key, Row, Run, jitter};
use shiftboss_queue::context::Settings;
use shiftboss_queue::engine::Engine;
use shiftboss_queue::operation::{AddRows, Complete, DeleteRuns, RegisterRun, RowBatch};

use crate::subject;
use crate::words::{answer, dispatch, ready};

/// fetcher, run, key, payload, dispatched
type ReferenceRow = (i64, i64, String, String, bool);

#[derive(Default)]
struct Reference {
    rows: Vec<ReferenceRow>,
    /// started, finished, exit code
    log: BTreeMap<String, (i64, Option<i64>, Option<i64>)>,
    jobs: i64,
}

impl Reference {
    fn add(&mut self, (fetcher, run): (i64, i64), rows: &[Row]) {
        for row in rows {
            let is_it =
                |it: &&mut ReferenceRow| (it.0, it.1, &*it.2) == (fetcher, run, row.key.as_str());
            match self.rows.iter_mut().find(is_it) {
                Some(known) => known.3.clone_from(&row.payload),
                None => {
                    self.rows.push((fetcher, run, row.key.to_string(), row.payload.clone(), false));
                }
            }
        }
    }

    fn ready(&mut self, now: i64) -> String {
        let newest = |it: &&ReferenceRow| {
            !self.rows.iter().any(|other| (other.0, &other.2) == (it.0, &it.2) && other.1 > it.1)
        };
        let free = |it: &&ReferenceRow| match self.log.get(&it.2) {
            Some((started, None, _)) => started + 43_200 < now,
            _ => true,
        };
        let open = self.rows.iter().filter(newest).filter(|it| !it.4).filter(free);
        let rank = |it: &&ReferenceRow| {
            (self.log.get(&it.2).map(|log| log.0), jitter(&it.2), it.2.clone(), it.0)
        };
        let Some((fetcher, _, key, payload, _)) = open.min_by_key(rank).cloned() else {
            return "nothing".into();
        };
        self.jobs += 1;
        for row in self.rows.iter_mut().filter(|it| (it.0, &it.2) == (fetcher, &key)) {
            row.4 = true;
        }
        self.log.insert(key.clone(), (now, None, None));
        format!("job {} {key} {payload}", self.jobs)
    }
}

#[derive(Debug, Clone)]
enum Step {
    Ready,
    Done(&'static str, i64),
    Add(usize, i64, Vec<&'static str>, &'static str),
    Delete(usize, i64),
    Passes(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || prop::sample::select(vec!["a", "b", "c", "d", "e"]);
    let payload = prop::sample::select(vec!["x", "y"]);
    let step = prop_oneof![
        6 => Just(Step::Ready),
        3 => (key(), 0..3_i64).prop_map(|(key, code)| Step::Done(key, code)),
        3 => (0..2_usize, 1..4_i64, prop::collection::vec(key(), 1..5), payload)
            .prop_map(|(fetcher, run, keys, payload)| Step::Add(fetcher, run, keys, payload)),
        1 => (0..2_usize, 1..4_i64).prop_map(|(fetcher, run)| Step::Delete(fetcher, run)),
        2 => prop::sample::select(vec![0, 1, 10, 43_200, 43_201, -5, -100_000]).prop_map(Step::Passes),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// Jobs and log are the reference's, bit for bit.
    #[test]
    fn classic_is_the_references(steps in steps()) {
        let settings = Settings { is_fair: false, ..Settings::default() };
        let mut engine = Engine::new(subject::new(), settings);
        let (mut reference, mut now) = (Reference::default(), 1_700_000_000_i64);
        let run = |fetcher: usize, started| Run { fetcher: ["f", "g"][fetcher].into(), started };
        // Fetchers have their numbers from the first run on; which comes first is not what this is about.
        let known = (0..2).map(|fetcher| RegisterRun(run(fetcher, 0)).into()).collect();
        ready(engine.apply(now * 1_000, known)).unwrap();
        for step in steps {
            let (batch, right) = match step {
                Step::Passes(seconds) => {
                    now += seconds;
                    continue;
                }
                Step::Ready => {
                    (vec![dispatch(None)], reference.ready(now))
                }
                Step::Done(key, exit_code) => {
                    if let Some(log) = reference.log.get_mut(key) {
                        (log.1, log.2) = (Some(now), Some(exit_code));
                    }
                    (vec![Complete { key: Key::new(key).unwrap(), exit_code }.into()], "done".into())
                }
                Step::Add(fetcher, started, keys, payload) => {
                    let row = |key: &&str| Row { key: Key::new(key).unwrap(), payload: payload.into() };
                    let rows: Vec<Row> = keys.iter().map(row).collect();
                    reference.add((fetcher as i64, started), &rows);
                    let run = run(fetcher, started);
                    let rows = AddRows(RowBatch::of(run.clone(), rows)).into();
                    (vec![RegisterRun(run).into(), rows], "done".into())
                }
                Step::Delete(fetcher, started) => {
                    reference.rows.retain(|row| (row.0, row.1) != (fetcher as i64, started));
                    let runs = vec![run(fetcher, started)];
                    (vec![DeleteRuns { runs, limit: 100 }.into()], "count 1".into())
                }
            };
            let answers = ready(engine.apply(now * 1_000, batch)).unwrap();
            prop_assert_eq!(answer(answers.last().unwrap()), right);
        }
        prop_assert_eq!(subject::log(engine.store()), reference.log);
    }
}
