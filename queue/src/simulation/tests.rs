//! Simulations that can be reckoned by hand, and the same ones over the store that tests use.

use proptest::prelude::*;

use super::*;
use crate::groups::{By, GroupRules, Limits, Rate, Table};
use crate::policy::{CountedEnds, Delays, Retries, RetryRules};
use crate::testing::Memory;

const START: Millis = 1_700_000_000_000;

fn jobs(mean_ms: Millis, is_exact: bool, failures: f64) -> Jobs {
    Jobs { of: BTreeMap::new(), usual: Work { mean_ms, is_exact, failures }, seed: 1 }
}

fn rows(keys: impl Iterator<Item = String>) -> Vec<Row> {
    keys.map(|key| Row { key: Key::new(&key).unwrap(), payload: String::new() }).collect()
}

fn grouped(limits: Limits) -> Settings {
    let table = Table { name: "host".into(), by: By::Host, keys: None, limits, exceptions: vec![] };
    Settings { groups: GroupRules::new(vec![table]).unwrap(), ..Settings::default() }
}

/// Ten pages of each host.
fn pages(settings: Settings, hosts: usize) -> Simulation {
    let mut it = Simulation::new(settings, START).unwrap();
    let page = |at: usize| format!("https://h{}.example/{at}", at % hosts);
    it.add("pages", rows((0..10 * hosts).map(page))).unwrap();
    it
}

#[test]
fn two_workers_share_ten_jobs() {
    let told = pages(Settings::default(), 1).run(&jobs(3_000, true, 0.0), 2, None).unwrap();
    let all = Cycle { tasks: 10, ran: 10, took_ms: 15_000 };
    assert_eq!((told.took_ms, told.left, told.jobs, told.failures), (15_000, 0, 10, 0));
    assert_eq!((told.busy_ms, told.limited_ms), (30_000, 0));
    assert_eq!(told.fetchers, BTreeMap::from([("pages".into(), all)]));
    assert_eq!(told.slices.iter().sum::<u64>(), 10);
    assert!((SLICES / 2..=SLICES).contains(&told.slices.len()), "{told:?}");
}

/// A start each five seconds, however many workers there are; of two hosts, two.
#[test]
fn limits_bind() {
    let delay = grouped(Limits { delay: Some(5_000), ..Limits::default() });
    for (hosts, workers) in [(1, 1), (1, 2), (1, 9), (2, 2), (2, 9)] {
        let told = pages(delay.clone(), hosts).run(&jobs(3_000, true, 0.0), workers, None).unwrap();
        assert_eq!(told.took_ms, 9 * 5_000 + 3_000, "{hosts} {workers}");
        let idle = Millis::from(workers) * 45_000 - 27_000 * hosts as Millis;
        assert_eq!(told.limited_ms, idle, "{hosts} {workers}");
    }
    let hourly = Rate { starts: 2, window: 3_600_000 };
    let rate = grouped(Limits { rate: Some(hourly), ..Limits::default() });
    let told = pages(rate, 1).run(&jobs(3_000, true, 0.0), 5, None).unwrap();
    assert_eq!(told.took_ms, 4 * 3_600_000 + 3_000);
    let one = grouped(Limits { max_in_flight: Some(1), ..Limits::default() });
    let told = pages(one, 2).run(&jobs(3_000, true, 0.0), 5, None).unwrap();
    assert_eq!(told.took_ms, 30_000);
}

#[test]
fn time_is_limited_and_keys_are_held() {
    let mut it = pages(Settings::default(), 1);
    let key = |at| Key::new(&format!("https://h0.example/{at}")).unwrap();
    it.hold(key(3), None).unwrap();
    it.hold(key(4), Some(60)).unwrap();
    let told = it.run(&jobs(3_000, true, 0.0), 8, None).unwrap();
    assert_eq!((told.jobs, told.left, told.took_ms), (9, 1, 63_000));
    let told = it.run(&jobs(3_000, true, 0.0), 1, Some(7_000)).unwrap();
    assert_eq!((told.jobs, told.left, told.took_ms), (2, 8, 6_000));
}

fn retried() -> Settings {
    let [first, most] = [10, 60].map(std::time::Duration::from_secs);
    let delays = Delays::new(first, 2.0, most);
    let lists = Some(Retries { on: CountedEnds::failed(), most: 2, delays });
    Settings { retries: RetryRules { lists, ..RetryRules::default() }, ..Settings::default() }
}

/// What the same lists come to over the store that tests use, which is searched from end to end.
fn naive(lists: &[Vec<String>], settings: &Settings, jobs: &Jobs, workers: u32) -> Simulated {
    let mut it = Lists::new(Memory::default(), settings.clone(), START).unwrap();
    for (name, keys) in ["f", "g"].into_iter().zip(lists) {
        it.add(name, rows(keys.iter().cloned())).unwrap();
    }
    let store = it.engine.store().clone().reopened();
    Clockwork::new(store, &it, jobs, workers, None).unwrap().run().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Each task runs once, the same way for the same seed, and in any store.
    #[test]
    fn it_is_the_same_in_any_store(
        lists in prop::collection::vec(prop::collection::vec("https://[a-c][.]x/[a-z]", 0..40), 2),
        (workers, seed) in (1..6_u32, any::<u64>()),
        (delay, is_retried) in (prop::option::of(1..9_000_i64), any::<bool>()),
    ) {
        let settings = if is_retried { retried() } else { Settings::default() };
        let groups = delay.map(|_| grouped(Limits { delay, ..Limits::default() }).groups);
        let settings = Settings { groups: groups.unwrap_or_default(), ..settings };
        let jobs = Jobs { seed, ..jobs(3_000, false, 0.3) };
        let mut it = Simulation::new(settings.clone(), START).unwrap();
        for (name, keys) in ["f", "g"].into_iter().zip(&lists) {
            it.add(name, rows(keys.iter().cloned())).unwrap();
        }
        let told = it.run(&jobs, workers, None).unwrap();
        prop_assert_eq!(&told, &it.run(&jobs, workers, None).unwrap());
        prop_assert_eq!(&told, &naive(&lists, &settings, &jobs, workers));
        for (name, keys) in ["f", "g"].into_iter().zip(&lists) {
            let tasks = keys.iter().collect::<std::collections::BTreeSet<_>>().len() as u64;
            prop_assert_eq!((told.fetchers[name].tasks, told.fetchers[name].ran), (tasks, tasks));
        }
    }
}
