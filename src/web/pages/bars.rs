//! Pictures of bars: jobs that ended by hour or day, stacked by outcome; and how long keys wait. Numbers for a template that
//! draws them; the same numbers are its table. Pure.

use shiftboss_queue::answers::{LastStarts, Stats, StatsGroup};
use shiftboss_queue::sums::total;

use super::parts::Grid;
use crate::text::time;
use crate::view::table::{Cell, Column, Row, Table, column, number};

const DAY_SECONDS: i64 = 24 * 3_600;
/// In the picture's own units.
const HEIGHT: i64 = 120;
/// Of the place of a bar, what it takes; in hundredths.
const FILLED: i64 = 84;

const ENDED: &[Column] =
    &[column("time (UTC)", 0), number("success", 1), number("failure", 1), number("timeout", 1)];
const RAN: &[Column] = &[column("ran last", 0), number("keys", 1), number("share", 1)];

/// How time is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Hour,
    Day,
}

impl Unit {
    fn seconds(self) -> i64 {
        match self {
            Self::Hour => 3_600,
            Self::Day => DAY_SECONDS,
        }
    }

    /// Bars of a picture, and so many of them have their time below them.
    fn bars(self) -> (i64, i64) {
        match self {
            Self::Hour => (24, 4),
            Self::Day => (14, 7),
        }
    }

    fn label(self, begin: i64) -> String {
        let text = time(begin);
        let label = match self {
            Self::Hour => text.get(11..).unwrap_or("00:00"),
            Self::Day => text.get(5..10).unwrap_or(&text),
        };
        label.to_owned()
    }
}

/// What ended, by time and outcome.
pub(super) struct Ended {
    /// `hour` or `day`.
    pub unit: &'static str,
    pub bars: Vec<Bar>,
    /// The most jobs of a bar.
    pub most: i64,
    /// What it says, for who does not see it.
    pub summary: String,
    /// The same numbers.
    pub table: Grid,
}

pub(super) struct Bar {
    pub time: String,
    /// Successes, failures, timeouts.
    jobs: [i64; 3],
    /// What is drawn of it, from the ground up.
    pub parts: Vec<Part>,
    /// Whether its time stands below it.
    pub is_labelled: bool,
}

/// A rectangle in the picture, whose width is that of its view box.
pub(super) struct Part {
    pub outcome: &'static str,
    pub x: i64,
    pub y: i64,
    pub width: i64,
    pub height: i64,
}

/// The view box of all pictures.
pub(super) const WIDTH: i64 = 1_000;

impl Ended {
    pub fn of(stats: &Stats, unit: Unit, now: i64) -> Self {
        let (count, _) = unit.bars();
        let first = now.div_euclid(unit.seconds()) - count + 1;
        let jobs = stats.groups.iter().map(|group| group.jobs);
        let most = jobs.clone().max().unwrap_or(0);
        let failed = total(stats.groups.iter().flat_map(|it| [it.failure, it.timeout]));
        let time = match unit {
            Unit::Hour => "24 hours",
            Unit::Day => "14 days",
        };
        let bars: Vec<Bar> =
            (0..count).map(|at| Bar::of(stats, unit, first + at, at, most)).collect();
        let row =
            |bar: &Bar| [Cell::word(&*bar.time)].into_iter().chain(bar.jobs.map(Cell::number));
        let table = table("Jobs that ended", ENDED, bars.iter().map(|bar| row(bar).collect()));
        Self {
            unit: if unit == Unit::Hour { "hour" } else { "day" },
            bars,
            most,
            table,
            summary: match total(jobs) {
                0 => format!("No job was done in the last {time}"),
                1 => format!("1 job was done in the last {time}, {failed} of which failed"),
                jobs => {
                    format!("{jobs} jobs were done in the last {time}, {failed} of which failed")
                }
            },
        }
    }
}

