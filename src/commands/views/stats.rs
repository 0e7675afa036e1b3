//! What `shiftboss stats` shows: sums as a table for people. Pure.

use shiftboss_queue::answers::{Stats, StatsGroup};
use shiftboss_queue::reader::Grouping;

use crate::text::{columns, counted, shown, span, time, took};

const HOUR_SECONDS: u64 = 3_600;

pub(super) fn render(stats: &Stats, now: i64) -> String {
    let hours = now.saturating_sub(stats.since).max(0).cast_unsigned().div_ceil(HOUR_SECONDS);
    let since = format!("Since {} UTC ({}):\n", time(stats.since), counted(hours, "hour"));
    if stats.groups.is_empty() {
        return since + "nothing ended.\n";
    }
    let name = match stats.by {
        Grouping::All => "All",
        Grouping::Fetcher => "Fetcher",
        Grouping::Hour => "Hour",
        Grouping::Day => "Day",
        Grouping::FetcherDay => "Fetcher and day",
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
        let took = group.mean_ms.map_or("-".to_owned(), |ms| took(Some(ms), 0));
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
        (Some(name), Some(since)) => format!("{} {}", fetcher(name), time(since)),
        (Some(name), None) => fetcher(name),
        (None, Some(since)) => time(since),
        (None, None) => "all fetchers".to_owned(),
    }
}

fn fetcher(name: &str) -> String {
    if name.is_empty() { "(gone)".to_owned() } else { shown(name) }
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
}
