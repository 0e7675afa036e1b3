//! The cost of a job: the same however many wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;
use shiftboss_queue::context::Settings;
use shiftboss_queue::engine::Engine;
use shiftboss_sqlite::SqliteRecords;

use crate::words::Script;

/// Steps of SQLite's machine for some jobs in a queue of `keys` keys, each in all of `lists`.
fn steps(keys: usize, lists: &[&str]) -> u64 {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let mut connection = Connection::open_in_memory().unwrap();
    let count_one = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        false
    };
    connection.progress_handler(1, Some(count_one)).unwrap();
    let mut script = Script::new(Settings::default());
    let records = SqliteRecords::new(connection).unwrap();
    script.engine = Some(Engine::new(records, Settings::default()));
    let rows: Vec<String> = (0..keys).map(|key| format!("k{key}")).collect();
    for list in lists {
        script.run(&format!("register {list}"));
        for rows in rows.chunks(250) {
            script.run(&format!("more {list} {}", rows.join(" ")));
        }
    }
    let mut work = |jobs: usize| {
        for _ in 0..jobs {
            let job = script.say("ready");
            let key = job.split(' ').nth(2).unwrap();
            script.run(&format!("finish {key} 0"));
        }
    };
    // Some have run before.
    work(30);
    count.store(0, Ordering::Relaxed);
    work(30);
    count.load(Ordering::Relaxed)
}

/// If fewer attempts are kept from now on, no single batch deletes all surplus ones.
#[test]
fn attempts_that_are_too_many_go_in_steps() {
    let mut script = Script::new(Settings::default());
    script.run("list f.1 a");
    let work = |script: &mut Script| script.run("ready\nfinish a 0\nretry a -> back 1");
    (0..400).for_each(|_| work(&mut script));
    let records = script.engine.take().unwrap().into_store().keeping(10);
    script.engine = Some(Engine::new(records.reopened(), Settings::default()));
    let count = |script: &Script| -> i64 {
        let sql = "SELECT count(*) FROM attempts";
        script.store().connection().query_row(sql, (), |row| row.get(0)).unwrap()
    };
    let mut before = count(&script);
    while before > 10 {
        work(&mut script);
        let now = count(&script);
        assert!((1..=101).contains(&(before - now)), "{before} {now}");
        before = now;
    }
}

#[test]
fn a_job_does_not_feel_the_size() {
    for lists in [&["f.1"][..], &["f.1", "g.1"], &["f.1", "f.2", "g.1"]] {
        let [few, many] = [1_500, 6_000].map(|keys| steps(keys, lists));
        assert!(many < few + few / 10, "{lists:?}: {few} steps, of more keys {many}");
        assert!(few > 1_000, "{few}");
    }
}