impl Bar {
    /// The bar `at` that place, of the hour or day with this number.
    fn of(stats: &Stats, unit: Unit, number: i64, at: i64, most: i64) -> Self {
        let begin = number * unit.seconds();
        let found = stats.groups.iter().find(|group| group.since == Some(begin));
        let none = StatsGroup::default();
        let StatsGroup { success, failure, timeout, .. } = *found.unwrap_or(&none);
        let (count, labels) = unit.bars();
        let (x, width) = place(at, count);
        let mut y = HEIGHT;
        let parts = [("success", success), ("failure", failure), ("timeout", timeout)];
        let parts = parts.into_iter().filter(|(_, jobs)| *jobs > 0).map(|(outcome, jobs)| {
            // However few they are, they are seen.
            let height = (jobs.saturating_mul(HEIGHT) / most.max(1)).max(1).min(y);
            y -= height;
            Part { outcome, x, y, width, height }
        });
        let parts = parts.collect();
        let is_labelled = at % (count / labels) == 0;
        let jobs = [success, failure, timeout];
        Self { time: unit.label(begin), jobs, parts, is_labelled }
    }
}

/// The numbers of a picture.
fn table(
    name: &'static str,
    columns: &'static [Column],
    rows: impl Iterator<Item = Vec<Cell>>,
) -> Grid {
    let rows = rows.map(|cells| Row { cells, ..Row::default() }).collect();
    Grid::plain(&Table { name, columns, rows, none: "" })
}

/// Where the bar `at` that place of so many begins, and how wide it is.
fn place(at: i64, count: i64) -> (i64, i64) {
    let (begin, end) = (at * WIDTH / count, (at + 1) * WIDTH / count);
    let width = (end - begin) * FILLED / 100;
    (begin + (end - begin - width) / 2, width)
}

/// How long ago the keys of all lists ran.
pub(super) struct Ages {
    pub bars: Vec<Age>,
    /// They were counted, not estimated from a sample.
    pub is_all: bool,
    /// Keys that were looked at.
    pub keys: usize,
    pub summary: String,
    /// The same numbers.
    pub table: Grid,
}

pub(super) struct Age {
    pub name: &'static str,
    pub keys: i64,
    /// Of all, in hundredths; of few in words.
    pub share: String,
    pub part: Part,
}

/// What is longer ago than the days of one, and not than those of the next.
const AGES: [(&str, i64); 7] = [
    ("< 1 d", 1),
    ("1-2 d", 2),
    ("2-4 d", 4),
    ("4-7 d", 7),
    ("7-14 d", 14),
    ("14-30 d", 30),
    ("> 30 d", i64::MAX),
];

impl Ages {
    pub fn of(starts: &LastStarts, now: i64) -> Self {
        let mut counts = [0_i64; AGES.len() + 1];
        for started in &starts.started {
            let age = |started: &i64| now.saturating_sub(*started).div_euclid(DAY_SECONDS);
            let group =
                started.as_ref().map(age).and_then(|days| AGES.iter().position(|it| days < it.1));
            counts[group.map_or(0, |group| group + 1)] += 1;
        }
        let (keys, most) = (starts.started.len(), counts.iter().copied().max().unwrap_or(0));
        let names = std::iter::once("never").chain(AGES.iter().map(|(name, _)| *name));
        let bars: Vec<Age> = names
            .zip(counts)
            .enumerate()
            .map(|(at, (name, count))| Age::of(at, name, count, keys, most))
            .collect();
        let summary = bars.iter().map(|age| format!("{} {}", age.name, age.share));
        let summary = summary.collect::<Vec<_>>().join(", ");
        let row = |age: &Age| {
            let share = Cell { value: Some(age.keys), ..Cell::word(&*age.share) };
            vec![Cell::word(age.name), Cell::number(age.keys), share]
        };
        let table = table("When keys ran last", RAN, bars.iter().map(row));
        Self { bars, is_all: starts.is_all, keys, summary, table }
    }
}

