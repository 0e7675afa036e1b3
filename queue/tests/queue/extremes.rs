//! Numbers that no honest program sends: whatever comes in, or the clock shows, nothing panics, and the rest of the
//! batch is carried out.

use proptest::prelude::*;
use shiftboss_protocol::model::{Attempt, Key, LeaseHolder, Row, Run};
use shiftboss_queue::context::Settings;
use shiftboss_queue::engine::Engine;
use shiftboss_queue::operation::*;
use shiftboss_queue::record::LastRun;
use shiftboss_queue::records::Edit;

use crate::subject;
use crate::words::{NOW, Script, answer, ready};

fn number() -> impl Strategy<Value = i64> {
    let year = 31_556_952;
    prop::sample::select(vec![
        i64::MIN,
        i64::MIN + 1,
        -70_000 * year,
        -1,
        0,
        124,
        NOW,
        9_000 * year,
        i64::MAX / 1_000,
        i64::MAX - 1,
        i64::MAX,
    ])
}

fn run() -> impl Strategy<Value = Run> {
    number().prop_map(|started| Run { fetcher: "h".into(), started })
}

fn rows(run: Run, keys: &[&str]) -> Operation {
    let row = |key: &&str| Row { key: Key::new(key).unwrap(), payload: String::new() };
    let (skipped, reading) = (u64::MAX, Reading::Listing);
    AddRows(RowBatch { skipped, reading, ..RowBatch::of(run, keys.iter().map(row).collect()) })
        .into()
}

/// None of them brings work, or concerns the attempts and keys of others.
fn aside() -> impl Strategy<Value = Operation> {
    let z = || Key::new("z").unwrap();
    let attempt = || prop_oneof![Just(i64::MIN), Just(-1), Just(i64::MAX)].prop_map(Attempt);
    prop_oneof![
        run().prop_map(|run| RegisterRun(run).into()),
        run().prop_map(|run| rows(run, &[])),
        run().prop_map(|run| BeginDeletion(run).into()),
        (run(), 0..3_usize).prop_map(|(run, limit)| Prune { run, limit }.into()),
        run().prop_map(|run| DeleteRuns { runs: vec![run], limit: usize::MAX }.into()),
        (attempt(), number()).prop_map(|(attempt, exit_code)| CompleteAttempt {
            attempt,
            exit_code
        }
        .into()),
        number().prop_map(move |exit_code| Complete { key: z(), exit_code }.into()),
        attempt().prop_map(|it| Expire(it).into()),
        attempt().prop_map(move |attempt| Undo { key: z(), attempt }.into()),
        attempt().prop_map(|it| Release(it).into()),
        Just(NextHoldEnd.into()),
        Just(EndHolds.into()),
        Just(Runs.into()),
        Just(Leases.into()),
        Just(WhyIdle(None).into()),
    ]
}

fn usual() -> impl Strategy<Value = Operation> {
    let run = || Run { fetcher: "f".into(), started: 1 };
    let key = || prop::sample::select(vec!["a", "b"]).prop_map(|key| Key::new(key).unwrap());
    let holder = || Some(LeaseHolder { worker: "w".into(), lease_seconds: u32::MAX });
    prop_oneof![
        Just(RegisterRun(run()).into()),
        Just(rows(run(), &["a", "b"])),
        (any::<bool>()).prop_map(move |leased| Dispatch {
            holder: holder().filter(|_| leased),
            fetchers: None,
        }
        .into()),
        (1..4_i64).prop_map(|it| CompleteAttempt { attempt: Attempt(it), exit_code: 1 }.into()),
        (1..4_i64).prop_map(|it| Expire(Attempt(it)).into()),
        key().prop_map(|key| Complete { key, exit_code: 0 }.into()),
        key().prop_map(|key| Bump { key, by: "o".into() }.into()),
        key().prop_map(|key| Hold {
            key,
            seconds: Some(u32::MAX),
            reason: String::new(),
            by: "o".into(),
        }
        .into()),
    ]
}

/// Operations that may concern anything.
fn any_operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        2 => aside(),
        4 => usual(),
        1 => run().prop_map(|run| rows(run, &["a", "z"])),
    ]
}

/// Edits that other programs may make.
fn edit() -> impl Strategy<Value = Edit> {
    let key = || prop::sample::select(vec!["a", "z"]).prop_map(|key| Key::new(key).unwrap());
    let last = (number(), prop::option::of(number()), prop::option::of(number()))
        .prop_map(|(started, finished, exit_code)| LastRun { started, finished, exit_code });
    prop_oneof![
        (key(), last).prop_map(|(key, last)| Edit::Log { key, last }),
        (key(), run(), any::<bool>()).prop_map(|(key, run, is_dequeued)| Edit::Row {
            key,
            run,
            is_dequeued
        }),
    ]
}

proptest! {
    /// Whatever is asked, whatever the clock shows and is set to.
    #[test]
    fn nothing_panics(
        batches in prop::collection::vec((number(), prop::collection::vec(any_operation(), 1..8), edit(), number()), 1..8),
        lease_seconds in number(),
    ) {
        let settings = Settings { lease_seconds, ..Settings::default() };
        let mut engine = Engine::new(subject::new(), settings);
        for (now, batch, edit, by) in batches {
            ready(engine.apply(now, batch)).unwrap();
            ready(engine.edit(now, vec![edit])).unwrap();
            ready(engine.follow_clock(now, by)).unwrap();
        }
    }

    /// The rest of a batch is answered as if it were alone.
    #[test]
    fn others_of_the_batch_are_carried_out(
        batches in prop::collection::vec(prop::collection::vec((usual(), prop::option::of(aside())), 1..8), 1..8),
    ) {
        let mut alone = Engine::new(subject::new(), Settings::default());
        let mut engine = Engine::new(subject::new(), Settings::default());
        for batch in batches {
            let usual = batch.iter().map(|it| it.0.clone()).collect();
            let right = ready(alone.apply(NOW * 1_000, usual)).unwrap();
            let both = batch.iter().flat_map(|(usual, aside)| {
                aside.iter().map(|it| (false, it)).chain([(true, usual)])
            });
            let (is_usual, both): (Vec<bool>, Vec<Operation>) =
                both.map(|(is_usual, it)| (is_usual, it.clone())).unzip();
            let given = ready(engine.apply(NOW * 1_000, both)).unwrap();
            let given = given.iter().zip(is_usual).filter(|it| it.1).map(|it| answer(it.0));
            prop_assert_eq!(given.collect::<Vec<_>>(), right.iter().map(answer).collect::<Vec<_>>());
        }
    }
}

#[test]
fn what_is_no_time_or_number_is_refused() {
    Script::new(Settings::default()).run(
        "log a -9223372036854775808 -> rejected
        log a 253402300800 -> rejected
        log a 1 9223372036854775807 0 -> rejected
        log a 1 2 9223372036854775807 -> done
        register f.-1 -> rejected
        register f.0 -> run
        register @tasks.0 -> rejected
        list f.9223372036854775807 a=max; ready -> job 1 a max
        done 1 -9223372036854775808 -> recorded",
    );
}
