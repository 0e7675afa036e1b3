//! Row 13: how soon a line that was written is handed out. Also what a worker waits for that asked before.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use shiftboss_protocol::client::Worker;
use shiftboss_protocol::wire::answers::Job;

use super::Setting;
use crate::report::{Figure, ms};
use crate::servers::{Server, new_home};

/// Tries.
const TRIES: usize = 1000;
const TARGET: Duration = Duration::from_millis(10);
const LEASE_SECONDS: u32 = 600;
/// How long a worker waits for a line.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn rows(setting: &Setting) -> io::Result<Vec<Figure>> {
    let home = new_home()?;
    let server = Server::shiftboss(&setting.program, home.path(), &[])?;
    let mut list = File::create(server.input("bench.1.txt.part"))?;
    let mut times = Vec::new();
    for index in 0..TRIES {
        let line = format!("key{index} {index}\n");
        let begun = Instant::now();
        list.write_all(line.as_bytes())?;
        let answer = ask(&server.socket, "READY\n")?;
        times.push(begun.elapsed());
        if answer != format!("JOB {line}") {
            return Err(io::Error::other(format!("{line:?} was answered {answer:?}")));
        }
    }
    times.sort_unstable();
    let (half, most) = (times[TRIES / 2], times[TRIES * 99 / 100]);
    Ok(vec![Figure {
        row: 13,
        what: "from the write of a line into a .part to its job, request included".to_owned(),
        measured: format!("p50 {}, p99 {}, max {}", ms(half), ms(most), ms(times[TRIES - 1])),
        compared: String::new(),
        target: "p99 10 ms",
        met: Some(most <= TARGET),
    }])
}

/// From the write of a line to the job of a worker that has waited for so long, at whatever daemon or relay; sorted.
///
/// # Errors
/// When the worker gets another job, or none.
pub fn waits(
    list: &Path,
    socket: &Path,
    lines: usize,
    pause: Duration,
) -> io::Result<Vec<Duration>> {
    let mut list = File::create(list)?;
    let mut worker = Worker::connect(socket, "bench", LEASE_SECONDS).map_err(io::Error::other)?;
    let mut times = Vec::new();
    for index in 0..lines {
        let waiting = thread::spawn(move || {
            let next = worker.next(PATIENCE);
            (worker, next, Instant::now())
        });
        thread::sleep(pause);
        let begun = Instant::now();
        list.write_all(format!("key{index} {index}\n").as_bytes())?;
        let waited = waiting.join().map_err(|_| io::Error::other("a worker panicked"))?;
        let (returned, next, answered) = waited;
        worker = returned;
        match next.map_err(io::Error::other)? {
            Ok(Job { attempt: Some(attempt), key, .. })
                if key == format!("key{index}").as_bytes() =>
            {
                times.push(answered.saturating_duration_since(begun));
                worker.done(attempt, 0).map_err(io::Error::other)?;
            }
            other => return Err(io::Error::other(format!("key{index} was answered {other:?}"))),
        }
    }
    times.sort_unstable();
    Ok(times)
}

/// One request on a connection of its own, as a shell worker makes it.
///
/// # Errors
/// When it is not answered.
pub fn ask(socket: &Path, request: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(request.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
