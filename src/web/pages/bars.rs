//! Pictures of bars: jobs that ended by hour or day, stacked by outcome; and how long keys wait. Numbers for the one template that
//! draws them; the same numbers are its table. Pure.

use shiftboss_protocol::answers::{LastStarts, Stats};
use shiftboss_queue::sums::total;

use super::parts::Grid;
use crate::text::{counted, time};
use crate::view::table::{Cell, Column, Row, Table, column, number};

const DAY_SECONDS: i64 = 24 * 3_600;
/// Of the view box of all pictures, in units of their own.
const WIDTH: i64 = 1_000;
const HEIGHT: i64 = 120;
/// Of the place of a bar, what it takes; in hundredths.
const FILLED: i64 = 84;

const ENDED: &[Column] =
    &[column("time (UTC)", 0), number("success", 1), number("failure", 1), number("timeout", 1)];
const RAN: &[Column] = &[column("ran last", 0), number("keys", 1), number("share", 1)];

pub(super) struct Picture {
    /// Of its elements in the page.
    pub id: &'static str,
    pub title: String,
    /// The picture in words, for screen readers; if there are no bars, all that is shown.
    pub summary: String,
    pub caption: String,
    /// Its bars are of outcomes, each with its colour.
    pub is_of_outcomes: bool,
    pub bars: Vec<Bar>,
    pub table: Grid,
}

#[derive(Debug)]
pub(super) struct Bar {
    /// What stands below it.
    pub label: Option<String>,
    pub share: Option<String>,
    pub parts: Vec<Part>,
}

#[derive(Debug)]
pub(super) struct Part {
    /// An outcome, or `age`.
    pub of: &'static str,
    pub x: i64,
    pub y: i64,
    pub width: i64,
    pub height: i64,
}

