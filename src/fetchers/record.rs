//! What is kept of a fetcher, over restarts of the daemon too; and, from that, when it is due. Pure.
//!
//! [`super::supervisor`] keeps it in the database through storage, where `status` finds it.

use std::sync::Arc;
use std::time::Duration;

use shiftboss_protocol::answers::FetcherRecord;
use shiftboss_protocol::model::UnixSeconds;

use crate::config::FetcherTable;
use crate::schedule::scheduler::Status;

/// The record of an unknown fetcher.
pub(super) fn new(name: Arc<str>) -> FetcherRecord {
    FetcherRecord { name, ..FetcherRecord::default() }
}

/// Takes in what a schedule notes.
pub(super) fn update(record: &mut FetcherRecord, status: &Status) {
    record.state.clone_from(&status.state);
    record.next_run = status.next_run;
    // One that was broken off by a crash is still to be done until another one is on.
    if status.run_started.is_some() || status.runs > 0 {
        record.run_started = status.run_started;
    }
    // Until a run has ended in this process, the last one is another's.
    if let Some(last) = &status.last_run {
        record.last_run = Some(last.clone());
    }
}

/// How long, beyond the debounce, the watch has after a start to begin its own first run.
const WATCH_GRACE: Duration = Duration::from_secs(10);

/// How long to wait for the first run by the clock: `every` after the last one, whatever started that; at once after
/// one that was broken off, or that failed and must be retried or was configured anew. A fetcher with a watch runs at
/// the start in any case; the clock waits a while for that, because there may be nothing to watch.
pub(super) fn first_due(
    table: &FetcherTable,
    record: &FetcherRecord,
    is_changed: bool,
    now: UnixSeconds,
) -> Option<Duration> {
    let every = table.list.every?;
    let soonest = table
        .on_change
        .as_ref()
        .map_or(Duration::ZERO, |watched| watched.watch.debounce + WATCH_GRACE);
    let is_tried_again = table.rerun_on_failure || is_changed;
    let last = record.last_run.as_ref().filter(|_| record.run_started.is_none());
    let Some(last) = last.filter(|last| last.exit_code == 0 || !is_tried_again) else {
        return Some(soonest);
    };
    // Even if the clock was set back, the wait is not longer than that.
    let since = u64::try_from(now.saturating_sub(last.started)).unwrap_or(0);
    Some(every.saturating_sub(Duration::from_secs(since)).max(soonest))
}

#[cfg(test)]
mod tests {
    use shiftboss_protocol::answers::EndedRun;

    use super::*;

    fn table(retry: bool) -> FetcherTable {
        let text =
            format!("name = 'a'\ncommand = ['x']\nevery = '100s'\nrerun_on_failure = {retry}");
        crate::config::tests::keys(&text)
    }

    fn ran(started: UnixSeconds, exit_code: u8, broken_off: bool) -> FetcherRecord {
        let last_run =
            Some(EndedRun { started, ended: started + 1, exit_code, message: String::new() });
        FetcherRecord { last_run, run_started: broken_off.then_some(started), ..new("a".into()) }
    }

    /// Restarts neither repeat a run nor lose one.
    #[test]
    fn what_ran_before_a_restart_counts() {
        let seconds = |wait| Some(Duration::from_secs(wait));
        let due = |retry, record: FetcherRecord| first_due(&table(retry), &record, false, 1000);
        assert_eq!(due(false, new("a".into())), seconds(0));
        assert_eq!(due(false, ran(930, 0, false)), seconds(30));
        assert_eq!(due(false, ran(800, 0, false)), seconds(0));
        assert_eq!(due(false, ran(930, 0, true)), seconds(0));
        assert_eq!(due(false, ran(930, 1, false)), seconds(30));
        assert_eq!(due(true, ran(930, 1, false)), seconds(0));
        let failed = ran(930, 1, false);
        assert_eq!(first_due(&table(false), &failed, true, 1000), seconds(0));
        let mut watching = table(false);
        watching.on_change = Some(crate::config::tests::keys("paths = ['t']\ndebounce = '7s'"));
        assert_eq!(first_due(&watching, &new("a".into()), false, 1000), seconds(17));
        // The clock was set back.
        assert_eq!(due(false, ran(5000, 0, false)), seconds(100));
    }
}
