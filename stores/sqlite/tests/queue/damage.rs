//! What somebody, or a disk, did to the file: one damaged value stops nothing else.

use shiftboss_queue::context::Settings;

use crate::words::Script;

fn sql(script: &Script, sql: &str) {
    script.store().connection().execute_batch(sql).unwrap();
}

/// A payload that is no UTF-8 any more makes a dead letter of its task; the next key is handed out in the same batch.
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
        "
        ready -> job 1 c 2
        counts -> rows 4, waiting 1, in_flight 1, dead 2
        ready -> job 2 b p
        counts -> rows 4, in_flight 2, dead 2
        ready -> nothing
        restart
        counts -> rows 4, in_flight 2, dead 2
        retry a -> back 1
        ready -> nothing
        list f.2 a=whole
        counts -> rows 5, waiting 1, in_flight 2, dead 1
        ready -> job 3 a whole
        finish c 0
        counts -> rows 4, in_flight 2, dead 1
        retry c -> back 1
        ready -> nothing
        counts -> rows 4, in_flight 2, dead 1
        cancel c -> cancelled 1 false
        counts -> rows 3, in_flight 2",
    );
}

/// Numbers that somebody wrote into the file overflow nothing.
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
        "
        restart
        ready -> rejected
        add d=1 -> rejected
        pause
        resume
        more f.1 a b d
        bump b -> bumped
        hold a 60
        follow
        wake
        list g.1 a
        finish a 1",
    );
}
