//! Rows 1 to 6: jobs a second, and how long a worker waits for its job.

use std::io;
use std::time::Duration;

use super::bare::Bare;
use super::graphile::Graphile;
use super::queue::Queue;
use super::{Stage, figure};
use crate::load::Load;
use crate::load::median;
use crate::report::{Figure, measured, ms, per_second};

/// Daemons, and the workers of each.
const OURS: [(usize, usize); 5] = [(1, 1), (1, 16), (2, 16), (1, 64), (2, 64)];
/// Jobs at a time of graphile-worker, and its local queue.
const THEIRS: [(usize, usize); 3] = [(1, 0), (16, 0), (16, 200)];
/// Which of ours the bare loop is compared with, a connection for each daemon.
const BARE: [usize; 2] = [1, 4];

#[derive(Default)]
struct Rounds {
    ours: [Vec<Load>; 5],
    batches: [f64; 5],
    theirs: [Vec<f64>; 3],
    bare: [Vec<f64>; 2],
}

pub fn rows(stage: &Stage) -> io::Result<Vec<Figure>> {
    let queue = Queue::load(stage, "loaded", stage.setting.jobs)?;
    let graphile = Graphile::load(stage)?;
    let bare = Bare::load(&stage.cluster, stage.setting.jobs)?;
    let mut rounds = Rounds::default();
    for _ in 0..stage.setting.rounds {
        rounds.ours(stage, &queue)?;
        if let Some(graphile) = &graphile {
            rounds.theirs(stage, graphile)?;
        }
        rounds.bare(stage, &bare)?;
    }
    Ok(rounds.figures())
}

impl Rounds {
    fn ours(&mut self, stage: &Stage, queue: &Queue) -> io::Result<()> {
        for (at, (count, workers)) in OURS.into_iter().enumerate() {
            let daemons = queue.daemons(stage, count)?;
            let time = Duration::from_secs(stage.setting.seconds);
            self.ours[at].push(daemons.drive(count * workers, time, usize::MAX)?);
            self.batches[at] = daemons.batch()?;
        }
        Ok(())
    }

    fn theirs(&mut self, stage: &Stage, graphile: &Graphile) -> io::Result<()> {
        for (at, (concurrency, queue)) in THEIRS.into_iter().enumerate() {
            self.theirs[at].push(graphile.rate(stage, concurrency, queue)?);
        }
        Ok(())
    }

    /// After ours, whose batches it has.
    fn bare(&mut self, stage: &Stage, bare: &Bare) -> io::Result<()> {
        for (at, ours) in BARE.into_iter().enumerate() {
            let (batch, time) =
                (self.batches[ours].round() as i64, Duration::from_secs(stage.setting.seconds));
            self.bare[at].push(bare.rate(&stage.cluster, OURS[ours].0, batch, time)?);
        }
        Ok(())
    }

    fn figures(self) -> Vec<Figure> {
        let batch = |at: usize| format!("batches of {:.0}", self.batches[at]);
        let [alone, one, two_of_16, one_of_64, two] = self.ours.map(Load::of_rounds);
        let [theirs, theirs_16, theirs_queue] = self.theirs.map(|rates| median(&rates));
        let [bare, bare_two] = self.bare.map(|rates| median(&rates));
        vec![
            against(1, "one worker", &alone, "graphile-worker", theirs, 1.2, "1.2x"),
            against(
                2,
                "16 workers, one daemon",
                &one,
                "graphile-worker of 16",
                theirs_16,
                4.0,
                "4x",
            ),
            against(
                2,
                "the same",
                &one,
                "graphile-worker of 16 with a local queue of 200",
                theirs_queue,
                0.6,
                "0.6x",
            ),
            against(
                3,
                "two daemons of 64 workers",
                &two,
                "graphile-worker of 16 with a local queue of 200",
                theirs_queue,
                1.3,
                "1.3x",
            ),
            against(
                4,
                &format!("16 workers, one daemon ({})", batch(1)),
                &one,
                "two bare updates a job",
                bare,
                0.5,
                "0.5x",
            ),
            against(
                4,
                &format!("two daemons of 64 workers ({})", batch(4)),
                &two,
                "two bare updates a job, two connections",
                bare_two,
                0.5,
                "0.5x",
            ),
            against(5, "two daemons of 16", &two_of_16, "one of 16", one.rate, 1.4, "1.4x"),
            against(5, "two daemons of 64", &two, "one of 64", one_of_64.rate, 1.4, "1.4x"),
            claim("an end and the next job, one worker", &alone),
            claim("the same, 16 workers, one daemon", &one),
        ]
    }
}

fn against(
    row: u32,
    what: &str,
    ours: &Load,
    name: &str,
    rate: f64,
    factor: f64,
    target: &'static str,
) -> Figure {
    if rate == 0.0 {
        let missing = format!("{name}: not installed");
        return figure(row, what, measured(ours), missing, target, None);
    }
    let ratio = ours.rate / rate;
    let compared = format!("{name} {}: {ratio:.2}x", per_second(rate));
    figure(row, what, measured(ours), compared, target, Some(ratio >= factor))
}

fn claim(what: &str, load: &Load) -> Figure {
    let (half, most) = (load.trip(0.5), load.trip(0.99));
    let met = half <= Duration::from_micros(1500) && most <= Duration::from_millis(10);
    let shown = format!("p50 {}, p99 {}", ms(half), ms(most));
    figure(6, what, shown, String::new(), "p50 1.5 ms, p99 10 ms", Some(met))
}
