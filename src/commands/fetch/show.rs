//! What a run of `fetch` shows while it goes on: on a terminal how far it is, and always what its
//! command complains of and which lines are faulty. All on standard error.

use std::fmt;
use std::io::{self, IsTerminal, Write};
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
/// A longer line of the command's is shown in pieces.
const LINE_BYTES_MAX: usize = 8 * 1024;

pub struct Show {
    /// Hidden where there is no terminal.
    bar: ProgressBar,
    complaints: LinePrefixer,
}

impl Show {
    /// Begins to show the run of the list `name`.
    pub fn new(name: &str) -> Self {
        let is_terminal = io::stderr().is_terminal();
        // In a log the lines of several commands come together.
        let prefix = if is_terminal { String::new() } else { format!("{}: ", shown(name)) };
        let bar = if terminal::shows_progress() { bar(name) } else { ProgressBar::hidden() };
        Self { bar, complaints: LinePrefixer::new(prefix, LINE_BYTES_MAX) }
    }

    /// Writes what the command said, in whole lines, escaped as the daemon does it. Nobody may be reading.
    fn write(&mut self, prefixed: impl FnOnce(&mut LinePrefixer, &mut Vec<u8>) -> io::Result<()>) {
        let mut lines = Vec::new();
        let _ = prefixed(&mut self.complaints, &mut lines);
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
        self.write(|complaints, lines| complaints.feed(piece, lines));
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
        self.write(LinePrefixer::finish);
        self.bar.finish_and_clear();
    }
}
