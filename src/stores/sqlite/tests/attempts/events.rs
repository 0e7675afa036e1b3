//! What happens in a random history of attempts: requests, and what others do to the database.

use proptest::prelude::*;
use shiftboss_actors::testing::conformance::{HALF_DAY, KEYS, Step, step};

/// One thing that happens.
#[derive(Debug, Clone)]
pub enum Event {
    /// What any store meets.
    Step(Step),
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

pub fn event() -> impl Strategy<Value = Event> {
    let keys = || 0..KEYS.len();
    let ago = prop_oneof![0..100_i64, Just(HALF_DAY + 1)];
    prop_oneof![
        36 => step().prop_map(Event::Step),
        1 => Just(Event::TakenBack),
        1 => keys().prop_map(|key| Event::FinishLog { key }),
        1 => keys().prop_map(|key| Event::DeleteLog { key }),
        1 => (keys(), ago).prop_map(|(key, ago)| Event::RestartLog { key, ago }),
    ]
}
