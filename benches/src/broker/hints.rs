//! Rows 4 and 5: how soon work at the daemon is heard of at a relay, and what hints without end cost.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use shiftboss_protocol::client::Worker;

use super::client::Client;
use super::installation::Installation;
use super::tap::Tap;
use super::{Stage, figure};
use crate::report::{Figure, ms};
use crate::rows::waits;

/// Lines whose way is measured.
const LINES: usize = 200;
const TARGET: Duration = Duration::from_millis(100);
/// So that the relay is idle: for up to 250 ms after the last line's job it looks for what its end may have brought.
const PAUSE: Duration = Duration::from_millis(300);
/// How a relay asks whether there is work.
const LOOK: &[u8] = br#"{"has_work":"#;
/// 20 a second for 2 s.
const HINTS: u32 = 40;
const HINTS_APART: Duration = Duration::from_millis(50);
/// A worker that has begun to wait is looked after once, and the last hint a moment later.
const SETTLED: Duration = Duration::from_secs(1);
/// Longer than it is needed.
const WAIT: Duration = Duration::from_secs(6);

pub fn rows(stage: &Stage) -> io::Result<Vec<Figure>> {
    Ok(vec![notices(stage)?, looks(stage)?])
}

/// Row 4.
fn notices(stage: &Stage) -> io::Result<Figure> {
    let installation = Installation::start(stage)?;
    let relay = installation.relay(stage)?;
    let list = installation.daemon.input("bench.1.txt.part");
    let times = waits(&list, &relay.server.socket, LINES, PAUSE)?;
    let (half, most) = (times[LINES / 2], times[LINES * 99 / 100]);
    let shown = format!("p50 {}, p99 {}, max {}", ms(half), ms(most), ms(times[LINES - 1]));
    let what =
        "from the write of a line at the daemon to the job of a worker that waits at a relay";
    Ok(figure(4, what, shown, String::new(), "p99 100 ms", Some(most <= TARGET)))
}

/// Row 5: the hints are the benchmark's own, and there is no work.
fn looks(stage: &Stage) -> io::Result<Figure> {
    let installation = Installation::start(stage)?;
    let tap = Tap::new(&stage.setting.broker, LOOK)?;
    let relay = installation.relay_by(stage, &tap.url)?;
    let client = Client::connect(&stage.setting.broker)?;
    let mut worker =
        Worker::connect(&relay.server.socket, "bench", 60).map_err(io::Error::other)?;
    let waiting = thread::spawn(move || worker.next(WAIT).map_err(io::Error::other));
    thread::sleep(SETTLED);
    let before = tap.count();
    let begun = Instant::now();
    for number in 1..=HINTS {
        installation.hint(&client)?;
        thread::sleep((HINTS_APART * number).saturating_sub(begun.elapsed()));
    }
    let looks = tap.count() - before;
    let answer = waiting.join().map_err(|_| io::Error::other("a worker panicked"))??;
    if answer.is_ok() {
        return Err(io::Error::other("there was a job that nobody wrote"));
    }
    let what = "looks for work of a relay with a waiting worker, at 20 hints a second for 2 s";
    let met = (4..=25).contains(&looks);
    Ok(figure(5, what, looks.to_string(), String::new(), "4 to 25", Some(met)))
}
