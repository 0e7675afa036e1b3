//! What one process does to one entry after the other: put, move, remove; and a thousand at once.

use std::io;

use shiftspool::{Durability, EntryName, Item, QueueName, Spool, time_ordered};

use super::bare::Bare;
use super::{Place, REFERENCE, Setting, both, data_only, failed, fill, queue, rate, row};
use crate::load::median;
use crate::report::Figure;

/// Operations of one kind in a round; and entries of a batch.
const OPERATIONS: usize = 100;
const BATCH: usize = 1000;

/// What was measured, a value for each round, in operations a second.
#[derive(Default)]
struct Rates {
    bare_one: Vec<f64>,
    bare_two: Vec<f64>,
    data_only: Vec<f64>,
    both: Vec<f64>,
    moved: Vec<f64>,
    removed: Vec<f64>,
    full_data_only: Vec<f64>,
    full_both: Vec<f64>,
    full_moved: Vec<f64>,
    full_removed: Vec<f64>,
    batch: Vec<f64>,
    bare_batch: Vec<f64>,
}

struct Bench {
    bare: Bare,
    file: Spool,
    full: Spool,
    from: QueueName,
    to: QueueName,
}

fn enqueue(spool: &Spool, into: &QueueName, item: &Item) -> io::Result<f64> {
    rate(OPERATIONS, |_| spool.enqueue(into, time_ordered, item).map(drop).map_err(failed))
}

impl Bench {
    fn new(place: &Place) -> io::Result<Self> {
        let (file, full) =
            (place.spool("file", Durability::File)?, place.spool("full", Durability::Full)?);
        let (from, to) = (queue("from")?, queue("to")?);
        for spool in [&file, &full] {
            [&from, &to]
                .into_iter()
                .try_for_each(|queue| spool.ensure_queue(queue))
                .map_err(failed)?;
        }
        Ok(Self { bare: Bare::new(place.path("bare"))?, file, full, from, to })
    }

    /// Moves and removes what was put into the first queue.
    fn settle(&self, spool: &Spool, names: &[EntryName]) -> io::Result<(f64, f64)> {
        let moved = rate(names.len(), |index| {
            let guard = spool.checkout(&self.from, &names[index]).map_err(failed)?;
            guard.move_to(&self.to).map_err(failed)
        })?;
        let removed = rate(names.len(), |index| {
            let guard = spool.checkout(&self.to, &names[index]).map_err(failed)?;
            guard.complete().map_err(failed)
        })?;
        Ok((moved, removed))
    }

    /// Puts entries; those that are to be settled are noted.
    fn put(&mut self, rates: &mut Rates, put: &mut Put) -> io::Result<()> {
        rates.bare_one.push(rate(OPERATIONS, |_| self.bare.one())?);
        rates.data_only.push(enqueue(&self.file, &self.to, &data_only())?);
        rates.bare_two.push(rate(OPERATIONS, |_| self.bare.two())?);
        rates.both.push(enqueue(&self.file, &self.to, &both())?);
        rates.full_data_only.push(enqueue(&self.full, &self.to, &data_only())?);
        rates.full_both.push(enqueue(&self.full, &self.to, &both())?);
        let items = vec![both(); BATCH];
        let batches = rate(1, |_| {
            let names = self.full.enqueue_batch(&self.from, time_ordered, &items);
            put.full.push(names.map_err(failed)?);
            Ok(())
        })?;
        rates.batch.push(batches * BATCH as f64);
        rates.bare_batch.push(rate(1, |_| self.bare.batch(BATCH))? * BATCH as f64);
        put.file.push(fill(&self.file, &self.from, BATCH)?);
        Ok(())
    }

    fn settle_round(
        &self,
        rates: &mut Rates,
        file: &[EntryName],
        full: &[EntryName],
    ) -> io::Result<()> {
        let (moved, removed) = self.settle(&self.file, file)?;
        rates.moved.push(moved);
        rates.removed.push(removed);
        let (moved, removed) = self.settle(&self.full, &full[..OPERATIONS])?;
        rates.full_moved.push(moved);
        rates.full_removed.push(removed);
        Ok(())
    }
}

/// Names of what was put, by round.
#[derive(Default)]
struct Put {
    file: Vec<Vec<EntryName>>,
    full: Vec<Vec<EntryName>>,
}

/// All puts, then all that removes: ext4 looks at each inode that was freed in the last minutes before it
/// makes a file near it, which costs everybody some 0.4 ms a file (also after other programs' removals).
fn measure(setting: &Setting) -> io::Result<Rates> {
    let place = Place::new(setting)?;
    let (mut bench, mut rates, mut put) = (Bench::new(&place)?, Rates::default(), Put::default());
    for _ in 0..setting.rounds {
        bench.put(&mut rates, &mut put)?;
    }
    for (file, full) in put.file.iter().zip(&put.full) {
        bench.settle_round(&mut rates, file, full)?;
    }
    Ok(rates)
}

/// A rate beside another one.
fn beside(
    number: u32,
    what: &str,
    rate: f64,
    other: (&str, f64),
    target: &'static str,
    factor: Option<f64>,
) -> Figure {
    let (name, with) = other;
    let compared = format!("{name} {with:.0}/s: {:.2}x", rate / with);
    let met = factor.map(|factor| rate >= factor * with);
    row(number, what, format!("{rate:.0}/s"), compared, target, met)
}

/// Rows 1 to 5.
///
/// # Errors
/// When the disk says so.
pub fn rows(setting: &Setting) -> io::Result<Vec<Figure>> {
    let rates = measure(setting)?;
    let [one, two, data, both] =
        [&rates.bare_one, &rates.bare_two, &rates.data_only, &rates.both].map(|r| median(r));
    let [moved, removed] = [&rates.moved, &rates.removed].map(|r| median(r));
    let [full_data, full_both, full_moved, full_removed, batch, bare_batch] = [
        &rates.full_data_only,
        &rates.full_both,
        &rates.full_moved,
        &rates.full_removed,
        &rates.batch,
        &rates.bare_batch,
    ]
    .map(|r| median(r));
    let reference = |rate| ("the reference", rate);
    let none = "-";
    Ok(vec![
        beside(1, "enqueue, data alone, `file`", data, ("one bare file", one), "0.8x", Some(0.8)),
        beside(
            1,
            "enqueue, metadata and data, `file`",
            both,
            ("two bare files", two),
            "0.8x",
            Some(0.8),
        ),
        beside(1, "the same", both, ("one bare file", one), "0.8x", Some(0.8)),
        beside(1, "the same", both, reference(REFERENCE.enqueue), "2x", Some(2.0)),
        beside(1, "at `full`: data alone", full_data, ("`file`", data), none, None),
        beside(1, "at `full`: metadata and data", full_both, ("`file`", both), none, None),
        beside(
            2,
            "checkout and move, `file`",
            moved,
            reference(REFERENCE.move_to),
            "5x",
            Some(5.0),
        ),
        beside(2, "at `full`", full_moved, ("`file`", moved), none, None),
        beside(
            3,
            "checkout and remove, `file`",
            removed,
            reference(REFERENCE.remove),
            "5x",
            Some(5.0),
        ),
        beside(3, "at `full`", full_removed, ("`file`", removed), none, None),
        beside(
            4,
            "enqueue of 1,000 at once, `full`",
            batch,
            ("one by one", full_both),
            "20x",
            Some(20.0),
        ),
        beside(4, "the same", batch, ("the bare calls", bare_batch), none, None),
    ])
}
