//! After random histories, a store answers every question as one in memory does.

use std::collections::HashMap;
use std::ops::ControlFlow;

use proptest::prelude::*;
use shiftboss_protocol::answers::{Ended, TaskStatus};
use shiftboss_protocol::model::Key;
use shiftboss_queue::context::Settings;
use shiftboss_queue::engine::Engine;
use shiftboss_queue::reader::{
    EndedAttempts, FailedTasks, Grouping, ListedKey, Order, Reader, Selection, StatsOf, TasksWith,
};
use shiftboss_queue::testing::Memory;

use crate::histories::{Step, history, settings};
use crate::in_memory;
use crate::previews::{Played, play};
use crate::questions::{selected, started};
use crate::subject::{self, Store};

const ALL: usize = 1_000;
const STATUSES: [TaskStatus; 5] = [
    TaskStatus::Waiting,
    TaskStatus::InFlight,
    TaskStatus::Delayed,
    TaskStatus::Failed,
    TaskStatus::DeadLetter,
];
const GROUPINGS: [Grouping; 5] =
    [Grouping::All, Grouping::Fetcher, Grouping::Hour, Grouping::Day, Grouping::FetcherDay];

/// Numbers of ends, by their descriptions: each store numbers them in its own way.
struct Ends(HashMap<i64, usize>);

impl Ends {
    fn told(&self, ends: &[Ended]) -> String {
        let told = ends.iter().map(|it| {
            let ended = self.0[&it.ended].try_into().unwrap();
            format!("{:?}", Ended { ended, ..it.clone() })
        });
        told.collect::<Vec<_>>().join("\n")
    }
}

fn attempts(reader: &dyn Reader) -> Vec<String> {
    let all = EndedAttempts { count: ALL, ..EndedAttempts::default() };
    let found = reader.ended_attempts(&all).unwrap().attempts;
    let numbers = found.iter().rev().map(|it| it.ended).zip(1..);
    let ends = Ends(numbers.collect());
    let middle = found.get(found.len() / 2);
    let asked = [
        all.clone(),
        EndedAttempts { outcomes: EndedAttempts::FAILED.to_vec(), ..all.clone() },
        EndedAttempts { fetcher: Some("f".into()), ..all.clone() },
        EndedAttempts { fetcher: Some("@tasks".into()), ..all.clone() },
        EndedAttempts { fetcher: Some("none".into()), ..all.clone() },
        EndedAttempts { since: middle.map(|it| it.finished), ..all.clone() },
        EndedAttempts { before: middle.map(|it| it.ended), count: 2, ..all.clone() },
        EndedAttempts { among: Some(3), ..all.clone() },
    ];
    let of_keys = ["a", "b", "c"].map(|key| EndedAttempts { key: Some(key.into()), ..all.clone() });
    let mut told: Vec<String> = asked
        .iter()
        .chain(&of_keys)
        .map(|asked| {
            let log = reader.ended_attempts(asked).unwrap();
            format!(
                "{asked:?}: {:?} {}",
                log.looked_to.map(|it| ends.0[&it]),
                ends.told(&log.attempts)
            )
        })
        .collect();
    for (asked, told) in asked.iter().zip(&mut told) {
        // The number of an end in the question is a store's own.
        *told = told.replacen(&format!("{:?}", asked.before), "", 1);
    }
    let mut after = found.last().map_or(0, |it| it.ended - 1);
    loop {
        let step = reader.ends_after(Some(after), 3).unwrap();
        told.push(format!("{} {}", step.attempts.len(), ends.told(&step.attempts)));
        if step.attempts.is_empty() {
            return told;
        }
        assert_eq!(Some(step.upto), step.attempts.last().map(|it| it.ended));
        after = step.upto;
    }
}

