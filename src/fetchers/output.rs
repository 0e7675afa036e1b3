//! What a fetcher's command writes on standard error goes to the daemon's log, a line each, with the
//! fetcher's name, behind `stderr: `.
//!
//! The observer of a run that [`super::fetch_runs`] hands to [`crate::fetch`].

use std::sync::Arc;

use shiftboss_protocol::fetcher_file::SkipReason;
use tracing::{info, warn};

use crate::child::LinePrefixer;
use crate::fetch::Observer;

/// A longer line of the command's is logged in pieces.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// Logs what one run says.
pub(super) struct ToLog {
    name: Arc<str>,
    lines: LinePrefixer,
}

impl ToLog {
    /// The log of a fetcher's run.
    pub(super) fn new(name: Arc<str>) -> Self {
        Self { name, lines: LinePrefixer::new("", LINE_BYTES_MAX) }
    }

    fn log(&self, lines: &[u8]) {
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            info!(name = &*self.name, "stderr: {}", String::from_utf8_lossy(line));
        }
    }
}

impl Observer for ToLog {
    fn complaint(&mut self, piece: &[u8]) {
        let mut whole = Vec::new();
        // Writing to memory does not fail.
        let _ = self.lines.feed(piece, &mut whole);
        self.log(&whole);
    }

    fn faulty(&mut self, line: u64, reason: SkipReason) {
        warn!(name = &*self.name, line, %reason, "A faulty line: it is skipped.");
    }

    fn lines(&mut self, _: u64) {}
}

impl Drop for ToLog {
    fn drop(&mut self) {
        let mut rest = Vec::new();
        let _ = self.lines.finish(&mut rest);
        self.log(&rest);
    }
}
