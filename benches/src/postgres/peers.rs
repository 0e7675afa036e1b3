//! Rows 10 and 11: what one daemon does for the workers of another.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::queue::{Queue, daemon};
use super::{Stage, figure};
use crate::protocol::Protocol;
use crate::report::{Figure, ms};
use crate::servers::new_home;

const DEATHS: usize = 3;
/// Jobs that are out at the daemon that dies.
const OUT: usize = 16;
const LEFT_OUT: &str =
    "SELECT count(*) FROM shiftboss.attempts JOIN shiftboss.daemons USING (daemon)
    WHERE finished IS NULL AND name = 'one'";
const GLANCE: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(60);
const NOTICES: usize = 300;
/// So that the worker waits again before the next line is written.
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
    let mut list = File::create(writer.input("bench.1.txt.part"))?;
    let mut stream = UnixStream::connect(&server.socket)?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let (mut request, mut answer) = (Protocol::Leased.ask(), Vec::new());
    let mut times = Vec::new();
    for index in 0..NOTICES {
        stream.write_all(&request)?;
        std::thread::sleep(PAUSE);
        let begun = Instant::now();
        list.write_all(format!("key{index} {index}\n").as_bytes())?;
        answer.clear();
        while !Protocol::Leased.is_whole(&answer) {
            answers.read_until(b'\n', &mut answer)?;
        }
        times.push(begun.elapsed());
        Protocol::Leased.end(&answer, &mut request);
    }
    times.sort_unstable();
    let (half, most) = (times[NOTICES / 2], times[NOTICES * 99 / 100]);
    let shown = format!("p50 {}, p99 {}, max {}", ms(half), ms(most), ms(times[NOTICES - 1]));
    let what =
        "from the write of a line at one daemon to the job of a worker that waits at another";
    Ok(figure(11, what, shown, String::new(), "p99 50 ms", Some(most <= Duration::from_millis(50))))
}
