//! The runs of one managed fetcher: what its command writes on standard error goes to the daemon's log; and the wait
//! for the input directory before each.
//!
//! [`super::supervisor`] gives them to a schedule.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use shiftboss_actors::file_watcher::WhyLost;
use shiftboss_protocol::fetcher_file::SkipReason;
use tracing::{info, warn};

use crate::child::Guardian;
use crate::config::FetcherTable;
use crate::fetch::{self, Fetcher, Observer};
use crate::schedule::scheduler::StartRun;

/// How often a run that waits looks for the input directory.
const LOST_PAUSE: Duration = Duration::from_secs(1);

/// The runs of a fetcher whose lists go to `input`.
pub(super) fn of_table(
    table: &FetcherTable,
    input: &Path,
    database: &Path,
    guardian: &Guardian,
) -> StartRun {
    let name = table.name.shared();
    let observer = move || Box::new(ToLog(name.clone())) as _;
    let changed_file = table.on_change.is_some().then(|| table.name.changed_file(database));
    let fetcher = Fetcher::new(input.to_owned(), table.clone(), guardian.clone(), changed_file);
    fetch::runs(fetcher, observer, true)
}

/// Waits while the input directory is lost: a list that is put into another one would be taken for what the
/// input holds, and nobody else's list is there.
pub(super) async fn input_is_there(why_lost: &Recipient<WhyLost>, name: &str) {
    let mut is_warned = false;
    // Without an answer the daemon stops in a moment.
    while let Ok(Some(reason)) = why_lost.send(WhyLost).await {
        if !is_warned {
            warn!(name, reason, "The run waits for the input directory, which is lost.");
            is_warned = true;
        }
        tokio::time::sleep(LOST_PAUSE).await;
    }
}

/// Shows a run in the daemon's log, with the fetcher's name.
struct ToLog(Arc<str>);

impl Observer for ToLog {
    fn complaint(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        if !line.is_empty() {
            info!(name = &*self.0, "stderr: {}", String::from_utf8_lossy(line));
        }
    }

    fn faulty(&mut self, line: u64, reason: SkipReason) {
        warn!(name = &*self.0, line, %reason, "A faulty line: it is skipped.");
    }

    fn lines(&mut self, _: u64) {}
}
