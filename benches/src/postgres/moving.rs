//! Row 12: a queue moves from a file to the server and back, and its public tables are as they were.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::{Stage, figure};
use crate::load::{self, Plan};
use crate::report::{Figure, per_second};
use crate::servers::{Server, new_home};

const WORKERS: usize = 64;
/// How long they may take with half of the queue.
const WORK_MAX: Duration = Duration::from_secs(300);
/// What the public tables of a file hold; `{}` is the file.
const PUBLIC: [&str; 4] = [
    "name FROM {}.fetchers",
    "name, run_started, is_complete FROM {}.fetcher_runs JOIN {}.fetchers USING (fetcher_id)",
    "name, fetcher_run_started, attr_path, payload, is_dequeued, last_started
        FROM {}.queue JOIN {}.fetchers USING (fetcher_id)",
    "attr_path, started, finished, exit_code FROM {}.log",
];

pub fn rows(stage: &Stage) -> io::Result<Vec<Figure>> {
    let (home, tasks) = (new_home()?, stage.setting.list);
    half_done(stage, home.path(), tasks)?;
    let database = stage.cluster.database("moved", None)?;
    let there = timed(stage, home.path(), "state.db", &database.url)?;
    let back = timed(stage, home.path(), &database.url, "back.db")?;
    let differences = differences(&home.path().join("state.db"), &home.path().join("back.db"))?;
    let rate = |took: Duration| per_second(tasks as f64 / took.as_secs_f64());
    let shown = format!("{} there, {} back", rate(there), rate(back));
    let compared = format!("{differences} rows of the public tables differ");
    let what = format!("`move` of {tasks} tasks, of which half ran");
    Ok(vec![figure(12, &what, shown, compared, "0 rows", Some(differences == 0))])
}

/// A queue in a file, at rest.
fn half_done(stage: &Stage, home: &Path, tasks: usize) -> io::Result<()> {
    let mut server = Server::shiftboss(stage.program, home, &[])?;
    server.fill(tasks)?;
    load::run(&Plan {
        requests: tasks / 2,
        ..Plan::at(vec![server.socket.clone()], server.protocol, WORKERS, WORK_MAX)
    })?;
    server.stop()
}

fn timed(stage: &Stage, home: &Path, from: &str, to: &str) -> io::Result<Duration> {
    let program = std::path::absolute(stage.program)?;
    let begun = Instant::now();
    let moved = Command::new(program).current_dir(home).args(["move", from, to]).output()?;
    if !moved.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&moved.stderr).into_owned()));
    }
    Ok(begun.elapsed())
}

/// Rows that one of two files has and the other one lacks.
fn differences(one: &Path, other: &Path) -> io::Result<i64> {
    let count = || -> rusqlite::Result<i64> {
        let connection = Connection::open_in_memory()?;
        for (name, file) in [("one", one), ("other", other)] {
            connection.execute(&format!("ATTACH ?1 AS {name}"), [file.to_string_lossy()])?;
        }
        let lacks = |table: &str, a, b| {
            let rows = |file| format!("SELECT {}", table.replace("{}", file));
            let sql = format!("SELECT count(*) FROM ({} EXCEPT {})", rows(a), rows(b));
            connection.query_row(&sql, [], |row| row.get::<_, i64>(0))
        };
        PUBLIC
            .iter()
            .map(|table| Ok(lacks(table, "one", "other")? + lacks(table, "other", "one")?))
            .sum()
    };
    count().map_err(io::Error::other)
}
