//! Rows 7 to 9: what the length of a queue costs, and an old snapshot; how fast a list is loaded, and what workers feel of it.

use std::io;
use std::time::{Duration, Instant};

use super::bare::copy_rate;
use super::queue::{Daemons, Queue, daemon};
use super::{Stage, figure};
use crate::load::Load;
use crate::report::{Figure, measured, ms, per_second};
use crate::rows::Workers;
use crate::servers::{new_home, write_list};

const WORKERS: usize = 16;
/// Rows of the short queue. It is worked off in a moment, so it is measured so often in each round.
const SHORT: usize = 1_000;
const SHORT_PASSES: usize = 10;
/// Requests of one such measurement, after the warm-up.
const SHORT_REQUESTS: usize = 600;
/// Jobs that are left for the measurement under a snapshot, and the workers that do the others before.
const LEFT: usize = 100_000;
const HASTE: usize = 64;
/// How long they may take: under a snapshot everything may be slow.
const HASTE_MAX: Duration = Duration::from_secs(150);

pub fn rows(stage: &Stage) -> io::Result<Vec<Figure>> {
    let setting = stage.setting;
    let short = Queue::load(stage, "short", SHORT)?;
    let long = Queue::load(stage, "long", setting.list)?;
    let mut figures = flat(stage, &short, &long, setting.list)?;
    if setting.largest > 0 {
        let largest = Queue::load(stage, "largest", setting.largest)?;
        figures.extend(flat(stage, &short, &largest, setting.largest)?);
    }
    figures.push(under_snapshot(stage, &long)?);
    let rate = setting.list as f64 / long.loaded_in.as_secs_f64();
    let copied = copy_rate(&stage.cluster, &long.list(), setting.list)?;
    figures.push(loading(setting.list, rate, copied));
    figures.push(beside(stage)?);
    Ok(figures)
}

/// Row 7: the short queue and a long one in turn.
fn flat(stage: &Stage, short: &Queue, long: &Queue, lines: usize) -> io::Result<Vec<Figure>> {
    let time = Duration::from_secs(stage.setting.seconds);
    let (mut of_short, mut of_long) = (Costs::default(), Costs::default());
    for _ in 0..stage.setting.rounds {
        for _ in 0..SHORT_PASSES {
            of_short.measure(&short.daemons(stage, 1)?, HASTE_MAX, SHORT_REQUESTS)?;
        }
        of_long.measure(&long.daemons(stage, 1)?, time, usize::MAX)?;
    }
    let ((short, few), (long, many)) = (of_short.a_job(), of_long.a_job());
    let costs = short.rate / long.rate;
    let shown = format!("{}; {many:.1} kB of WAL a job", measured(&long));
    let compared =
        format!("{SHORT} rows: {}, {few:.1} kB; costs {costs:.2}x", per_second(short.rate));
    let what = format!("{WORKERS} workers, one daemon, {lines} rows");
    Ok(vec![figure(7, &what, shown, compared, "1.3x", Some(costs <= 1.3))])
}

/// Several measurements of one queue, and what the server wrote to its log meanwhile: pages whole, when they are changed for
/// the first time after a checkpoint.
#[derive(Default)]
struct Costs {
    loads: Vec<Load>,
    wal_bytes: i64,
}

impl Costs {
    fn measure(&mut self, daemons: &Daemons, time: Duration, requests: usize) -> io::Result<()> {
        let server = daemons.connect()?;
        daemons.warm_up(WORKERS, time)?;
        let written =
            || server.value::<i64>("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8");
        let before = written()?;
        self.loads.push(daemons.run(WORKERS, time, requests)?);
        self.wal_bytes += written()? - before;
        Ok(())
    }

    /// With the kilobytes of the server's log for a job.
    fn a_job(self) -> (Load, f64) {
        let load = Load::of_rounds(self.loads);
        let kilobytes = self.wal_bytes as f64 / 1000.0 / load.requests() as f64;
        (load, kilobytes)
    }
}

/// Row 8: before, and after most of the queue was worked off while a transaction stayed open.
fn under_snapshot(stage: &Stage, queue: &Queue) -> io::Result<Figure> {
    let time = Duration::from_secs(stage.setting.seconds);
    let daemons = queue.daemons(stage, 1)?;
    let before = daemons.drive(WORKERS, time, usize::MAX)?;
    let reader = daemons.connect()?;
    reader.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM shiftboss.header")?;
    let jobs = stage.setting.list.saturating_sub(LEFT + before.requests());
    let done = daemons.run(HASTE, HASTE_MAX, jobs)?.requests();
    let after = daemons.run(WORKERS, time, usize::MAX)?;
    reader.run("COMMIT")?;
    let costs = before.rate / after.rate;
    let compared = format!("before: {}; costs {costs:.2}x", per_second(before.rate));
    let what = format!("after {done} jobs under a snapshot");
    let met = Some(costs <= 1.5 && done >= jobs);
    Ok(figure(8, &what, measured(&after), compared, "1.5x", met))
}

fn loading(lines: usize, rate: f64, copied: f64) -> Figure {
    let (what, ratio) = (format!("loading a list of {lines} lines"), rate / copied);
    let compared = format!("COPY into a bare table {}: {ratio:.2}x", per_second(copied));
    figure(9, &what, per_second(rate), compared, "0.12x", Some(ratio >= 0.12))
}

/// Row 6 beside a load: what six workers wait for while a list is read.
fn beside(stage: &Stage) -> io::Result<Figure> {
    let (home, database) = (new_home()?, stage.cluster.database("beside", None)?);
    let mut server = daemon(stage, &home, &database, "one")?;
    write_list(&server.input("other.1.txt"), 1)?;
    let list = home.path().join("list");
    write_list(&list, stage.setting.jobs)?;
    let (workers, begun) = (Workers::start(&server.socket), Instant::now());
    std::fs::rename(&list, server.input("bench.1.txt"))?;
    server.wait(|server| Ok(server.run("bench")?["complete"] == true))?;
    let rate = stage.setting.jobs as f64 / begun.elapsed().as_secs_f64();
    let waits = workers.stop()?;
    let at = |share: f64| waits[(share * (waits.len() - 1) as f64) as usize];
    let shown = format!("p50 {}, p99 {}, max {}", ms(at(0.5)), ms(at(0.99)), ms(at(1.0)));
    let (what, compared) =
        ("a worker's wait beside a load, 6 workers", format!("loading {}", per_second(rate)));
    Ok(figure(6, what, shown, compared, "p99 50 ms", Some(at(0.99) <= Duration::from_millis(50))))
}
