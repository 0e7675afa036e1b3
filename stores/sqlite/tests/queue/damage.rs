//! Damage to the file by hand or by a disk: one damaged value does not stop anything else.

use shiftboss_queue::context::Settings;
use shiftboss_queue::documents::Daemon;
use shiftboss_sqlite::look_through;

use crate::words::{NOW, Script, ready};
use crate::{alike, subject};

fn sql(script: &Script, sql: &str) {
    script.store().connection().execute_batch(sql).unwrap();
}

/// If a payload is no longer UTF-8 its task becomes a dead letter; the next key is handed out in the same batch.
#[test]
fn a_damaged_payload_is_set_aside() {
    let mut script = Script::new(Settings::default());
    script.run("list f.1 a b\nadd c=1\nadd c=2");
    sql(
        &script,
        "UPDATE rows SET payload = CAST(x'ff' AS TEXT)
        WHERE key = (SELECT id FROM keys WHERE key = 'a')",
    );
    sql(&script, "UPDATE tasks SET payload = CAST(x'80' AS TEXT) WHERE number = 1");
    script.run(
        "ready -> job 1 c 2
            counts -> rows 4, waiting 1, in_flight 1, dead 2
            ready -> job 2 b p
            counts -> rows 4, in_flight 2, dead 2
            ready -> nothing
            restart; counts -> rows 4, in_flight 2, dead 2
            retry a -> back 1
            ready -> nothing
            list f.2 a=whole; counts -> rows 5, waiting 1, in_flight 2, dead 1
            ready -> job 3 a whole
            finish c 0; counts -> rows 4, in_flight 2, dead 1
            retry c -> back 1
            ready -> nothing
            counts -> rows 4, in_flight 2, dead 1
            cancel c -> cancelled 1 false
            counts -> rows 3, in_flight 2",
    );
}

