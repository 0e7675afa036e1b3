//! What happens in a random history of attempts.

use proptest::prelude::*;

pub const KEYS: [&str; 3] = ["alpha", "bravo", "é"];
pub const FETCHERS: [&str; 2] = ["f", "g"];
pub const HALF_DAY: i64 = 43_200;

/// One thing that happens. Attempts are chosen by how long ago they were given out.
#[derive(Debug, Clone)]
pub enum Event {
    /// A request or a fetcher's doing; may share its transaction with others.
    Word(Word),
    /// Several in one transaction, which may come to nothing.
    Together {
        words: Vec<Word>,
        fails: bool,
    },
    Restart {
        clean: bool,
    },
    Clock {
        by: i64,
    },
    /// The reference had the database: a restart with no runs of single tasks.
    TakenBack,
    FinishLog {
        key: usize,
    },
    DeleteLog {
        key: usize,
    },
    RestartLog {
        key: usize,
        ago: i64,
    },
}

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
}

fn word() -> impl Strategy<Value = Word> {
    let keys = || 0..KEYS.len();
    let fetchers = || 0..FETCHERS.len();
    // 0 is the last one, -1 was never given out.
    let back = || prop_oneof![4 => 0..2_i64, 2 => 2..6_i64, 1 => Just(-1)];
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
    ]
}

pub fn event() -> impl Strategy<Value = Event> {
    let keys = || 0..KEYS.len();
    let ago = prop_oneof![0..100_i64, Just(HALF_DAY + 1)];
    let clock = prop_oneof![1..100_i64, -100..0_i64, Just(HALF_DAY), Just(HALF_DAY + 1)];
    prop_oneof![
        30 => word().prop_map(Event::Word),
        3 => (prop::collection::vec(word(), 1..6), any::<bool>())
            .prop_map(|(words, fails)| Event::Together { words, fails }),
        1 => any::<bool>().prop_map(|clean| Event::Restart { clean }),
        1 => Just(Event::TakenBack),
        4 => clock.prop_map(|by| Event::Clock { by }),
        1 => keys().prop_map(|key| Event::FinishLog { key }),
        1 => keys().prop_map(|key| Event::DeleteLog { key }),
        1 => (keys(), ago).prop_map(|(key, ago)| Event::RestartLog { key, ago }),
    ]
}
