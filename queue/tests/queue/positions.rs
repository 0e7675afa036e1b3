//! How far files were read, and rows that do not follow that position.

use shiftboss_protocol::model::{Key, Row, Run};
use shiftboss_queue::context::Settings;
use shiftboss_queue::file_identity::Position;
use shiftboss_queue::operation::{AddRows, Reading, RegisterRun, Registered, RowBatch};

use crate::asked::{Asked, moved, run};
use crate::words::Script;

/// A line that was read from one offset to another.
fn read(from: Option<u64>, to: u64) -> RowBatch {
    let run = Run { fetcher: "f".into(), started: 1 };
    let row = Row { key: Key::new(&format!("k{to}")).unwrap(), payload: String::new() };
    let position = Position { offset: to, ..Position::default() };
    RowBatch { from, position, ..RowBatch::of(run, vec![row]) }
}

fn ask(script: &mut Script, batch: RowBatch) -> String {
    script.ask(AddRows(batch).into())
}

/// Nothing is left out after the queue was restored from a backup: rows that do not follow its position are rejected.
#[test]
fn rows_follow_the_position() {
    let mut script = Script::new(Settings::default());
    assert_eq!(ask(&mut script, read(None, 10)), "rejected", "nobody knows the run");
    script.run("register f.1");
    for (from, to, right) in [
        (Some(0), 10, "done"),
        (Some(10), 20, "done"),
        (Some(10), 20, "done"),
        (Some(10), 30, "rejected"),
        (None, 40, "done"),
    ] {
        assert_eq!(ask(&mut script, read(from, to)), right, "{from:?} {to}");
    }
    script.run("runs -> f.1 40 3");
    let anew = RowBatch { reading: Reading::Anew, ..read(Some(7), 5) };
    assert_eq!(ask(&mut script, anew), "done");
    script.run("runs -> f.1 5 4 stale");
}

/// The last batch decides whether a run is complete: a run whose file is read anew may grow again.
#[test]
fn a_run_that_grows_again_is_not_complete() {
    let mut queue = Asked::with(&[]);
    for (complete, reading) in [(true, Reading::Onward), (false, Reading::Anew)] {
        let batch = RowBatch { complete, ..moved("f", 10, reading) };
        queue.ask(AddRows(batch)).unwrap();
        let Ok(Registered::Run(found)) = queue.ask(RegisterRun(run("f", 1))) else { panic!() };
        assert_eq!(found.complete, complete);
    }
}

/// A position that follows rows by ranges is only accepted if these rows were added.
#[test]
fn rows_that_came_by_their_ranges() {
    let mut script = Script::new(Settings::default());
    script.run("register f.1");
    let by_range = |to| RowBatch { by_range: true, rows: Vec::new(), ..read(None, to) };
    assert_eq!(ask(&mut script, by_range(10)), "rejected", "none came");
    assert_eq!(ask(&mut script, read(None, 10)), "done");
    assert_eq!(ask(&mut script, by_range(10)), "done", "it is there already");
}

/// A run is stale from when its file is read anew until it has been pruned by a whole list.
#[test]
fn a_run_is_stale_until_it_is_pruned() {
    let mut script = Script::new(Settings::default());
    script.run("list f.1 a b c\nrestart\nruns -> f.1 0 3");
    let listing = RowBatch { reading: Reading::Listing, ..read(None, 5) };
    assert_eq!(ask(&mut script, listing.clone()), "done");
    let anew = RowBatch { reading: Reading::Anew, ..read(None, 5) };
    assert_eq!(ask(&mut script, anew), "done");
    script.run("prune f.1 -> false\nruns -> f.1 5 4 stale");
    assert_eq!(ask(&mut script, listing), "done");
    script.run("more f.1 c\nrestart\nprune f.1 -> false\nruns -> f.1 0 2");
}
