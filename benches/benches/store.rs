//! The store's operations, one by one: `make bench-store`, or `cargo bench -p shiftboss-bench`.
//!
//! Each figure is one transaction, its commit and sync included, as the StorageActor makes it. What
//! must be there before it (rows to hand out, a run to delete) is made outside the measured time.
//! No actors and no sockets: those are measured by `make bench`.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use shiftboss_actors::store::STEP_ROWS;
use shiftboss_bench::bare::{Bare, batch};
use shiftboss_protocol::model::Run;
use shiftboss_queue::operation::{
    AddRows, BeginDeletion, DeleteRuns, Dispatched, RegisterRun, Undo,
};

/// Jobs of a store whose jobs are handed out; it is made anew when they run out.
const JOBS: usize = 50_000;
/// Rows of a store whose jobs are not what is measured.
const ROWS: usize = 10_000;
/// Rows that a tail sends at once.
const BATCH_ROWS: usize = 250;
/// What a measurement of one operation may take, and how often it is repeated.
const WARM_UP: Duration = Duration::from_millis(500);
const TIME: Duration = Duration::from_secs(4);
const SAMPLES: usize = 20;

type Group<'a> = BenchmarkGroup<'a, WallTime>;

/// Measures `operate` alone; `prepare` goes before each, and its outcome into it.
fn measure<T>(
    group: &mut Group<'_>,
    name: &str,
    bare: &mut Bare,
    mut prepare: impl FnMut(&mut Bare) -> T,
    mut operate: impl FnMut(&mut Bare, T),
) {
    let mut timed = |count: u64| {
        let mut elapsed = Duration::ZERO;
        for _ in 0..count {
            let prepared = prepare(bare);
            let begun = Instant::now();
            operate(bare, prepared);
            elapsed += begun.elapsed();
        }
        elapsed
    };
    group.bench_function(name, |bencher| bencher.iter_custom(&mut timed));
}

fn run(started: usize) -> Run {
    Run { fetcher: "measured".into(), started: started as i64 }
}

/// The end of a job and the next, so many in one commit.
fn cycles(group: &mut Group<'_>) {
    let mut bare = Bare::new(JOBS).unwrap();
    for count in [1, 8, 64] {
        let refill = |bare: &mut Bare| {
            if bare.left() < count {
                *bare = Bare::new(JOBS).unwrap();
            }
        };
        group.throughput(Throughput::Elements(count as u64));
        let name = format!("finish_and_dispatch, {count} in a commit");
        measure(group, &name, &mut bare, refill, |bare, ()| bare.cycles(count).unwrap());
    }
}

/// What a request costs when every row is in flight: `NOJOBS`.
fn nothing(group: &mut Group<'_>) {
    let mut bare = Bare::new(ROWS).unwrap();
    for _ in 0..ROWS {
        assert!(matches!(bare.ask().unwrap(), Dispatched::Job(..)));
    }
    let ask = |bare: &mut Bare, ()| assert_eq!(bare.ask().unwrap(), Dispatched::Nothing);
    measure(group, "dispatch, nothing is eligible", &mut bare, |_| (), ask);
}

fn undo(group: &mut Group<'_>) {
    let mut bare = Bare::new(ROWS).unwrap();
    let dispatch = |bare: &mut Bare| match bare.ask().unwrap() {
        Dispatched::Job(attempt, job, _) => (attempt, job.key),
        other => panic!("{other:?}"),
    };
    let undo = |bare: &mut Bare, (attempt, key)| {
        assert!(bare.apply(Undo { key, attempt }).unwrap());
    };
    measure(group, "undo", &mut bare, dispatch, undo);
}

fn register(group: &mut Group<'_>) {
    let mut bare = Bare::new(ROWS).unwrap();
    let mut last = 0;
    let forget = |bare: &mut Bare| {
        bare.apply(DeleteRuns { runs: vec![run(last)], limit: STEP_ROWS }).unwrap();
        last += 1;
        run(last)
    };
    let register = |bare: &mut Bare, run| {
        bare.apply(RegisterRun(run)).unwrap();
    };
    measure(group, "register_run", &mut bare, forget, register);
}

fn add_rows(group: &mut Group<'_>) {
    let mut bare = Bare::new(ROWS).unwrap();
    let run = run(1);
    bare.apply(RegisterRun(run.clone())).unwrap();
    let mut lines = 0;
    let next = |_: &mut Bare| {
        lines += BATCH_ROWS;
        batch(&run, ROWS + lines - BATCH_ROWS..ROWS + lines)
    };
    group.throughput(Throughput::Elements(BATCH_ROWS as u64));
    measure(group, "add_rows, 250 rows", &mut bare, next, |bare, batch| {
        bare.apply(AddRows(batch)).unwrap();
    });
}

/// One step of the deletion of a run that is as large as a step: the run itself counts as a row.
fn delete_step(group: &mut Group<'_>) {
    let mut bare = Bare::new(ROWS).unwrap();
    let run = run(1);
    let load = |bare: &mut Bare| {
        bare.apply(RegisterRun(run.clone())).unwrap();
        bare.apply(AddRows(batch(&run, ROWS..ROWS + STEP_ROWS - 1))).unwrap();
        bare.apply(BeginDeletion(run.clone())).unwrap();
    };
    group.throughput(Throughput::Elements(STEP_ROWS as u64));
    measure(group, "delete_runs, a step of 500 rows", &mut bare, load, |bare, ()| {
        bare.apply(DeleteRuns { runs: vec![run.clone()], limit: STEP_ROWS }).unwrap();
    });
}

fn operations(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("store");
    group.warm_up_time(WARM_UP).measurement_time(TIME).sample_size(SAMPLES);
    for operation in [nothing, undo, register, cycles, add_rows, delete_step] {
        operation(&mut group);
    }
    group.finish();
}

criterion_group!(benches, operations);
criterion_main!(benches);
