//! The commands that look at a queue and change nothing: `status`, `why`, `tasks`, `groups`, `search`, `log`, `metrics`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::tz::TimeZone;
use jiff::{Timestamp, civil};
use shiftboss_protocol::answers::{Grouping, TaskStatus};

use super::one_of;
use crate::target::Asked;

#[derive(Debug, Subcommand)]
pub enum View {
    /// Show the state of the daemon and its queue
    #[command(after_help = "\
Examples:
  shiftboss status
  shiftboss status --json -t /var/lib/shiftboss/state.db
  wrong=$(shiftboss status --check 2>&1) || echo \"$wrong\" | mail -s shiftboss root")]
    Status {
        #[command(flatten)]
        arguments: ViewArguments,
        /// Print only what is wrong, a line each; exit with 1 if any of it is an error, with 69 if no daemon runs
        #[arg(long)]
        check: bool,
    },
    /// Say where a key is, and why it is not the next one
    ///
    /// Exits with 65 if the key is unknown.
    #[command(after_help = "\
Examples:
  shiftboss why alpha
  shiftboss why --json alpha | jq .place.keys_before")]
    Why {
        #[command(flatten)]
        arguments: ViewArguments,
        /// The key
        key: String,
    },
    /// Show tasks that wait, run or ended badly, with the reason
    ///
    /// In flight, failed, dead letters, delayed, then waiting. Failed tasks come newest first, tasks in flight oldest first, waiting
    /// tasks in the order of their turns. With --next, the keys that are handed out next, in that order, and when the turn of each is
    /// expected. With --held, the keys that are held, those of operators first, and of each kind the last one first; then the rules that
    /// hold many keys, and how many groups are held.
    #[command(after_help = "\
Examples:
  shiftboss tasks
  shiftboss tasks --next -n 1000 --json | jq -r '.keys[].key'
  shiftboss tasks --held
  shiftboss tasks --group host:example.org --status waiting
  shiftboss tasks --status dead_letter --json | jq -r '.tasks[].key'")]
    Tasks {
        #[command(flatten)]
        arguments: ViewArguments,
        /// Only those of this status
        #[arg(long, value_name = "waiting|in_flight|delayed|failed|dead_letter", value_parser = one_of(STATUSES))]
        status: Option<TaskStatus>,
        /// The next keys, in the order in which they would be handed out now
        #[arg(long, conflicts_with_all = ["status", "fetcher", "group", "held"])]
        next: bool,
        /// The keys that are held
        #[arg(long, conflicts_with_all = ["status", "fetcher", "group"])]
        held: bool,
        /// Only those of this fetcher; @tasks: single tasks
        #[arg(long)]
        fetcher: Option<String>,
        /// Only those of this group, as `groups` names it
        #[arg(long)]
        group: Option<String>,
        /// How many: 1 to 10000 [default: 100; with --next 20]
        #[arg(short = 'n', long = "number", value_parser = clap::value_parser!(u16).range(1..=10_000))]
        number: Option<u16>,
    },
    /// Show the groups of keys, closed ones first
    ///
    /// Each with how many keys wait for it, and when it opens: what is held, then what is full, what time opens, and what is open; of
    /// each kind those for which most keys wait first. Which groups there are, and their limits, is in the configuration file
    /// (`[[group]]`).
    #[command(after_help = "\
Examples:
  shiftboss groups
  shiftboss groups --json | jq '.counts'")]
    Groups {
        #[command(flatten)]
        arguments: ViewArguments,
        /// How many: 1 to 10000
        #[arg(short = 'n', long = "number", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        number: u16,
    },
    /// Show the keys that begin with TEXT, listed now or run before
    #[command(after_help = "\
Examples:
  shiftboss search https://example.org/
  shiftboss search -n 1000 --json python3 | jq -r '.keys[].key'")]
    Search {
        #[command(flatten)]
        arguments: ViewArguments,
        /// How the keys begin
        text: String,
        /// How many: 1 to 10000
        #[arg(short = 'n', long = "number", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        number: u16,
    },
    /// Show the attempts that ended, the last one first
    ///
    /// The daemon keeps the last 100000, or as many as its --history says; under --classic it keeps none. With --key, hand-outs that
    /// never arrived are left out.
    ///
    /// With --sum it shows sums instead: jobs, outcomes, how long they took, and the cycle time, which is how long after its key's last
    /// start a job was started. Whole hours are counted, the present one among them, and kept for 90 days; under --classic none are.
    #[command(after_help = "\