/// Numbers that were edited into the file do not cause overflows.
#[test]
fn numbers_without_a_next_one_are_refused() {
    let mut script = Script::new(Settings::default());
    script.run("list f.1 a b\nadd c=1\nready -> job 1 a p\nfinish a 0");
    let max = i64::MAX;
    sql(&script, &format!("UPDATE header SET last_attempt = {max}, last_bump = {max}, last_single = {max}, last_since = {max},
            clock = {max}, credit = {max};
        UPDATE hours SET jobs = {max}, took_ms = {max};
        UPDATE counts SET rows = {max}, waiting = {max}, in_flight = {max} WHERE fetcher <> 0;
        UPDATE runs SET reading = {max}, skipped = {max}"));
    script.run(
        "restart; ready -> rejected
            add d=1 -> rejected
            pause; resume; more f.1 a b d; bump b -> behind 0
            hold a 60; follow; wake; list g.1 a; finish a 1",
    );
}

fn found(script: &Script) -> Vec<String> {
    look_through(script.store().connection()).damage
}

/// A sound database is recognised as sound; a lost or edited row, and a missing table, are named.
#[test]
fn what_is_wrong_is_named() {
    let filled = || {
        let mut script = Script::new(Settings::default());
        script.run(
            "list f.1 a b; hold a 60; ready -> job 1 b p
            finish b 1; add c=1",
        );
        script
    };
    assert_eq!(found(&filled()), [""; 0]);
    for (damage, named) in [
        ("UPDATE counts SET waiting = 7 WHERE fetcher <> 0", "1 runs whose counts are not"),
        ("DELETE FROM rows WHERE key = (SELECT id FROM keys WHERE key = 'a')", "1 runs whose"),
        ("UPDATE tasks SET status = 'failed'", "1 keys whose counts are not"),
        ("UPDATE tasks SET status = 'waitinf'", "1 keys whose counts are not"),
        ("UPDATE header SET last_single = 0", "the header's last_single is 0, and there is 1"),
        ("UPDATE header SET ends = 0", "the header's ends is 0, and there is 1"),
        ("UPDATE header SET last_attempt = 0", "the header's last_attempt is 0, and there is 1"),
        ("UPDATE rows SET armed = 2", "2 rows of lists that would be handed out for ever"),
        ("DELETE FROM extras", "1 keys whose extras are missing"),
        ("DELETE FROM header", "the table header lacks its row"),
        ("DELETE FROM names", "the table names lacks 1"),
        ("DELETE FROM runs", "the table runs lacks 1"),
        ("DELETE FROM counts", "the table counts is empty"),
        ("DELETE FROM keys", "the table keys is empty"),
        ("DROP TABLE hours", "the table hours is missing"),
        ("DROP INDEX in_order", "the index in_order is missing"),
        ("DROP VIEW log", "the view log is missing"),
    ] {
        let script = filled();
        sql(&script, damage);
        let damage = found(&script);
        assert!(damage.iter().any(|line| line.starts_with(named)), "{named}: {damage:?}");
    }
}

/// Sums of edited numbers are clamped.
#[test]
fn sums_are_as_large_as_they_can_be() {
    for extreme in [i64::MIN, i64::MAX] {
        let mut script = Script::new(Settings::default());
        script.run("list f.1 a c d\nlist g.1 b\nadd e=1\nlease\nlease\nlease\nlease");
        script.run("done 1 0\ndone 2 0\ndone 3 0\ndone 4 1");
        let all = |columns: &[&str]| {
            let set = columns.iter().map(|it| format!("{it} = {extreme}"));
            set.collect::<Vec<_>>().join(", ")
        };
        let sums = all(&["jobs", "took_ms", "revisits", "revisit_seconds"]);
        let [counts, few] = [
            &["rows", "waiting", "in_flight", "leased", "redelivered", "delayed", "dead"][..],
            &["failed", "held", "backed_off", "bumped", "keys", "unlisted"],
        ]
        .map(all);
        let keys = all(&["waiting", "failed", "dead"]);
        sql(&script, &format!("UPDATE hours SET {sums}; UPDATE minutes SET jobs = {extreme}"));
        sql(&script, &format!("UPDATE counts SET {counts}, {few}; UPDATE keys SET {keys}"));
        alike::told(&subject::reader(script.store()), NOW);
        sql(&script, &format!("UPDATE hours SET hour = {extreme}"));
        sql(&script, &format!("UPDATE OR REPLACE minutes SET minute = {extreme}"));
        alike::told(&subject::reader(script.store()), NOW);
    }
}

/// A key that no index leads to any more would wait for ever.
#[test]
fn a_lost_place_is_found() {
    let found = |damage| {
        let mut script = Script::new(Settings::default());
        let daemon = Daemon::default();
        ready(script.engine.as_mut().unwrap().start(0, &daemon)).unwrap();
        script.run("list f.1 a b c\nready -> job 1 a p\nhold b 9\nadd d=1");
        sql(&script, damage);
        look_through(script.store().connection()).damage
    };
    assert_eq!(found(""), [""; 0]);
    let lost = ["1 keys that wait are not in the order, and would never be handed out"];
    assert_eq!(found("UPDATE keys SET turn = NULL WHERE key = 'c'"), lost);
    assert_eq!(found("UPDATE extras SET due = NULL"), lost);
}

/// A key whose count is too high does not block workers.
#[test]
fn a_single_task_that_is_lost_stops_nothing() {
    let mut script = Script::new(Settings::default());
    script.run("add a=1\nlist f.1 b");
    sql(&script, "DELETE FROM tasks");
    script.run("restart\nready -> job 1 b p\nready -> nothing\nadd a=2\nready -> job 2 a 2");
}

/// A lease that is out of range counts as the longest possible one.
#[test]
fn a_lease_is_as_long_as_one_can_be() {
    for lease in [-1, 5_000_000_000_i64] {
        let mut script = Script::new(Settings::default());
        script.run("list f.1 a\nlease -> job 1 a p");
        sql(&script, &format!("UPDATE keys SET lease = {lease}"));
        alike::told(&subject::reader(script.store()), NOW);
        script.run("restart\nleases -> 1+4294967295\ndone 1 0 -> recorded");
    }
}
