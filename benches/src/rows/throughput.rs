//! Rows 1 to 5: jobs a second, beside beanstalkd.

use std::io;
use std::time::{Duration, Instant};

use crate::bare::Bare;

use super::Setting;
use super::shapes::write_log;
use crate::load::{self, Load, Plan};
use crate::report::{Figure, measured, ms, per_second};
use crate::servers::{Server, new_home};

/// Jobs for a server that is measured for a few seconds; beanstalkd syncs each of them.
pub(super) const JOBS: usize = 400_000;
const JOBS_SYNCED: usize = 40_000;

/// When keys ran that ran before.
const RAN: i64 = 1_500_000_000;

/// beanstalkd, a sync for each write.
const SYNCED: &[&str] = &["-b", ".", "-f", "0"];
/// beanstalkd with a log that is never synced.
const UNSYNCED: &[&str] = &["-b", ".", "-F"];

pub fn rows(setting: &Setting) -> io::Result<Vec<Figure>> {
    let ours = |flags: &[&str], connections, one_request_each| {
        let home = new_home()?;
        let mut server = Server::shiftboss(&setting.program, home.path(), flags)?;
        server.fill(JOBS)?;
        measure(setting, &server, connections, one_request_each)
    };
    let other = |flags: &[&str], jobs, connections| beanstalkd(setting, flags, jobs, connections);
    let row_1 = ours(&[], 64, false)?;
    let synced = other(SYNCED, JOBS_SYNCED, 64)?;
    let row_2 = ours(&[], 1, false)?;
    let row_3 = ours(&[], 1000, false)?;
    let bare = bare_rate(setting)?;
    let mut figures = vec![
        compared(
            1,
            "DONE+next, 64 connections, durable",
            &row_1,
            "beanstalkd -f 0",
            synced.as_ref(),
            5.5,
            "5.5x",
        ),
        compared(
            1,
            "the same",
            &row_1,
            "beanstalkd in memory",
            other(&[], JOBS, 64)?.as_ref(),
            0.35,
            "0.35x",
        ),
        compared(
            2,
            "the same, 1 connection",
            &row_2,
            "beanstalkd -f 0",
            other(SYNCED, JOBS_SYNCED, 1)?.as_ref(),
            0.8,
            "0.8x",
        ),
        against_rate(2, "the same", &row_2, "bare SQLite", bare, 0.9, "0.9x"),
        against_rate(3, "the same, 1,000 connections", &row_3, "row 1", row_1.rate, 1.0, "1x"),
        slowest(&row_3),
        at_least(4, "a connection for each request, 64 at a time", &ours(&[], 64, true)?, 10_000.0),
        compared(
            5,
            "--durability process, 64 connections",
            &ours(&["--durability", "process"], 64, false)?,
            "beanstalkd -F",
            other(UNSYNCED, JOBS, 64)?.as_ref(),
            0.5,
            "0.5x",
        ),
    ];
    figures.splice(1..1, of_known_keys(setting, synced.as_ref())?);
    Ok(figures)
}

/// The same of keys that ran before, in one list and in several.
fn of_known_keys(setting: &Setting, synced: Option<&Load>) -> io::Result<Vec<Figure>> {
    let [steady, shuffled] = [false, true].map(|shuffled| ran_before(setting, 1, shuffled));
    let (steady, shuffled) = (steady?, shuffled?);
    let [two, three] = [2, 3].map(|lists| ran_before(setting, lists, false));
    Ok(vec![
        compared(
            1,
            "the same, of keys that ran before",
            &steady,
            "beanstalkd -f 0",
            synced,
            7.0,
            "7x",
        ),
        compared(
            1,
            "the same, whose last starts are shuffled",
            &shuffled,
            "beanstalkd -f 0",
            synced,
            4.0,
            "4x",
        ),
        against_rate(
            1,
            "keys that ran before, each in two lists",
            &two?,
            "in one",
            steady.rate,
            0.8,
            "0.8x",
        ),
        against_rate(1, "the same, in three lists", &three?, "in one", steady.rate, 0.65, "0.65x"),
    ])
}

/// Once all keys have run the log only changes; at first it grows, at random places of its index.
/// They ran all at once, so that jitter alone orders them, or one after the other in another order.
fn ran_before(setting: &Setting, lists: usize, shuffled: bool) -> io::Result<Load> {
    let home = new_home()?;
    let started = |number: usize| RAN + if shuffled { mixed(number) } else { 0 };
    write_log(&home.path().join("state.db"), JOBS, started).map_err(io::Error::other)?;
    let mut server = Server::shiftboss(&setting.program, home.path(), &[])?;
    (0..lists).try_for_each(|list| server.list(&format!("bench{list}"), JOBS))?;
    measure(setting, &server, 64, false)
}

/// Another number for each, in no order (2654435761 is prime).
fn mixed(number: usize) -> i64 {
    (number as u64 * 2_654_435_761 % JOBS as u64).cast_signed()
}

/// `None`: it is not installed.
fn beanstalkd(
    setting: &Setting,
    flags: &[&str],
    jobs: usize,
    connections: usize,
) -> io::Result<Option<Load>> {
    if !setting.beanstalkd {
        return Ok(None);
    }
    let home = new_home()?;
    let mut server = Server::beanstalkd(home.path(), flags)?;
    server.fill(jobs)?;
    measure(setting, &server, connections, false).map(Some)
}

fn measure(
    setting: &Setting,
    server: &Server,
    connections: usize,
    one_request_each: bool,
) -> io::Result<Load> {
    load::run(&Plan {
        one_request_each,
        ..Plan::at(
            vec![server.socket.clone()],
            server.protocol,
            connections,
            Duration::from_secs(setting.seconds),
        )
    })
}

/// The store's own statements, one commit for each DONE+next, without actors and sockets.
fn bare_rate(setting: &Setting) -> io::Result<f64> {
    let mut bare = Bare::new(JOBS.min(100_000))?;
    let (begun, mut jobs) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(setting.seconds) {
        bare.cycle()?;
        jobs += 1;
    }
    Ok(f64::from(jobs) / begun.elapsed().as_secs_f64())
}

fn compared(
    row: u32,
    what: &str,
    ours: &Load,
    name: &str,
    other: Option<&Load>,
    target: f64,
    target_text: &'static str,
) -> Figure {
    match other {
        Some(other) => against_rate(row, what, ours, name, other.rate, target, target_text),
        None => Figure {
            row,
            what: what.to_owned(),
            measured: measured(ours),
            compared: "beanstalkd is not installed".to_owned(),
            target: target_text,
            met: None,
        },
    }
}

pub(super) fn against_rate(
    row: u32,
    what: &str,
    ours: &Load,
    name: &str,
    rate: f64,
    target: f64,
    target_text: &'static str,
) -> Figure {
    let ratio = ours.rate / rate;
    Figure {
        row,
        what: what.to_owned(),
        measured: measured(ours),
        compared: format!("{name} {}: {ratio:.2}x", per_second(rate)),
        target: target_text,
        met: Some(ratio >= target),
    }
}

fn slowest(load: &Load) -> Figure {
    Figure {
        row: 3,
        what: "its round trip".to_owned(),
        measured: format!("p99 {}", ms(load.trip(0.99))),
        compared: String::new(),
        target: "p99 100 ms",
        met: Some(load.trip(0.99) <= Duration::from_millis(100)),
    }
}

fn at_least(row: u32, what: &str, load: &Load, rate: f64) -> Figure {
    Figure {
        row,
        what: what.to_owned(),
        measured: measured(load),
        compared: String::new(),
        target: "10,000/s",
        met: Some(load.rate >= rate),
    }
}
