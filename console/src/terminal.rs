//! What a stream can show: colours, and lines that are written over. The one place that decides, for logs, tables and
//! progress alike.

use std::io::{self, IsTerminal};

use anstream::{AutoStream, ColorChoice, stream::RawStream};
use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget};
use rustix::fs::fstat;

use crate::standard_error;

/// Most times a second that a progress line is drawn.
const DRAWN_HZ: u8 = 20;

/// Whether to show colours: `NO_COLOR`, `CLICOLOR_FORCE`, `CLICOLOR` and `TERM` decide, else whether it is a terminal.
pub fn has_colours(stream: &impl RawStream) -> bool {
    AutoStream::choice(stream) != ColorChoice::Never
}

/// Whether a line can be written over: on a terminal that can do more than print (`TERM=dumb`).
pub fn can_redraw(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// The same for standard error, where progress is shown.
pub fn shows_progress() -> bool {
    can_redraw(&io::stderr())
}

/// A progress line on standard error, drawn without waiting for the terminal; hidden where none is shown.
pub fn progress_line() -> ProgressBar {
    if !shows_progress() {
        return ProgressBar::hidden();
    }
    let term = Term::read_write_pair(io::stdin(), standard_error::Drawn);
    ProgressBar::with_draw_target(None, ProgressDrawTarget::term(term, DRAWN_HZ))
}

/// Columns and rows of the terminal at standard output, if it is one and reports them.
pub fn size() -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// Whether standard output and standard error are one terminal.
pub fn is_shared() -> bool {
    let device = |stat: rustix::fs::Stat| stat.st_rdev;
    let one = fstat(io::stdout()).map(device) == fstat(io::stderr()).map(device);
    one && io::stdout().is_terminal() && io::stderr().is_terminal()
}
