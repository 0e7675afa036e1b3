//! Values of `serve`'s settings, as they are typed, and why some do not go together.

use std::ops::RangeInclusive;

use crate::config::values::parse_time;
use crate::stores::BUMP_SHARE_MAX;

/// Longest lease: as good as for ever, and far from where a sum of seconds overflows.
const LEASE_SECONDS_MAX: i64 = 10 * 31_557_600;
/// The longest name of a daemon.
const NAME_BYTES_MAX: usize = 255;

/// What does not go together, and why.
pub(super) const CLASSIC_SERVER: &str = "the classic rules are those of a supervisor on SQLite, and of one alone: leave out classic, or \
    give a database in a file";
pub(super) const PROCESS_SERVER: &str =
    "with a database on a server, an answer always outlives a power cut: leave out durability";
/// Options of a queue that daemons share.
pub(super) const FOR_A_SERVER: [&str; 5] =
    ["daemon_name", "takeover", "poll", "poll_notified", "no_migrate"];
pub(super) const SERVER_ONLY: &str = "daemon_name, takeover, poll, poll_notified and no_migrate are for a database on a server: leave them out, or give its URL";
pub(super) const CLASSIC_BROKER: &str =
    "the classic rules know no relays: leave out broker or classic";
pub(super) const CLASSIC_FAILURES: &str =
    "the classic rules know neither [job_retry] nor [backoff]: leave them out, or classic";
pub(super) const CLASSIC_LEASE: &str =
    "the classic rules know no other lease than 12h: leave out lease or classic";

/// A lease in whole seconds, the unit it is counted in (spec 2).
pub(super) fn parse_lease(text: &str) -> Result<i64, String> {
    let lease = parse_time(text)?;
    match i64::try_from(lease.as_secs()) {
        Ok(seconds @ 1..=LEASE_SECONDS_MAX) if lease.subsec_nanos() == 0 => Ok(seconds),
        _ => Err("give whole seconds, from 1s to 10years".to_owned()),
    }
}

/// Attempts that may be kept.
pub(super) const HISTORY: RangeInclusive<i64> = 1_000..=50_000_000;

/// A share, in thousandths.
pub(super) fn parse_share(text: &str) -> Result<u32, String> {
    let share: Option<f64> = text.parse().ok();
    share.and_then(thousandths).ok_or_else(|| format!("give {SHARE}"))
}

const SHARE: &str = "0, or a number from 0.001 to 0.5";

fn thousandths(share: f64) -> Option<u32> {
    let most = f64::from(BUMP_SHARE_MAX);
    let thousandths = (share * 1_000.0).round();
    let is_too_small = thousandths == 0.0 && share != 0.0;
    // Within these it is a small whole number.
    ((0.0..=most).contains(&thousandths) && !is_too_small).then_some(thousandths as u32)
}

pub(in crate::cli) fn parse_daemon_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > NAME_BYTES_MAX || text.contains(char::is_control) {
        return Err(format!("a name has 1 to {NAME_BYTES_MAX} bytes and no control characters"));
    }
    // So the queue on a server names relays, among its daemons.
    if text.starts_with("relay ") {
        return Err("a name does not begin with the word relay".to_owned());
    }
    Ok(text.to_owned())
}

/// The machine's.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