/// All answers.
pub fn told(reader: &dyn Reader, now: i64) -> Vec<String> {
    let mut status = reader.status(now).unwrap();
    // Keys are sorted into groups in a store's own order.
    (status.schema_version, status.groups_carried) = (0, None);
    let mut told = vec![format!("{status:?}")];
    let keys = ["a", "b", "c", "d", "e", "nobody"];
    for key in keys {
        told.push(format!("{:?}", reader.why(now, key, ALL).unwrap()));
        told.push(format!("{:?}", reader.why(now, key, 1).unwrap()));
    }
    told.push(format!("{:?}", reader.next_jobs(now, ALL).unwrap()));
    told.push(format!("{:?}", reader.next_jobs(now, 2).unwrap()));
    told.push(format!("{:?}", reader.turns(now, &keys.map(Key::stored)).unwrap()));
    told.extend(attempts(reader));
    for status in STATUSES.map(Some).into_iter().chain([None]) {
        for (fetcher, group, count) in [
            (None, None, ALL),
            (None, None, 1),
            (Some("f"), None, ALL),
            (Some("@tasks"), None, ALL),
            (None, Some("g:y"), ALL),
            (Some("g"), Some("g:x"), ALL),
        ] {
            let (fetcher, group) = (fetcher.map(str::to_owned), group.map(str::to_owned));
            let asked = TasksWith { status, fetcher, group, since: None, count };
            told.push(format!("{asked:?}: {:?}", reader.tasks(now, &asked).unwrap()));
        }
    }
    let failed = Order::RetryFailed(FailedTasks { since: Some(now - 60), exit_code: None });
    for (order, prefix, fetcher) in [
        (Order::Unhold, "", None),
        (Order::Cancel, "", Some("@tasks")),
        (Order::Retry, "b", None),
        (Order::Retry, "", Some("f")),
        (failed, "", None),
        (Order::Bump, "", Some("f")),
        (Order::Forget, "", None),
    ] {
        let fetcher = fetcher.map(str::to_owned);
        let asked = Selection { order, prefix: prefix.to_owned(), fetcher, group: None };
        let (mut keys, held) = selected(reader, now, &asked);
        // A store's own order, by ids.
        keys.sort();
        told.push(format!("{asked:?}: {keys:?} {held}"));
    }
    told.push(format!("{:?}", reader.fetchers().unwrap()));
    for by in GROUPINGS {
        for fetchers in [vec![], vec!["f".to_owned(), "none".to_owned()]] {
            let stats = reader.stats(&StatsOf { since: now - 90_000, by, fetchers }).unwrap();
            told.push(format!("{stats:?}"));
        }
    }
    told.push(format!("{:?}", reader.jobs_by_minute(now).unwrap()));
    told.push(format!("{:?} {:?}", reader.search("", 3).unwrap(), reader.search("b", 9).unwrap()));
    told.push(format!(
        "{:?} {:?}",
        reader.groups(now, ALL).unwrap(),
        reader.groups(now, 1).unwrap()
    ));
    told.push(format!("{:?} {:?}", reader.held(ALL).unwrap(), reader.held(1).unwrap()));
    let mut starts = reader.last_starts().unwrap();
    starts.started.sort_unstable();
    told.push(format!("{starts:?}"));
    let mut listed = Vec::new();
    let take = &mut |it: ListedKey| {
        listed.push(format!("{it:?}"));
        ControlFlow::Continue(())
    };
    reader.listed(now, take).unwrap();
    listed.sort_unstable();
    told.extend(listed);
    told
}

fn check(history: &[Step], is_fair: bool) -> Result<(), TestCaseError> {
    let settings = || Settings { is_fair, ..settings() };
    let mut engine = Engine::new(subject::new(), settings());
    let mut memory = Engine::new(Memory::default(), settings());
    started(&mut engine, &settings());
    started(&mut memory, &settings());
    let Played { engine, now, .. } = play(engine, history, is_fair, Store::reopened);
    let Played { engine: memory, .. } = play(memory, history, is_fair, Memory::reopened);
    let given = told(&subject::reader(engine.store()), now);
    for (given, right) in given.iter().zip(&told(&in_memory::reader(memory.store()), now)) {
        prop_assert_eq!(given, right);
    }
    Ok(())
}

/// Each case asks far more than those of other tests.
const CASES: u32 = 8;

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.div_ceil(CASES), ..ProptestConfig::default() })]
    #[test]
    fn stores_are_answered_for_alike(history in history(false), is_fair in prop::bool::weighted(0.8)) {
        check(&history, is_fair)?;
    }
}
