//! Rows 16 and 17: one worker with some slots. Its requests alone, beside classic workers; and with commands, beside
//! `xargs`, which records nothing.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Setting;
use crate::bare::key;
use crate::load::{self, Load, Plan};
use crate::protocol::Protocol;
use crate::report::{Figure, measured, per_second};
use crate::servers::{Server, new_home};

/// Slots of the worker; each has a connection of its own.
const SLOTS: usize = 16;
/// Jobs for requests alone, more than are done in the time.
const JOBS: usize = 400_000;
/// Commands of a round, and rounds: both are measured in turn, and all rounds count.
const COMMANDS: usize = 2_000;
const ROUNDS: usize = 3;

pub fn rows(setting: &Setting) -> io::Result<Vec<Figure>> {
    Ok(vec![
        requests(setting)?,
        commands(setting, SLOTS, 0.85, "0.85x")?,
        commands(setting, 1, 0.8, "0.8x")?,
    ])
}

fn requests(setting: &Setting) -> io::Result<Figure> {
    let leased = drive(setting, Protocol::Leased)?;
    let classic = drive(setting, Protocol::Classic)?;
    let ratio = leased.rate / classic.rate;
    Ok(Figure {
        row: 16,
        what: format!("the requests of a worker with {SLOTS} slots, protocol 2, durable"),
        measured: measured(&leased),
        compared: format!(
            "classic DONE+next, as many connections, {}: {ratio:.2}x",
            per_second(classic.rate)
        ),
        target: "1x",
        met: Some(ratio >= 1.0),
    })
}

fn drive(setting: &Setting, protocol: Protocol) -> io::Result<Load> {
    let home = new_home()?;
    let mut server = Server::shiftboss(&setting.program, home.path(), &[])?;
    server.fill(JOBS)?;
    load::run(&Plan::at(
        vec![server.socket.clone()],
        protocol,
        SLOTS,
        Duration::from_secs(setting.seconds),
    ))
}

fn commands(
    setting: &Setting,
    slots: usize,
    target: f64,
    target_text: &'static str,
) -> io::Result<Figure> {
    let [mut ours, mut others] = [Duration::ZERO; 2];
    for _ in 0..ROUNDS {
        ours += worked(setting, slots)?;
        others += by_xargs(slots)?;
    }
    let rate = |time: Duration| (COMMANDS * ROUNDS) as f64 / time.as_secs_f64();
    let ratio = rate(ours) / rate(others);
    Ok(Figure {
        row: 17,
        what: format!("`shiftboss work -n {slots} -- true`, durable"),
        measured: per_second(rate(ours)),
        compared: format!("`xargs -P {slots} -n 1 true` {}: {ratio:.2}x", per_second(rate(others))),
        target: target_text,
        met: Some(ratio >= target),
    })
}

/// How long a worker takes for a list, its own start included.
fn worked(setting: &Setting, slots: usize) -> io::Result<Duration> {
    let home = new_home()?;
    let mut server = Server::shiftboss(&setting.program, home.path(), &[])?;
    server.fill(COMMANDS)?;
    let mut worker = Command::new(&setting.program);
    worker
        .args(["work", "--once", "-n", &slots.to_string(), "-t"])
        .arg(&server.socket)
        .args(["--", "true"]);
    timed(worker.stdin(Stdio::null()), home.path())
}

fn by_xargs(slots: usize) -> io::Result<Duration> {
    let home = new_home()?;
    let (list, keys) = (home.path().join("keys"), (0..COMMANDS).map(|index| key(index) + "\n"));
    fs::write(&list, keys.collect::<String>())?;
    let mut xargs = Command::new("xargs");
    xargs.args(["-P", &slots.to_string(), "-n", "1", "true"]);
    timed(xargs.stdin(File::open(&list)?), home.path())
}

/// How long a command takes, which must succeed.
fn timed(command: &mut Command, home: &Path) -> io::Result<Duration> {
    let log = home.join("log");
    command.stdout(Stdio::null()).stderr(File::create(&log)?);
    let begun = Instant::now();
    let status = command.status()?;
    let took = begun.elapsed();
    let failed = || io::Error::other(format!("{command:?} ended with {status}"));
    if status.success() { Ok(took) } else { Err(failed()) }
}
