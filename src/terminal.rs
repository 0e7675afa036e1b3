//! What a stream can show: colours, and lines that are written over. The one place that decides, for logs, tables and
//! progress alike.

use std::io::{self, IsTerminal};

use anstream::{AutoStream, ColorChoice, stream::RawStream};

/// Whether colours are shown: as `NO_COLOR`, `CLICOLOR_FORCE`, `CLICOLOR` and `TERM` say, else on a terminal.
pub fn has_colours(stream: &impl RawStream) -> bool {
    AutoStream::choice(stream) != ColorChoice::Never
}

/// Whether a line can be written over: on a terminal that can do more than print (`TERM=dumb`).
pub fn can_redraw(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// The same of standard error, where progress is shown.
pub fn shows_progress() -> bool {
    can_redraw(&io::stderr())
}
