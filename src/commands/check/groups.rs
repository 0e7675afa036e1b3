//! `shiftboss check --config FILE --list LIST`: how the groups of a configuration sort the keys of a list, and how long
//! one pass over it takes at their limits, however many workers there are.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use shiftboss_protocol::fetcher_file::{FileName, Line, Named};
use shiftboss_queue::groups::{GroupRules, Limits};

use crate::cli::ServeOptions;
use crate::commands::text::{counted, shown};
use crate::exit::{ExitCode, Failure};
use crate::fetch::read_lines;

/// How many groups are named.
const LARGEST: usize = 10;

#[derive(Debug, Default)]
struct Sorted {
    /// How many keys each group has.
    groups: HashMap<Box<str>, u64>,
    others: u64,
}

pub fn report(list: &Path, options: &ServeOptions, job_time: Duration) -> Result<String, Failure> {
    let path = shown(&list.display().to_string());
    let read = sorted(list, &options.group).map_err(|error| {
        let text = format!("cannot read the list {path}: {error}; name a fetcher file");
        Failure::new(ExitCode::Configuration, text)
    });
    let Sorted { groups, others } = read?;
    let keys = groups.values().sum::<u64>() + others;
    let (all, kinds) = (counted(keys, "key"), counted(groups.len(), "group"));
    let mut out = format!("list {path}: {all}, in {kinds} and {others} without one\n");
    let pass =
        |(name, count): &(Box<str>, u64)| pass(*count, &options.group.limits(name), job_time);
    let mut largest: Vec<_> = groups.into_iter().collect();
    largest.sort_unstable_by(|a, b| (Reverse(a.1), &a.0).cmp(&(Reverse(b.1), &b.0)));
    for it in largest.iter().take(LARGEST) {
        let (name, count) = (shown(&it.0), counted(it.1, "key"));
        out += &format!("  {name}: {count}, {}\n", time(pass(it)));
    }
    let Some(longest) = largest.iter().max_by_key(|it| (pass(it), Reverse(&it.0))) else {
        return Ok(out);
    };
    let (whole, job) = (pass(longest), time(job_time));
    let last = shown(&longest.0);
    out += &format!(
        "  one pass takes {} at least, for {last}; a job taken to last {job}\n",
        time(whole)
    );
    let fetcher = options.fetcher.iter().find(|it| is_of(list, it.list.name.as_str()));
    if let Some(every) = fetcher.and_then(|it| it.list.every).filter(|every| *every < whole) {
        let every = time(every);
        out += &format!(
            "  warning: its fetcher makes a new list every {every}, before one pass is over: not all of its keys would run\n"
        );
    }
    Ok(out)
}

fn sorted(list: &Path, rules: &GroupRules) -> std::io::Result<Sorted> {
    let mut sorted = Sorted::default();
    read_lines(File::open(list)?, false, |line| {
        let Line::Row(row) = line else { return };
        match rules.of(row.key.as_str(), &row.payload) {
            Some(group) => *sorted.groups.entry((&*group.name).into()).or_default() += 1,
            None => sorted.others += 1,
        }
    })?;
    Ok(sorted)
}

fn is_of(list: &Path, fetcher: &str) -> bool {
    let name = list.file_name().map(FileName::parse);
    matches!(name, Some(Named::Fetcher(file)) if *file.run.fetcher == *fetcher)
}

/// How long so many jobs of a group take that last so long each, if it always has one to start.
fn pass(count: u64, limits: &Limits, job_time: Duration) -> Duration {
    let job = i64::try_from(job_time.as_millis()).unwrap_or(i64::MAX);
    let behind_first = i64::try_from(count).unwrap_or(i64::MAX).saturating_sub(1);
    let rest = limits.rest.map_or(0, |rest| rest.after(job));
    let in_turns = limits.max_in_flight.map_or(0, |most| {
        (behind_first / i64::from(most)).saturating_mul(job.saturating_add(rest))
    });
    let delayed = limits.delay.map_or(0, |delay| behind_first.saturating_mul(delay));
    let rated = limits
        .rate
        .map_or(0, |rate| (behind_first / i64::from(rate.starts)).saturating_mul(rate.window));
    let last_start = in_turns.max(delayed).max(rated);
    Duration::from_millis(last_start.saturating_add(job).max(0).cast_unsigned())
}

fn time(time: Duration) -> String {
    // Parts of a second matter only to short times.
    let whole = Duration::from_secs(time.as_secs());
    let shown = if time.as_secs() < 60 { time } else { whole };
    humantime::format_duration(shown).to_string()
}

#[cfg(test)]
mod tests {
    use shiftboss_queue::groups::{Rate, Rest};

    use super::*;

    #[test]
    fn a_pass_takes_as_long_as_the_strictest_limit() {
        let no = Limits::default();
        let one = Limits { max_in_flight: Some(1), ..no };
        let rest = Some(Rest { factor: 5.0, min: 0, max: 8_000 });
        let rate = Some(Rate { starts: 10, window: 60_000 });
        for (limits, count, seconds) in [
            (no, 100, 2),
            (one, 100, 200),
            (Limits { max_in_flight: Some(30), ..no }, 100, 8),
            (Limits { rest, ..one }, 100, 992),
            (Limits { delay: Some(5_000), ..one }, 100, 497),
            (Limits { delay: Some(1_000), ..one }, 100, 200),
            (Limits { rate, ..no }, 100, 542),
            (Limits { rate, ..no }, 101, 602),
            (one, 1, 2),
        ] {
            let took = pass(count, &limits, Duration::from_secs(2));
            assert_eq!(took.as_secs(), seconds, "{limits:?} {count}");
        }
    }
}