/// Parts above each other, of the bar `at` that place of so many; the highest bar has `most`.
fn stacked(at: i64, count: i64, most: i64, numbers: &[(&'static str, i64)]) -> Vec<Part> {
    let (begin, end) = (at * WIDTH / count, (at + 1) * WIDTH / count);
    let width = (end - begin) * FILLED / 100;
    let x = begin + (end - begin - width) / 2;
    let mut y = HEIGHT;
    let part = |(of, number): &(&'static str, i64)| {
        // However few they are, they are seen.
        let height = (number.saturating_mul(HEIGHT) / most.max(1)).max(1).min(y);
        y -= height;
        Part { of, x, y, width, height }
    };
    numbers.iter().filter(|(_, number)| *number > 0).map(part).collect()
}

fn table(name: &'static str, columns: &'static [Column], rows: Vec<Vec<Cell>>) -> Grid {
    let rows = rows.into_iter().map(|cells| Row { cells, ..Row::default() }).collect();
    Grid::plain(&Table { name, columns, rows, none: "" })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Hour,
    Day,
}

impl Picture {
    /// What ended in the last 24 hours, or 14 days.
    pub fn ended(stats: &Stats, unit: Unit, now: i64) -> Self {
        // So many bars, of which so many have their time below them.
        let (each, in_one, seconds, count, labels, last) = match unit {
            Unit::Hour => ("each hour", "an hour", 3_600, 24, 4, "24 hours"),
            Unit::Day => ("each day", "a day", DAY_SECONDS, 14, 7, "14 days"),
        };
        let first = now.div_euclid(seconds) - count + 1;
        let jobs = stats.groups.iter().map(|group| group.jobs);
        let most = jobs.clone().max().unwrap_or(0);
        let (mut bars, mut rows) = (Vec::new(), Vec::new());
        for at in 0..count {
            let begin = (first + at) * seconds;
            let group = stats.groups.iter().find(|group| group.since == Some(begin));
            let group = group.cloned().unwrap_or_default();
            let numbers = [
                ("success", group.success),
                ("failure", group.failure),
                ("timeout", group.timeout),
            ];
            let text = time(begin);
            let label = match unit {
                Unit::Hour => text.get(11..).unwrap_or("00:00"),
                Unit::Day => text.get(5..10).unwrap_or(&text),
            };
            let is_labelled = at % (count / labels) == 0;
            bars.push(Bar {
                label: is_labelled.then(|| label.to_owned()),
                share: None,
                parts: stacked(at, count, most, &numbers),
            });
            let cells = numbers.map(|(_, number)| Cell::number(number));
            rows.push([Cell::word(label)].into_iter().chain(cells).collect());
        }
        let failed = total(stats.groups.iter().flat_map(|it| [it.failure, it.timeout]));
        let summary = match total(jobs) {
            0 => format!("No job was done in the last {last}"),
            jobs => {
                let was = if jobs == 1 { "was" } else { "were" };
                let jobs = counted(jobs, "job");
                format!("{jobs} {was} done in the last {last}, {failed} of which failed")
            }
        };
        Self {
            id: "ended",
            title: format!("Jobs that ended in {each}"),
            caption: format!("{summary}; at most {most} in {in_one} (UTC)."),
            summary,
            is_of_outcomes: true,
            bars: if most == 0 { Vec::new() } else { bars },
            table: table("Jobs that ended", ENDED, rows),
        }
    }
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

impl Picture {
    /// How long ago the keys of all lists ran.
    pub fn ages(starts: &LastStarts, now: i64) -> Self {
        const BARS: usize = AGES.len() + 1;
        let mut counts = [0_i64; BARS];
        for started in &starts.started {
            let age = |started: &i64| now.saturating_sub(*started).div_euclid(DAY_SECONDS);
            let group =
                started.as_ref().map(age).and_then(|days| AGES.iter().position(|it| days < it.1));
            counts[group.map_or(0, |group| group + 1)] += 1;
        }
        let (keys, most) = (starts.started.len(), counts.iter().copied().max().unwrap_or(0));
        let names = std::iter::once("never").chain(AGES.iter().map(|(name, _)| *name));
        let (mut bars, mut rows, mut said) = (Vec::new(), Vec::new(), Vec::new());
        for (at, (name, count)) in (0..).zip(names.zip(counts)) {
            let share = share(count, keys);
            said.push(format!("{name} {share}"));
            let cell = Cell { value: Some(count), ..Cell::word(&*share) };
            rows.push(vec![Cell::word(name), Cell::number(count), cell]);
            bars.push(Bar {
                label: Some(name.to_owned()),
                share: Some(share),
                parts: stacked(at, BARS as i64, most, &[("age", count)]),
            });
        }
        let (summary, bars) = match keys {
            0 => ("No key is listed".to_owned(), Vec::new()),
            _ => (said.join(", "), bars),
        };
        Self {
            id: "ages",
            title: "Listed keys by how long ago they ran".to_owned(),
            caption: match starts.is_all {
                true => format!("Of all {keys} lines of the newest lists."),
                false => format!("An estimate, from {keys} lines of the newest lists."),
            },
            summary,
            is_of_outcomes: false,
            bars,
            table: table("When keys ran last", RAN, rows),
        }
    }
}

/// In hundredths; of few in words.
fn share(count: i64, keys: usize) -> String {
    match (count, i64::try_from(keys).unwrap_or(i64::MAX)) {
        (0, _) | (_, 0) => "0 %".to_owned(),
        (count, keys) if count * 100 < keys => "< 1 %".to_owned(),
        (count, keys) => format!("{} %", count * 100 / keys),
    }
}

#[cfg(test)]
mod tests {
    use shiftboss_protocol::answers::StatsGroup;
    use shiftboss_queue::reader::Grouping;

    use super::*;

    fn stats(groups: Vec<StatsGroup>) -> Stats {
        Stats { since: 0, by: Grouping::Hour, groups, truncated: false }
    }

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
        let stats = stats(vec![group(100 * 3_600, 999, 1), group(99 * 3_600, 500, 0)]);
        let picture = Picture::ended(&stats, Unit::Hour, 100 * 3_600 + 5);
        let parts = |at: usize| -> Vec<_> {
            let parts = picture.bars[at].parts.iter();
            parts.map(|part| (part.of, part.y, part.height)).collect()
        };
        assert_eq!(parts(23), [("success", 1, 119), ("failure", 0, 1)]);
        assert_eq!(parts(22), [("success", 60, 60)]);
        assert_eq!(parts(0), []);
        let summary = "1500 jobs were done in the last 24 hours, 1 of which failed";
        assert_eq!(picture.summary, summary);
        assert_eq!(picture.caption, format!("{summary}; at most 1000 in an hour (UTC)."));
        let labels: Vec<_> = picture.bars.iter().filter_map(|bar| bar.label.as_deref()).collect();
        assert_eq!(labels, ["05:00", "11:00", "17:00", "23:00"]);
        let last = &picture.bars[23].parts[0];
        assert!(last.x + last.width <= WIDTH && last.x > WIDTH * 23 / 24);
        let days = Picture::ended(&stats, Unit::Day, 20 * DAY_SECONDS);
        assert_eq!((days.bars.len(), days.bars[12].label.as_deref()), (14, Some("01-20")));
    }

    /// Whatever somebody wrote into the sums.
    #[test]
    fn no_sum_is_too_large() {
        let most = i64::MAX;
        let group = |hour: i64| StatsGroup {
            since: Some(hour * 3_600),
            jobs: most,
            success: most,
            failure: most,
            timeout: most,
            ..StatsGroup::default()
        };
        let stats = stats(vec![group(100), group(99)]);
        let picture = Picture::ended(&stats, Unit::Hour, 100 * 3_600);
        assert!(picture.summary.starts_with(&most.to_string()), "{}", picture.summary);
    }

    /// Each key is in one group, and shares are of all.
    #[test]
    fn ages_are_grouped() {
        let now = 100 * DAY_SECONDS;
        let ages = |started| Picture::ages(&LastStarts { started, is_all: true }, now);
        let some = ages(vec![None, Some(now + 5), Some(now), Some(now - DAY_SECONDS), Some(0)]);
        assert_eq!(
            some.summary,
            "never 20 %, < 1 d 40 %, 1-2 d 20 %, 2-4 d 0 %, 4-7 d 0 %, 7-14 d 0 %, 14-30 d 0 %, > 30 d 20 %"
        );
        assert_eq!((some.bars[1].parts[0].height, some.bars[3].parts.len()), (HEIGHT, 0));
        assert!(Picture::ages(&LastStarts::default(), now).bars.is_empty());
        let mut many = vec![Some(now); 1_000];
        many.push(None);
        assert_eq!(ages(many).bars[0].share.as_deref(), Some("< 1 %"));
    }
}
