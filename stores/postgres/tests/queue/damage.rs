//! Edits of a server's tables by hand: no sum is too large.

use shiftboss_queue::context::Settings;
use shiftboss_queue::reader::Reader;

use crate::words::{NOW, Script};
use crate::{alike, subject};

fn sql(script: &Script, sql: &str) {
    subject::wait(script.store().client().batch_execute(sql)).unwrap();
}

#[test]
fn sums_are_as_large_as_they_can_be() {
    for extreme in [i64::MIN, i64::MAX] {
        let mut script = Script::new(Settings::default());
        script.run("list f.1 a\nlist g.1 b\nlease\nlease\ndone 1 0\ndone 2 0");
        sql(
            &script,
            &format!(
                "UPDATE hours SET jobs = {extreme}, took_ms = {extreme}; UPDATE minutes SET jobs = {extreme};
                INSERT INTO minutes SELECT minute, exit_code, daemon + 1, jobs FROM minutes"
            ),
        );
        alike::told(&subject::reader(script.store()), NOW);
        script.run("list h.1 c\nlease\ndone 3 0\nready -> nothing");
        sql(&script, &format!("UPDATE hours SET hour = {extreme}"));
        alike::told(&subject::reader(script.store()), NOW);
    }
}

#[test]
fn numbers_are_as_large_as_they_can_be() {
    let mut script = Script::new(Settings::default());
    script.run("list f.1 a\nlease");
    sql(&script, &format!("UPDATE header SET ids = {}; UPDATE keys SET waiting = -1", i64::MAX));
    script.run("add b p\nlease\ndone 2 0\ndone 1 0");
    alike::told(&subject::reader(script.store()), NOW);
}

/// A value of another type is not treated as a lost connection, for which we would wait.
#[test]
#[should_panic(expected = "put it right, or restore a backup")]
fn a_value_that_is_missing_is_damage() {
    let mut script = Script::new(Settings::default());
    script.run("list f.1 a\nlease");
    sql(&script, "UPDATE keys SET fetcher = NULL");
    let _ = subject::reader(script.store()).why(NOW, "a", 9);
}
