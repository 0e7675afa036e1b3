//! Rows 10 and 11: what one daemon does for the workers of another.

use std::io;
use std::time::{Duration, Instant};

use super::queue::{Queue, daemon};
use super::{Stage, figure};
use crate::report::{Figure, ms};
use crate::rows::waits;
use crate::servers::new_home;

const DEATHS: usize = 3;
/// Jobs that are out at the daemon that dies.
const OUT: usize = 16;
const LEFT_OUT: &str = "SELECT count(*) FROM shiftboss.keys WHERE owner = 'member/one'";
const GLANCE: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(60);
const NOTICES: usize = 300;
/// So that the worker waits before the next line is written.
const PAUSE: Duration = Duration::from_millis(20);

pub fn rows(stage: &Stage) -> io::Result<Vec<Figure>> {
    let queue = Queue::load(stage, "short", 1_000)?;
    let mut times = Vec::new();
    for _ in 0..DEATHS {
        times.push(adoption(stage, &queue)?);
    }
    let most = times.into_iter().max().unwrap_or_default();
    let shown = format!("at most {} of {DEATHS}", ms(most));
    let what = format!("from a daemon's death until another one has its {OUT} leased jobs");
    Ok(vec![
        figure(10, &what, shown, String::new(), "7 s", Some(most <= Duration::from_secs(7))),
        notices(stage)?,
    ])
}

/// From the kill until no attempt is the dead daemon's.
fn adoption(stage: &Stage, queue: &Queue) -> io::Result<Duration> {
    let mut daemons = queue.daemons(stage, 2)?;
    let client = daemons.connect()?;
    let survivor = daemons.servers.pop();
    daemons.run(OUT, PATIENCE, OUT)?;
    if client.value::<i64>(LEFT_OUT)? < OUT as i64 {
        return Err(io::Error::other("the jobs are not out"));
    }
    daemons.servers.clear();
    let begun = Instant::now();
    while client.value::<i64>(LEFT_OUT)? > 0 {
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::other("nobody adopts a dead daemon's jobs"));
        }
        std::thread::sleep(GLANCE);
    }
    let took = begun.elapsed();
    drop(survivor);
    Ok(took)
}

/// From the write of a line at one daemon to the job of a worker that waits at another one.
fn notices(stage: &Stage) -> io::Result<Figure> {
    let homes = [new_home()?, new_home()?];
    let database = stage.cluster.database("notices", None)?;
    let writer = daemon(stage, &homes[0], &database, "one")?;
    let server = daemon(stage, &homes[1], &database, "other")?;
    let times = waits(&writer.input("bench.1.txt.part"), &server.socket, NOTICES, PAUSE)?;
    let (half, most) = (times[NOTICES / 2], times[NOTICES * 99 / 100]);
    let shown = format!("p50 {}, p99 {}, max {}", ms(half), ms(most), ms(times[NOTICES - 1]));
    let what =
        "from the write of a line at one daemon to the job of a worker that waits at another";
    Ok(figure(11, what, shown, String::new(), "p99 50 ms", Some(most <= Duration::from_millis(50))))
}
