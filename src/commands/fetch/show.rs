//! What a run of `fetch` shows while it goes on: on a terminal how far it is, and always what its
//! command complains of and which lines are faulty. All on standard error.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};
use shiftboss_protocol::fetcher_file::SkipReason;
use tracing::warn;

use crate::child::line_prefix;
use crate::escape::shown;
use crate::fetch::Observer;
use crate::logging::escaped_line;
use crate::terminal;

/// Between two looks of the clock that is shown.
const TICK: Duration = Duration::from_millis(200);
pub struct Show {
    /// Hidden where there is no terminal.
    bar: ProgressBar,
    /// Put before each line of the command's standard error.
    prefix: String,
}

impl Show {
    pub fn new(name: &str) -> Self {
        let bar = if terminal::shows_progress() { bar(name) } else { ProgressBar::hidden() };
        Self { bar, prefix: line_prefix(name) }
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
    /// Escaped as the daemon does it. Nobody may be reading.
    fn complaint(&mut self, line: &[u8]) {
        let line = [self.prefix.as_bytes(), &escaped_line(line)].concat();
        self.bar.suspend(|| {
            let _ = io::stderr().lock().write_all(&line);
        });
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
        self.bar.finish_and_clear();
    }
}
