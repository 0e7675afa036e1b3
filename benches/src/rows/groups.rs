//! Rows 21 to 25: what limits of groups cost, and workers of some fetchers.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::Setting;
use super::throughput::{JOBS, against_rate};
use crate::load::{self, Load, Plan};
use crate::protocol::Protocol;
use crate::report::{Figure, measured, ms, per_second};
use crate::servers::{Server, new_home, write_list};

/// A group for each thousand of the keys' numbers, for each hundred thousand, and for each key.
const THOUSANDS: &str = "p([0-9]{5})";
const HUNDRED_THOUSANDS: &str = "p([0-9]{3})";
const EACH: &str = "p([0-9]+)";
/// More than are ever asked for.
const OPEN: &str = "max_in_flight = 1000";
const DELAY: Duration = Duration::from_secs(60);
/// Keys without a group, beside those of one that is closed.
const OTHERS: usize = 200_000;
const FETCHERS: usize = 1_000;
const OF_EACH: usize = 300;
const WAIT: Duration = Duration::from_millis(50);

fn of_groups(setting: &Setting, home: &Path, by: &str, limit: &str) -> io::Result<Server> {
    let rules = format!("[[group]]\nname = 'bench'\nby = {{regex = '{by}'}}\n{limit}\n");
    fs::write(home.join("groups.toml"), rules)?;
    Server::shiftboss(&setting.program, home, &["--config", "groups.toml"])
}

fn plan(server: &Server, connections: usize, time: Duration) -> Plan {
    Plan::at(vec![server.socket.clone()], server.protocol, connections, time)
}

fn drive(setting: &Setting, server: &Server, connections: usize) -> io::Result<Load> {
    load::run(&plan(server, connections, Duration::from_secs(setting.seconds)))
}

pub fn grouped(setting: &Setting) -> io::Result<Vec<Figure>> {
    let rate = |by: Option<&str>, jobs| {
        let home = new_home()?;
        let mut server = match by {
            Some(by) => of_groups(setting, home.path(), by, OPEN)?,
            None => Server::shiftboss(&setting.program, home.path(), &[])?,
        };
        server.fill(jobs)?;
        drive(setting, &server, 64)
    };
    let (without, with) = (rate(None, JOBS)?, rate(Some(THOUSANDS), JOBS)?);
    let all = [HUNDRED_THOUSANDS, THOUSANDS, EACH].map(|by| rate(Some(by), setting.list));
    let [few, some, many] = all;
    let [few, some, many] = [few?.rate, some?.rate, many?.rate];
    let ratio = few / many;
    let thousands = setting.list / 1_000;
    Ok(vec![
        against_rate(
            21,
            "DONE+next, 64 connections, each key in a group of a thousand",
            &with,
            "no group is configured",
            without.rate,
            0.5,
            "0.5x",
        ),
        Figure {
            row: 22,
            what: format!("the same, by the number of groups: {} of one key", setting.list),
            measured: per_second(many),
            compared: format!(
                "{} groups: {}; {thousands} groups: {}: costs {ratio:.2}x",
                thousands.div_ceil(100),
                per_second(few),
                per_second(some)
            ),
            target: "at most 2x",
            met: Some(ratio <= 2.0),
        },
    ])
}

/// What other keys cost, beside a group that is closed.
pub fn closed(setting: &Setting) -> io::Result<Vec<Figure>> {
    let rate = |closed: usize| {
        let home = new_home()?;
        let mut server = of_groups(setting, home.path(), "^packages", "max_in_flight = 1")?;
        if closed > 0 {
            server.fill(closed)?;
            // One of its jobs is out, for the rest of the measurement.
            load::run(&Plan { requests: 1, ..plan(&server, 1, Duration::from_secs(60)) })?;
        }
        let lines: String = (0..OTHERS).map(|at| format!("other{at:06} 1\n")).collect();
        fs::write(server.input("other.1.txt.part"), lines)?;
        fs::rename(server.input("other.1.txt.part"), server.input("other.1.txt"))?;
        server.wait(|server| Ok(server.run("other")?["complete"] == true))?;
        drive(setting, &server, 64)
    };
    let (alone, size) = (rate(0)?, setting.largest / 10 * 9);
    let beside = rate(size)?;
    let what = format!("DONE+next of keys without a group, beside {size} of one that is full");
    Ok(vec![against_rate(23, &what, &beside, "without those", alone.rate, 0.5, "0.5x")])
}

/// All keys ran once, and wait for groups of their own; then so long no daemon runs that time opens all.
pub fn due_at_once(setting: &Setting) -> io::Result<Vec<Figure>> {
    let home = new_home()?;
    let limit = format!("delay = '{}s'", DELAY.as_secs());
    let mut server = of_groups(setting, home.path(), EACH, &limit)?;
    server.fill(setting.list)?;
    let long = Duration::from_secs(900);
    load::run(&plan(&server, 64, long))?;
    let again = server.input("bench.2.txt.part");
    write_list(&again, setting.list)?;
    fs::rename(again, server.input("bench.2.txt"))?;
    let is_read =
        |it: &Server| Ok(it.run("bench")?["run"] == 2 && it.run("bench")?["complete"] == true);
    server.wait(is_read)?;
    server.stop()?;
    thread::sleep(DELAY);
    let server = of_groups(setting, home.path(), EACH, &limit)?;
    let load = drive(setting, &server, 6)?;
    Ok(vec![Figure {
        row: 24,
        what: format!("a worker's wait, 6 workers, when {} groups are due at once", setting.list),
        measured: measured(&load),
        compared: String::new(),
        target: "p99 50 ms",
        met: Some(load.trip(0.99) <= WAIT),
    }])
}

/// A worker for each of a thousand fetchers, beside as many for all.
pub fn routed(setting: &Setting) -> io::Result<Vec<Figure>> {
    let rate = |is_routed: bool| {
        let home = new_home()?;
        let names: Vec<String> = (0..FETCHERS).map(|at| format!("f{at}")).collect();
        for name in &names {
            let lines: String = (0..OF_EACH).map(|at| format!("{name}-{at:05} 1\n")).collect();
            fs::write(home.path().join(format!("input/{name}.1.txt")), lines)?;
        }
        let mut server = Server::shiftboss(&setting.program, home.path(), &[])?;
        server.wait(|it| Ok(it.status()?["rows"]["pending"] == FETCHERS * OF_EACH))?;
        server.protocol = Protocol::Leased;
        let fetchers = if is_routed { names } else { Vec::new() };
        // The first worker of each has its keys find their line.
        for name in &fetchers {
            let first = plan(&server, 1, Duration::from_secs(60));
            load::run(&Plan { requests: 1, fetchers: vec![name.clone()], ..first })?;
        }
        load::run(&Plan {
            fetchers,
            ..plan(&server, FETCHERS, Duration::from_secs(setting.seconds))
        })
    };
    let (of_all, of_each) = (rate(false)?, rate(true)?);
    let what = format!("DONE+next, a worker for each of {FETCHERS} fetchers");
    let mut figure =
        against_rate(25, &what, &of_each, "as many for all fetchers", of_all.rate, 0.9, "0.9x");
    figure.compared.push_str(&format!(" (p99 {})", ms(of_all.trip(0.99))));
    Ok(vec![figure])
}
