//! What a fetcher's command writes on standard error goes to the daemon's log, a line each, with the
//! fetcher's name, behind `stderr: `.
//!
//! The observer of a run of [`crate::fetch`].

use std::sync::Arc;

use shiftboss_protocol::fetcher_file::SkipReason;
use tracing::{info, warn};

use crate::fetch::Observer;

/// With the fetcher's name.
pub(super) struct ToLog(pub Arc<str>);

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