Examples:
  shiftboss log
  shiftboss log --failed --since 2h
  shiftboss log --key alpha --json
  shiftboss log --follow --after 4711 --json
  shiftboss log --sum --for 30days --by day
  shiftboss log --sum --by fetcher --json | jq '.groups[].cycle_seconds'")]
    Log {
        #[command(flatten)]
        arguments: ViewArguments,
        /// Only those that ended with another exit code than 0
        #[arg(long)]
        failed: bool,
        /// Only those that ended since then: a time such as 2026-11-21T13:00:00Z, or how long ago, such as 2h
        #[arg(long, value_name = "TIME", value_parser = since)]
        since: Option<i64>,
        /// The --log-dir of the workers: show the file with the key's output of that day, if it is there
        #[arg(long, value_name = "DIR")]
        log_dir: Option<PathBuf>,
        /// Only those of this key
        #[arg(long)]
        key: Option<String>,
        /// Only those of this fetcher's tasks; @tasks: single tasks
        #[arg(long)]
        fetcher: Option<String>,
        /// Print each attempt when it has ended, a line each, until Ctrl-C; with --json an object each
        ///
        /// For log shippers: who goes on with --after misses no end and meets none twice, whatever is started again, as long as the
        /// daemon keeps as many attempts as end meanwhile (its --history).
        #[arg(long, conflicts_with_all = ["since", "log_dir", "key", "fetcher"])]
        follow: bool,
        /// Begin behind the end of this number (`ended` in the object); 0: with all that are kept [default: with those from now on]
        #[arg(long, value_name = "ENDED", requires = "follow", value_parser = clap::value_parser!(i64).range(0..))]
        after: Option<i64>,
        /// How many: 1 to 10000
        #[arg(short = 'n', long = "number", default_value_t = 20, conflicts_with = "follow", value_parser = clap::value_parser!(u16).range(1..=10_000))]
        number: u16,
        /// Show sums of what was done
        #[arg(long, conflicts_with_all = ["failed", "since", "log_dir", "key", "fetcher", "follow", "number"])]
        sum: bool,
        /// With --sum, of so long until now: up to 90days
        #[arg(long = "for", value_name = "TIME", default_value = "24h", requires = "sum", value_parser = counted_time)]
        time: Duration,
        /// With --sum, a line for each, instead of one for all
        #[arg(long, value_name = "fetcher|hour|day|fetcher-day", requires = "sum", value_parser = one_of(GROUPINGS))]
        by: Option<Grouping>,
    },
    /// Print metrics for Prometheus, as OpenMetrics text
    ///
    /// The database tells how the queue is; a daemon that runs, what it counts since its start. Exits with an error if the
    /// database cannot be read.
    #[command(after_help = "\
Examples:
  shiftboss metrics
  shiftboss metrics -t /run/shiftboss/worker.sock > /var/lib/node_exporter/shiftboss.prom")]
    Metrics {
        #[command(flatten)]
        target: Asked,
    },
}

/// What sums can be over.
const GROUPINGS: &[(&str, &str, Grouping)] = &[
    ("fetcher", "Each fetcher", Grouping::Fetcher),
    ("hour", "Each hour", Grouping::Hour),
    ("day", "Each day, in UTC", Grouping::Day),
    ("fetcher-day", "Each fetcher, and of each the days", Grouping::FetcherDay),
];

/// The statuses that can be asked for.
const STATUSES: &[(&str, &str, TaskStatus)] = &[
    ("waiting", "Eligible when its turn comes", TaskStatus::Waiting),
    ("in_flight", "Handed out, and not ended", TaskStatus::InFlight),
    ("delayed", "Failed, and due again by itself", TaskStatus::Delayed),
    ("failed", "Its last attempt failed", TaskStatus::Failed),
    ("dead_letter", "Too many of its leases expired", TaskStatus::DeadLetter),
];

/// A moment, itself or how long ago it is: in seconds since 1970.
pub(super) fn since(text: &str) -> Result<i64, String> {
    let with_offset = || text.parse::<Timestamp>().ok();
    // As all times are shown.
    let in_utc = || TimeZone::UTC.to_timestamp(text.parse::<civil::DateTime>().ok()?).ok();
    let ago = || Timestamp::now().checked_sub(humantime::parse_duration(text).ok()?).ok();
    with_offset().or_else(in_utc).or_else(ago).map(Timestamp::as_second).ok_or_else(|| {
        "give a time such as 2026-11-21T13:00:00Z, 2026-11-21T22:00:00+09:00 or 2026-11-21 (UTC), or how long ago, such as 2h"
            .to_owned()
    })
}

/// How long what ended is counted.
const COUNTED_MAX: Duration = Duration::from_secs(90 * 86_400);

fn counted_time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).ok();
    time.filter(|time| !time.is_zero() && *time <= COUNTED_MAX)
        .ok_or_else(|| "give a time such as 24h or 7days, up to 90days".to_owned())
}

/// What is looked at, and how it is shown.
#[derive(Debug, Args)]
pub struct ViewArguments {
    #[command(flatten)]
    pub target: Asked,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What RFC 3339 and ISO 8601 have, and `date` prints: one moment.
    #[test]
    fn times_have_offsets() {
        for text in [
            "2026-11-21T13:00:00Z",
            "2026-11-21t13:00:00z",
            "2026-11-21 13:00:00Z",
            "2026-11-21 13:00:00",
            "2026-11-21T13:00:00.000001Z",
            "2026-11-21T13:00:00+00:00",
            "2026-11-21T13:00:00-00:00",
            "2026-11-21T22:00:00+09:00",
            "2026-11-21T22:00:00+0900",
            "2026-11-21T22:00:00+09",
            "2026-11-21T22:00+09:00",
            "2026-11-21T22+09:00",
            "2026-11-21 22:00:00+09:00",
            "2026-11-21T22:00:00,123456789+09:00",
            "2026-11-21T07:30:00-05:30",
            "2026-11-22T03:00:00+14:00",
            "2026-11-21T12:59:60Z",
        ] {
            let late = i64::from(text.contains(":60"));
            assert_eq!(since(text).map(|at| at + late), Ok(1_795_266_000), "{text}");
        }
        assert_eq!(since("2026-11-21"), Ok(1_795_219_200));
        let day = since("1day").unwrap() - since("2h").unwrap();
        assert!((-79_201..=-79_199).contains(&day), "{day}");
        for wrong in ["", "soon", "2026-13-01", "2026-11-21T25:00:00Z", "21.11.2026", "-2h"] {
            assert!(since(wrong).unwrap_err().contains("+09:00"), "{wrong}");
        }
    }
}
