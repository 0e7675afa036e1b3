//! What depends on how long a queue is: taking, and the monitor's look.

use std::io;
use std::time::Instant;

use shiftspool::{Durability, Limits, Order};

use super::{Place, REFERENCE, Setting, failed, fill, micros, queue, rate, row};
use crate::load::median;
use crate::report::Figure;

/// Takes from each queue; the first, which lists the queue, is shown apart.
const TAKES: usize = 90;
/// Takes from the longest queue may cost so much more than from the shortest.
const FLAT: f64 = 1.5;
/// The monitor is to be so much faster than the reference.
const MONITOR: f64 = 10.0;

/// What a take costs in a queue of one length, in microseconds.
struct Cost {
    entries: usize,
    first: f64,
    then: f64,
    monitor: f64,
}

fn measure(place: &Place, entries: usize, order: Order) -> io::Result<Cost> {
    let spool = place.spool("spool", Durability::File)?;
    let from = queue("from")?;
    fill(&spool, &from, entries)?;
    let limits = Limits::default();
    let mut looks = Vec::new();
    for _ in 0..3 {
        looks.push(rate(1, |_| spool.monitor(&limits).map(drop).map_err(failed))?);
    }
    let mut reader = spool.reader(&from, order).map_err(failed)?;
    let (mut times, mut guards) = (Vec::new(), Vec::new());
    for _ in 0..=TAKES {
        let start = Instant::now();
        guards.push(reader.dequeue_available().map_err(failed)?);
        times.push(micros(start.elapsed()));
    }
    let first = times.remove(0);
    let monitor = median(&looks) * entries as f64;
    // Its lengths would be others with every entry given back.
    for guard in guards.into_iter().flatten() {
        guard.release().map_err(failed)?;
    }
    Ok(Cost { entries, first, then: median(&times), monitor })
}

fn taking(
    setting: &Setting,
    order: Order,
    places: &mut Vec<Place>,
) -> io::Result<(Figure, Vec<Cost>)> {
    let mut lengths = vec![100, 1000, 10_000];
    lengths.push(setting.longest);
    let mut costs = Vec::new();
    for entries in lengths {
        let place = Place::new(setting)?;
        costs.push(measure(&place, entries, order)?);
        places.push(place);
    }
    let shown = |value: fn(&Cost) -> f64| {
        let of = |cost: &Cost| format!("{:.0} us of {}", value(cost), cost.entries);
        costs.iter().map(of).collect::<Vec<_>>().join(", ")
    };
    let then: Vec<f64> = costs.iter().map(|cost| cost.then).collect();
    let (shortest, longest) = (then[0], then[then.len() - 1]);
    let what = match order {
        Order::Strict => "take, `file`, in order",
        Order::Spread => "take, `file`, spread",
    };
    let compared = format!(
        "{:.2}x from first to last; the first take: {}",
        longest / shortest,
        shown(|c| c.first)
    );
    let met = Some(longest <= FLAT * shortest);
    Ok((row(5, what, shown(|c| c.then), compared, "flat (1.5x)", met), costs))
}

/// Rows 5 and 6. What was made stays in `places`: to be removed when nothing is measured any more.
///
/// # Errors
/// When the disk says so.
pub fn rows(setting: &Setting, places: &mut Vec<Place>) -> io::Result<Vec<Figure>> {
    let (strict, costs) = taking(setting, Order::Strict, places)?;
    let (spread, _) = taking(setting, Order::Spread, places)?;
    let look = &costs[costs.len() - 1];
    let compared = format!(
        "the reference {:.0}/s: {:.2}x",
        REFERENCE.monitor,
        look.monitor / REFERENCE.monitor
    );
    let monitor = row(
        6,
        &format!("the monitor's look at {} entries", look.entries),
        format!("{:.0} entries/s", look.monitor),
        compared,
        "10x",
        Some(look.monitor >= MONITOR * REFERENCE.monitor),
    );
    Ok(vec![strict, spread, monitor])
}
