//! Power cuts at random moments of random histories: everything acknowledged is there, the file is sound, and a batch
//! under way is there as a whole or not at all.

mod recorder;

use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_actors::store::Store;
use shiftboss_protocol::model::Attempt;
use shiftboss_queue::operation::{
    AddRows, Complete, CompleteAttempt, DeleteRuns, Dispatch, Dispatched, Expire, RegisterRun,
};
use shiftboss_sqlite::{Findings, at_once, look_through};

use super::support::{FAIR, Site, batch, holder, key, options, run};
use crate::stores::sqlite::{Durability, Options};

const STEPS: usize = 60;
const CUTS: usize = 10;
const HALF_DAY: i64 = 43_200;
const KEYS: [&str; 6] = ["alpha", "bravo", "charlie", "delta", "echo", "é"];

/// The number of histories is in the environment's SHIFTBOSS_POWER_CUTS (`make soak`); else there are few.
fn seeds(few: u64) -> std::ops::Range<u64> {
    let asked = std::env::var("SHIFTBOSS_POWER_CUTS").ok();
    0..asked.map_or(few, |text| text.parse().expect("SHIFTBOSS_POWER_CUTS is a number"))
}

/// Random numbers that a seed repeats (splitmix64).
struct Dice(u64);

impl Dice {
    /// A number below `ways`.
    fn below(&mut self, ways: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % ways
    }

    fn of<'a, T>(&mut self, things: &'a [T]) -> &'a T {
        &things[self.below(things.len() as u64) as usize]
    }
}

/// Everything in the queue that a reply may have acknowledged.
const TOLD: [&str; 8] = [
    "SELECT * FROM fetchers",
    "SELECT * FROM fetcher_runs",
    "SELECT * FROM queue ORDER BY 1, 2, 3",
    "SELECT * FROM log ORDER BY 1",
    "SELECT key, attempt, last_attempt FROM keys ORDER BY key",
    "SELECT number, key, status FROM tasks",
    "SELECT attempt, key, outcome, exit_code FROM attempts ORDER BY ended",
    "SELECT hour, fetcher, outcome, jobs FROM hours WHERE jobs > 0",
];

fn state(site: &Site) -> Vec<String> {
    TOLD.iter().flat_map(|sql| site.rows(sql)).collect()
}

fn durable(durability: Durability) -> Options {
    Options { durability, ..options(FAIR) }
}

/// A history that is recorded.
struct Recorded {
    site: Site,
    dice: Dice,
    now: i64,
    /// Leased attempts, however they ended.
    leased: Vec<Attempt>,
    /// After each transaction: how much was recorded by then, and the state.
    acknowledged: Vec<(usize, Vec<String>)>,
}

impl Recorded {
    fn begin(seed: u64, durability: Durability) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // The first one installs the recorder, so the database is opened after it.
        recorder::start(directory.path());
        let site = Site::opened(directory, &durable(durability));
        recorder::start(site.directory.path());
        let acknowledged = vec![(0, state(&site))];
        // Long enough ago that nothing is in the future when a copy is opened, and recent enough that no hour is too
        // old.
        let now = SystemClock.now() - (STEPS as i64 + 1) * HALF_DAY;
        Self { site, dice: Dice(seed), now, leased: Vec::new(), acknowledged }
    }

    /// Does one thing, in one transaction.
    fn step(&mut self) {
        let (dice, now) = (&mut self.dice, self.now);
        let some_run = run(["f", "g"][dice.below(2) as usize], 1 + dice.below(2) as i64);
        let some_key = *dice.of(&KEYS);
        let some_attempt = self.leased.get(dice.below(8) as usize).copied();
        let some_code = dice.below(2) as i64;
        let keys: Vec<_> = (0..dice.below(9)).map(|_| (*dice.of(&KEYS), "payload")).collect();
        let site = &mut self.site;
        let classic = Dispatch { holder: None, fetchers: None };
        match (dice.below(20), some_attempt) {
            (0, _) => drop(site.ask(0, RegisterRun(some_run)).ok()),
            (1..4, _) => drop(site.ask(0, AddRows(batch(&some_run, &keys))).ok()),
            (4..9, _) => drop(site.ask(now, classic).unwrap()),
            (9, _) => {
                let leased = Dispatch { holder: Some(holder("w", 60)), ..classic };
                if let Dispatched::Job(attempt, _, _) = site.ask(now, leased).unwrap() {
                    self.leased.insert(0, attempt);
                }
            }
            (10..14, _) => {
                site.ask(now, Complete { key: key(some_key), exit_code: some_code }).unwrap();
            }
            (14, Some(attempt)) => {
                site.ask(now, CompleteAttempt { attempt, exit_code: 0 }).unwrap();
            }
            (15, Some(attempt)) => drop(site.ask(now, Expire(attempt)).unwrap()),
            (16, _) => {
                site.ask(0, DeleteRuns { runs: vec![some_run], limit: 2 }).unwrap();
            }
            (17, _) => site.edit(&format!(
                "UPDATE queue SET is_dequeued = {some_code} WHERE attr_path = '{some_key}'"
            )),
            (18, _) => drop(at_once(site.store.maintain()).unwrap()),
            _ => self.now += *dice.of(&[1, 100, HALF_DAY + 1]),
        }
        let recorded = recorder::recorded(self.site.directory.path());
        self.acknowledged.push((recorded, state(&self.site)));
    }
}

/// Cuts the power of one history at several moments. Says after how many cuts something was lost that was acknowledged; the
/// rest must stand all the same.
fn losses(seed: u64, durability: Durability) -> usize {
    let mut recorded = Recorded::begin(seed, durability);
    for _ in 0..STEPS {
        recorded.step();
    }
    let Recorded { site, mut dice, acknowledged, .. } = recorded;
    let tape = recorder::stop(site.directory.path());
    drop(site);
    let mut losses = 0;
    for _ in 0..CUTS {
        let cut = dice.below(tape.len() as u64 + 1) as usize;
        let directory = tempfile::tempdir().unwrap();
        tape.cut(cut, directory.path(), |ways| dice.below(ways));
        let what = format!("seed {seed}, cut {cut} of {}, {durability:?}", tape.len());
        let left = Site::opened(directory, &durable(Durability::Process));
        assert_eq!(look_through(&left.outside), Findings::default(), "{what}");
        let found = state(&left);
        let last = acknowledged.iter().rposition(|(recorded, _)| *recorded <= cut).unwrap();
        let is_there = |from: usize| {
            let until = acknowledged.len().min(last + 2);
            acknowledged[from..until].iter().any(|(_, state)| *state == found)
        };
        assert!(is_there(0), "{what}: {found:#?}");
        losses += usize::from(!is_there(last));
    }
    losses
}

/// `--durability power`: everything acknowledged is there.
#[test]
fn a_power_cut_loses_nothing_that_was_acknowledged() {
    for seed in seeds(12) {
        assert_eq!(losses(seed, Durability::Power), 0, "seed {seed}");
    }
}

/// `--durability process` may lose the last of it, and nothing else. It does, so the cuts are real ones.
#[test]
fn a_power_cut_with_durability_process() {
    assert!(seeds(6).map(|seed| losses(seed, Durability::Process)).sum::<usize>() > 0);
}
