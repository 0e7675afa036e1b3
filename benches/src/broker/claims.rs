//! Rows 2 and 3: how long a claim at a relay takes, and how many jobs a second its workers end.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use shiftboss_protocol::client::Worker;
use shiftboss_protocol::wire::answers::Job;

use super::installation::{Installation, Relay};
use super::{Stage, figure};
use crate::load::{self, Load, Plan};
use crate::protocol::Protocol;
use crate::report::{Figure, measured, ms, per_second};
use crate::servers::Server;

const CLAIMS: usize = 500;
/// Between two claims, so that nothing else is under way.
const PAUSE: Duration = Duration::from_millis(10);
const LEASE_SECONDS: u32 = 600;
const WORKERS: usize = 64;
/// More jobs than the daemon's own workers end in a second.
const JOBS_A_SECOND: usize = 70_000;
/// Jobs after which connections are made and caches are warm.
const WARM_UP: usize = 4 * WORKERS;

pub fn rows(stage: &Stage) -> io::Result<Vec<Figure>> {
    let mut installation = Installation::start(stage)?;
    let relay = installation.relay(stage)?;
    let setting = stage.setting;
    installation.daemon.fill(JOBS_A_SECOND * setting.seconds as usize * setting.rounds)?;
    let mut figures = vec![claims(&relay)?];
    figures.push(jobs(stage, &installation, &relay, Protocol::Leased, "as `shiftboss work` asks")?);
    figures.push(jobs(stage, &installation, &relay, Protocol::Classic, "classic")?);
    Ok(figures)
}

/// Row 2: with a worker alone.
fn claims(relay: &Relay) -> io::Result<Figure> {
    let socket = &relay.server.socket;
    let mut worker = Worker::connect(socket, "bench", LEASE_SECONDS).map_err(io::Error::other)?;
    let mut times = Vec::new();
    for _ in 0..CLAIMS {
        thread::sleep(PAUSE);
        let begun = Instant::now();
        let next = worker.next(Duration::ZERO).map_err(io::Error::other)?;
        times.push(begun.elapsed());
        let Ok(Job { attempt: Some(attempt), .. }) = next else {
            return Err(io::Error::other(format!("a claim was answered {next:?}")));
        };
        worker.done(attempt, 0).map_err(io::Error::other)?;
    }
    times.sort_unstable();
    let (half, most) = (times[CLAIMS / 2], times[CLAIMS * 99 / 100]);
    let shown = format!("p50 {}, p99 {}, max {}", ms(half), ms(most), ms(times[CLAIMS - 1]));
    let met = half <= Duration::from_millis(5) && most <= Duration::from_millis(20);
    let what = "a claim at an idle relay, from READY to JOB";
    Ok(figure(2, what, shown, String::new(), "p50 5 ms, p99 20 ms", Some(met)))
}

/// Row 3: the relay's workers and the daemon's own in turn, on one queue.
fn jobs(
    stage: &Stage,
    installation: &Installation,
    relay: &Relay,
    protocol: Protocol,
    how: &str,
) -> io::Result<Figure> {
    let (mut far, mut near) = (Vec::new(), Vec::new());
    for _ in 0..stage.setting.rounds {
        far.push(drive(stage, &relay.server, protocol)?);
        near.push(drive(stage, &installation.daemon, protocol)?);
    }
    let (far, near) = (Load::of_rounds(far), Load::of_rounds(near));
    let ratio = far.rate / near.rate;
    let compared = format!("at the daemon {}: {ratio:.2}x", per_second(near.rate));
    let what = format!("DONE+next, {WORKERS} workers at one relay, {how}, durable");
    Ok(figure(3, &what, measured(&far), compared, "0.3x", Some(ratio >= 0.3)))
}

fn drive(stage: &Stage, server: &Server, protocol: Protocol) -> io::Result<Load> {
    let plan = Plan {
        requests: WARM_UP,
        ..Plan::at(
            vec![server.socket.clone()],
            protocol,
            WORKERS,
            Duration::from_secs(stage.setting.seconds),
        )
    };
    load::run(&plan)?;
    load::run(&Plan { requests: usize::MAX, ..plan })
}
