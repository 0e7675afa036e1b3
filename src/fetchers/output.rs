//! What a fetcher's command writes on standard error goes to the daemon's log, a line each, with the
//! fetcher's name, behind `stderr: `.
//!
//! The observer of a run of [`crate::fetch`].

use std::sync::Arc;

use shiftboss_protocol::fetcher_file::SkipReason;
use tracing::{info, warn};

use crate::child::LinePrefixer;
use crate::fetch::Observer;

pub(super) struct ToLog {
    name: Arc<str>,
    lines: LinePrefixer,
}

impl ToLog {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self { name, lines: LinePrefixer::new("") }
    }

    fn log(&self, lines: &[u8]) {
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            info!(name = &*self.name, "stderr: {}", String::from_utf8_lossy(line));
        }
    }
}

impl Observer for ToLog {
    fn complaint(&mut self, piece: &[u8]) {
        let whole = self.lines.feed(piece);
        self.log(&whole);
    }

    fn faulty(&mut self, line: u64, reason: SkipReason) {
        warn!(name = &*self.name, line, %reason, "A faulty line: it is skipped.");
    }

    fn lines(&mut self, _: u64) {}
}

impl Drop for ToLog {
    fn drop(&mut self) {
        let rest = self.lines.finish();
        self.log(&rest);
    }
}
