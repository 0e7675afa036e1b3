//! What `shiftboss stats` shows: sums as a table for people. Pure.

use std::time::{Duration, UNIX_EPOCH};

use shiftboss_actors::store::Grouping;
use shiftboss_actors::store::answers::{Stats, StatsGroup};

use crate::text::{columns, counted, shown, span};

const HOUR_SECONDS: i64 = 3_600;
const HOUR: Duration = Duration::from_secs(HOUR_SECONDS.unsigned_abs());

/// The beginning of the first hour: so many whole ones, the present one among them.
pub(super) fn first_second(now: i64, time: Duration) -> i64 {
    let hours = time.as_secs().div_ceil(HOUR.as_secs()).max(1);
    (now.div_euclid(HOUR_SECONDS) + 1).saturating_sub_unsigned(hours) * HOUR_SECONDS
}

pub(super) fn render(stats: &Stats, now: i64) -> String {
    let hours = (now - stats.since).max(0).cast_unsigned().div_ceil(HOUR.as_secs());
    let since = format!("Since {} UTC ({}):\n", time(stats.since), counted(hours, "hour"));
    if stats.groups.is_empty() {
        return since + "nothing ended.\n";
    }
    let name = match stats.by {
        Grouping::All => "All",
        Grouping::Fetcher => "Fetcher",
        Grouping::Hour => "Hour",
        Grouping::Day => "Day",
    };
    let row = |group: &StatsGroup| {
        let counts = [
            group.jobs,
            group.success,
            group.failure,
            group.timeout,
            group.released,
            group.undone,
            group.expired,
        ];
        let [jobs, success, failure, timeout, released, undone, expired] =
            counts.map(|count| count.to_string());
        let took = group.mean_ms.map_or("-".to_owned(), took);
        let cycle = group.cycle_seconds.map_or("-".to_owned(), span);
        [of(group), jobs, success, failure, timeout, released, undone, expired, took, cycle]
    };
    let head = [
        name,
        "jobs",
        "success",
        "failure",
        "timeout",
        "released",
        "undone",
        "expired",
        "took",
        "cycle time",
    ];
    let mut out = since + &columns(head, stats.groups.iter().map(row));
    if stats.truncated {
        out.push_str("There are more: ask for a shorter time.\n");
    }
    out
}

/// What a group is of.
fn of(group: &StatsGroup) -> String {
    match (&group.fetcher, group.since) {
        (Some(name), _) if name.is_empty() => "(gone)".to_owned(),
        (Some(name), _) => shown(name),
        (None, Some(since)) => time(since),
        (None, None) => "all fetchers".to_owned(),
    }
}

/// To the minute, in UTC; a day without its time.
fn time(second: i64) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(second.max(0).cast_unsigned());
    let text = humantime::format_rfc3339_seconds(time).to_string();
    text.get(..16).unwrap_or(&text).replace('T', " ").trim_end_matches(" 00:00").to_owned()
}

fn took(ms: i64) -> String {
    match ms {
        ..10_000 => format!("{}.{:03}s", ms / 1_000, ms % 1_000),
        _ => span(ms / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a user sees, to the letter.
    #[test]
    fn the_sums_are_as_documented() {
        let group = |fetcher: &str, jobs, cycle_seconds| StatsGroup {
            fetcher: Some(fetcher.to_owned()),
            jobs,
            success: jobs - 3,
            failure: 2,
            timeout: 1,
            mean_ms: Some(9_045),
            cycle_seconds,
            ..StatsGroup::default()
        };
        let groups = vec![group("", 3, None), group("repology", 120, Some(90_000))];
        let stats = Stats { since: 1_700_006_400, by: Grouping::Fetcher, groups, truncated: false };
        let expected = "\
Since 2023-11-15 UTC (24 hours):
Fetcher   jobs  success  failure  timeout  released  undone  expired  took    cycle time
(gone)    3     0        2        1        0         0       0        9.045s  -
repology  120   117      2        1        0         0       0        9.045s  1day 1h
";
        assert_eq!(render(&stats, 1_700_092_799), expected);
        let nothing = Stats { groups: Vec::new(), ..stats };
        let shown = render(&nothing, 1_700_007_000);
        assert_eq!(shown, "Since 2023-11-15 UTC (1 hour):\nnothing ended.\n");
    }

    /// The present hour is one of them.
    #[test]
    fn whole_hours_are_summed_up() {
        let first = |now, hours: f64| first_second(now, HOUR.mul_f64(hours));
        assert_eq!(first(10 * 3_600, 1.0), 10 * 3_600);
        assert_eq!(first(10 * 3_600 + 5, 0.1), 10 * 3_600);
        assert_eq!(first(10 * 3_600 + 5, 1.5), 9 * 3_600);
        assert_eq!(first(30 * 3_600 - 1, 24.0), 6 * 3_600);
    }
}