impl Age {
    fn of(at: usize, name: &'static str, count: i64, keys: usize, most: i64) -> Self {
        let (at, places) = (i64::try_from(at).unwrap_or(0), AGES.len() as i64 + 1);
        let (x, width) = place(at, places);
        let height = if count == 0 { 0 } else { (count * HEIGHT / most.max(1)).max(1) };
        let share = match (count, i64::try_from(keys).unwrap_or(i64::MAX)) {
            (0, _) | (_, 0) => "0 %".to_owned(),
            (count, keys) if count * 100 < keys => "< 1 %".to_owned(),
            (count, keys) => format!("{} %", count * 100 / keys),
        };
        let part = Part { outcome: "age", x, y: HEIGHT - height, width, height };
        Self { name, keys: count, share, part }
    }
}

#[cfg(test)]
mod tests {
    use shiftboss_queue::reader::Grouping;

    use super::*;

    /// Bars stand on the ground, the highest is as high as the picture, and one failure is seen.
    #[test]
    fn bars_are_stacked() {
        let group = |since, success, failure| StatsGroup {
            since: Some(since),
            jobs: success + failure,
            success,
            failure,
            ..StatsGroup::default()
        };
        let groups = vec![group(100 * 3_600, 999, 1), group(99 * 3_600, 500, 0)];
        let stats = Stats { since: 0, by: Grouping::Hour, groups, truncated: false };
        let picture = Ended::of(&stats, Unit::Hour, 100 * 3_600 + 5);
        let parts = |at: usize| -> Vec<_> {
            let parts = picture.bars[at].parts.iter();
            parts.map(|part| (part.outcome, part.y, part.height)).collect()
        };
        assert_eq!(parts(23), [("success", 1, 119), ("failure", 0, 1)]);
        assert_eq!(parts(22), [("success", 60, 60)]);
        assert_eq!(parts(0), []);
        assert_eq!(picture.most, 1_000);
        assert_eq!(picture.summary, "1500 jobs were done in the last 24 hours, 1 of which failed");
        assert_eq!(picture.bars[23].time, "04:00");
        assert_eq!(picture.bars.iter().filter(|bar| bar.is_labelled).count(), 4);
        let last = &picture.bars[23].parts[0];
        assert!(last.x + last.width <= WIDTH && last.x > WIDTH * 23 / 24);
        let days = Ended::of(&stats, Unit::Day, 20 * DAY_SECONDS);
        assert_eq!((days.bars.len(), &*days.bars[13].time), (14, "01-21"));
    }

    /// Whatever somebody wrote into the sums.
    #[test]
    fn no_sum_is_too_large() {
        let most = i64::MAX;
        let (jobs, success, failure, timeout) = (most, most, most, most);
        let group = |hour: i64| StatsGroup {
            since: Some(hour * 3_600),
            jobs,
            success,
            failure,
            timeout,
            ..StatsGroup::default()
        };
        let groups = vec![group(100), group(99)];
        let stats = Stats { since: 0, by: Grouping::Hour, groups, truncated: false };
        let picture = Ended::of(&stats, Unit::Hour, 100 * 3_600);
        assert!(picture.summary.starts_with(&most.to_string()), "{}", picture.summary);
    }

    /// Each key is in one group, and shares are of all.
    #[test]
    fn ages_are_grouped() {
        let now = 100 * DAY_SECONDS;
        let started = [None, Some(now + 5), Some(now), Some(now - DAY_SECONDS), Some(0)];
        let ages = Ages::of(&LastStarts { started: started.to_vec(), is_all: true }, now);
        let counts: Vec<i64> = ages.bars.iter().map(|age| age.keys).collect();
        assert_eq!(counts, [1, 2, 1, 0, 0, 0, 0, 1]);
        assert_eq!((&*ages.bars[1].share, ages.bars[1].part.height), ("40 %", HEIGHT));
        assert_eq!((&*ages.bars[3].share, ages.bars[3].part.height), ("0 %", 0));
        assert!(ages.summary.starts_with("never 20 %, < 1 d 40 %"), "{}", ages.summary);
        let none = Ages::of(&LastStarts::default(), now);
        assert_eq!((none.keys, none.bars.len()), (0, 8));
        let mut many = vec![Some(now); 1_000];
        many.push(None);
        assert_eq!(
            Ages::of(&LastStarts { started: many, is_all: true }, now).bars[0].share,
            "< 1 %"
        );
    }
}
