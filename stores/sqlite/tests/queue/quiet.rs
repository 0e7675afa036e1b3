//! Batches that change nothing write nothing, and need no lock.

use rusqlite::Connection;
use shiftboss_queue::context::Settings;
use shiftboss_queue::engine::Engine;
use shiftboss_queue::operation::Probe;
use shiftboss_queue::records::StoreError;
use tempfile::TempDir;

use crate::subject::Store;
use crate::words::{NOW, Script, ready};

/// A queue in a file, and another connection to it.
fn queue() -> (Script, Connection, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let connection = Connection::open(directory.path().join("state.db")).unwrap();
        connection.pragma_update(None, "journal_mode", "wal").unwrap();
        connection.busy_timeout(std::time::Duration::ZERO).unwrap();
        connection
    };
    let mut script = Script::new(Settings::default());
    script.engine = Some(Engine::new(Store::new(open()).unwrap(), Settings::default()));
    (script, open(), directory)
}

const LIST: &str = "list f.1 a b\nadd c=1\nlease -> job 1 a p\nhold z 60";

#[test]
fn a_batch_that_only_reads_needs_no_lock() {
    let (mut script, other, _directory) = queue();
    script.run(LIST);
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for _ in 0..2 {
        script.run(
            "work -> true
            beat 1 -> recorded
            runs -> f.1 0 2
            due -> due in 60
            idle -> busy 1 held 1
            out -> count 1",
        );
        let probe = ready(script.engine.as_mut().unwrap().apply(NOW * 1_000, vec![Probe.into()]));
        assert!(matches!(probe, Err(StoreError::Busy(_))), "{probe:?}");
    }
    other.execute_batch("ROLLBACK").unwrap();
    script.run("done 1 0 -> recorded");
}

#[test]
fn what_somebody_edited_is_seen_by_who_only_reads() {
    let (mut script, other, _directory) = queue();
    script.run("list f.1 a\nready -> job 1 a p\nfinish a 0\nwork -> false");
    other.execute("UPDATE queue SET is_dequeued = 0", ()).unwrap();
    script.run("work -> true");
    let left: i64 =
        other.query_row("SELECT count(*) FROM row_edits", (), |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

#[test]
fn a_batch_that_changes_nothing_writes_nothing() {
    let (mut script, other, _directory) = queue();
    script.run(LIST);
    let version =
        || other.pragma_query_value(None, "data_version", |row| row.get::<_, i64>(0)).unwrap();
    let before = version();
    script.run(
        "probe; finish x 0; done 9 0 -> unknown
            beat 1 -> recorded
            undo b 1 -> false
            requeue b -> not in flight
            retry b -> back 0
            unhold a -> false
            cancel a -> cancelled 0 false
            add c=1 -> known
            delete g.1 -> count 1
            prune f.1 -> false
            wake; follow; work -> true
            resume -> count 1",
    );
    assert_eq!(version(), before);
    script.run("done 1 0 -> recorded");
    assert_ne!(version(), before);
}

/// Very many edits at once do not make requests wait until all are carried out, and yet no later event overtakes them:
/// nothing is handed out meanwhile, and a request about a key sees the key's edits.
#[test]
fn many_edits_keep_nobody_waiting() {
    let (mut script, other, _directory) = queue();
    let keys: Vec<String> = (0..5_000).map(|at| format!("k{at}")).collect();
    script.run(&format!("list f.1 {}", keys.join(" ")));
    let jobs: Vec<String> = (0..2).map(|_| script.say("lease")).collect();
    let edits = "INSERT OR REPLACE INTO log SELECT attr_path, 1, NULL, NULL FROM queue;
        UPDATE queue SET is_dequeued = 1";
    other.execute_batch(edits).unwrap();
    let ended = jobs[0].split(' ').nth(2).unwrap();
    script.run("done 1 7 -> recorded");
    let log = || -> (Option<i64>, Option<i64>) {
        let sql = "SELECT finished, exit_code FROM log WHERE attr_path = ?1";
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        other.query_row(sql, [ended], read).unwrap()
    };
    assert_eq!(log().1, Some(7));
    let left = || -> i64 {
        let sql = "SELECT (SELECT count(*) FROM log_edits) + (SELECT count(*) FROM row_edits)";
        other.query_row(sql, (), |row| row.get(0)).unwrap()
    };
    let mut batches = 0;
    while left() > 0 {
        assert_eq!(script.say("ready"), "nothing");
        batches += 1;
    }
    assert!(batches >= 3, "{batches}");
    assert_eq!((script.say("ready"), log().1), ("nothing".to_owned(), Some(7)));
}
