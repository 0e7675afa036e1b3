//! What a run of `fetch` shows while it goes on: on a terminal how far it is, and always what its
//! command complains of and which lines are faulty. All on standard error.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};
use shiftboss_protocol::fetcher_file::SkipReason;
use tracing::warn;

use crate::child::LinePrefixer;
use crate::escape::shown;
use crate::fetch::Observer;
use crate::logging::escaped_line;
use crate::terminal;

/// Between two looks of the clock that is shown.
const TICK: Duration = Duration::from_millis(200);
pub struct Show {
    /// Hidden where there is no terminal.
    bar: ProgressBar,
    complaints: LinePrefixer,
}

impl Show {
    /// Begins to show the run of the list `name`.
    pub fn new(name: &str) -> Self {
        let bar = if terminal::shows_progress() { bar(name) } else { ProgressBar::hidden() };
        Self { bar, complaints: LinePrefixer::for_stderr(name) }
    }

    /// Writes whole lines, escaped as the daemon does it. Nobody may be reading.
    fn write(&self, lines: &[u8]) {
        if !lines.is_empty() {
            let lines: Vec<_> =
                lines.split_inclusive(|byte| *byte == b'\n').map(escaped_line).collect();
            self.bar.suspend(|| {
                let _ = io::stderr().lock().write_all(&lines.concat());
            });
        }
    }
}

fn bar(name: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_prefix(shown(name));
    let shape = "{prefix}: {lines}, {per_sec}, {elapsed}";
    if let Ok(style) = ProgressStyle::with_template(shape) {
        bar.set_style(style.with_key(
            "lines",
            |state: &ProgressState, out: &mut dyn fmt::Write| {
                let lines = if state.pos() == 1 { "line" } else { "lines" };
                // What cannot be shown is not.
                let _ = write!(out, "{} {lines}", HumanCount(state.pos()));
            },
        ));
    }
    bar.enable_steady_tick(TICK);
    bar
}

impl Observer for Show {
    fn complaint(&mut self, piece: &[u8]) {
        let lines = self.complaints.feed(piece);
        self.write(&lines);
    }

    fn faulty(&mut self, line: u64, reason: SkipReason) {
        self.bar.suspend(|| warn!(line, %reason, "A faulty line: the daemon skips it."));
    }

    fn lines(&mut self, accepted: u64) {
        self.bar.set_position(accepted);
    }
}

impl Drop for Show {
    fn drop(&mut self) {
        let lines = self.complaints.finish();
        self.write(&lines);
        self.bar.finish_and_clear();
    }
}
