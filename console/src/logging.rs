//! The log: lines on standard error, for a terminal, for journald, or as JSON. Set up once by the
//! commands that run for long. [`standard_error`] writes it, so that no event waits for a reader.

use std::io::{self, Write};
use std::sync::OnceLock;

use clap::ValueEnum;
use indicatif::ProgressBar;
use rustix::fs::fstat;
use shiftboss_runner::escape::{misleads, shown_bytes};
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::exit::{ExitCode, Failure};
use crate::{standard_error, terminal};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// `journal` when standard error is connected to the journal, else `text`
    Auto,
    Text,
    /// The message behind a syslog priority, as journald reads it
    Journal,
    /// One JSON object a line
    Json,
}

/// What else is shown on the terminal, and is moved out of the way for each event.
static PROGRESS: OnceLock<ProgressBar> = OnceLock::new();

/// Writes events above `progress` from now on. Nothing may be logged while that is suspended.
pub fn share_terminal(progress: ProgressBar) {
    // There is one for a process, and the first one stays.
    let _ = PROGRESS.set(progress);
}

pub fn start(format: LogFormat, filter: &str) -> Result<(), Failure> {
    let wrong = |what: String| Failure::new(ExitCode::Usage, what);
    let filter =
        parse(filter).map_err(|what| wrong(format!("--log-level (or SHIFTBOSS_LOG) {what}")))?;
    let colours = terminal::has_colours(&io::stderr());
    let is_journal =
        format == LogFormat::Journal || (format == LogFormat::Auto && is_connected_to_journal());
    let is_json = format == LogFormat::Json;
    let writer = StandardError { colours, is_journal, is_json, priority: 0 };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    let started = match format {
        LogFormat::Json => builder.json().try_init(),
        // The journal adds the time itself.
        _ if is_journal => {
            let plain = builder.without_time().with_level(false).with_target(false);
            plain.with_ansi(false).try_init()
        }
        _ => builder.with_target(false).with_ansi(colours).try_init(),
    };
    started.map_err(|error| wrong(error.to_string()))?;
    standard_error::start().map_err(|error| {
        Failure::new(ExitCode::Unavailable, format!("cannot start a thread for the log: {error}"))
    })
}

/// A filter; an empty one is the default. A lone word must be a level: taken for a target, as the
/// library does, a mistyped one would silence everything.
fn parse(filter: &str) -> Result<EnvFilter, String> {
    let what = "is not a level (error, warn, info, debug, trace) or a list of target=level";
    let filter = if filter.trim().is_empty() { "info" } else { filter };
    for directive in filter.split(',').filter(|directive| !directive.contains('=')) {
        let level = directive.trim().parse::<LevelFilter>();
        level.map_err(|_| format!("{filter:?} {what}: {directive:?} is no level"))?;
    }
    // The broker client's callers report what failed, once.
    EnvFilter::try_new(format!("lapin=off,{filter}"))
        .map_err(|error| format!("{filter:?} {what}: {error}"))
}

/// A filter, if it is a valid one.
pub fn checked(filter: &str) -> Result<String, String> {
    parse(filter).map(|_| filter.to_owned())
}

/// Whether standard error is the journal's: JOURNAL_STREAM names its device and inode.
fn is_connected_to_journal() -> bool {
    let (Ok(named), Ok(stat)) = (std::env::var("JOURNAL_STREAM"), fstat(io::stderr())) else {
        return false;
    };
    named == format!("{}:{}", stat.st_dev, stat.st_ino)
}

#[derive(Clone, Copy)]
struct StandardError {
    /// If set, escape sequences for colours are our own.
    colours: bool,
    /// `<priority>` stands before each event.
    is_journal: bool,
    /// Each event is one object already.
    is_json: bool,
    priority: u8,
}

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut line = if self.is_json { json_line(bytes) } else { one_line(bytes, self.colours) };
        if self.is_journal {
            line.splice(..0, format!("<{}>", self.priority).into_bytes());
        }
        let write = || standard_error::write(&line);
        PROGRESS.get().map_or_else(write, |progress| progress.suspend(write));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A line from outside, made fit for a log or a terminal: misleading characters are escaped, except tabs and the line's
/// end.
pub fn escaped_line(line: &[u8]) -> Vec<u8> {
    one_line(line, false)
}

/// An event as one line: line ends and other control characters that came in with a name or a
/// message must not look like another line, nor steer a terminal. Each event is one write.
fn one_line(event: &[u8], colours: bool) -> Vec<u8> {
    let (line, end) = match event.strip_suffix(b"\n") {
        Some(line) => (line, "\n"),
        None => (event, ""),
    };
    let mut out = Vec::with_capacity(event.len());
    for part in line.chunk_by(|_, next| !matches!(next, b'\t' | b'\x1b')) {
        let (harmless, text) = part.split_at(harmless_length(part, colours));
        out.extend_from_slice(harmless);
        out.extend_from_slice(shown_bytes(text).as_bytes());
    }
    out.extend_from_slice(end.as_bytes());
    out
}

/// The same for an event that is JSON, and stays so: what would mislead is within strings, where it is escaped in
/// JSON's own way.
fn json_line(event: &[u8]) -> Vec<u8> {
    let (event, mut out) = (String::from_utf8_lossy(event), String::with_capacity(event.len()));
    for character in event.chars() {
        if misleads(character) && character != '\n' {
            let mut units = [0; 2];
            let units = character.encode_utf16(&mut units).iter();
            out.extend(units.map(|unit| format!("\\u{unit:04x}")));
        } else {
            out.push(character);
        }
    }
    out.into_bytes()
}

/// The length of a leading tab or, with colours, of an escape sequence that only changes colours.
fn harmless_length(part: &[u8], colours: bool) -> usize {
    match part {
        [b'\t', ..] => 1,
        [b'\x1b', b'[', more @ ..] if colours => {
            match more.iter().position(|byte| !byte.is_ascii_digit() && *byte != b';') {
                Some(end) if more[end] == b'm' => end + 3,
                _ => 0,
            }
        }
        _ => 0,
    }
}

impl<'a> MakeWriter<'a> for StandardError {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        *self
    }

    fn make_writer_for(&'a self, event: &Metadata<'_>) -> Self {
        Self { priority: priority(*event.level()), ..*self }
    }
}

/// As syslog has them.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mistyped level is an error, not taken for a part of the program that logs nothing.
    #[test]
    fn a_filter_is_levels_and_targets() {
        for good in ["", "info", "WARN", "off", "warn,shiftboss_actors=debug"] {
            assert!(parse(good).is_ok(), "{good}");
        }
        for bad in ["loud", "info,loud", "a=loud"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    /// An event stays one line, whatever came in with it; its own end and text are kept.
    #[test]
    fn an_event_is_one_line() {
        let event = "WARN é\tname=a\nERROR forged\r\u{1b}[2J\u{9b}m\u{7f}\n".as_bytes();
        let shown = "WARN é\tname=a\\nERROR forged\\r\\u{1b}[2J\\u{9b}m\\u{7f}\n";
        assert_eq!(one_line(event, false), shown.as_bytes());
        assert_eq!(one_line(event, true), shown.as_bytes());
        assert_eq!(one_line(b"a\xe2\x80\xaeb\xffc\n", false), &b"a\\u{202e}b\\xffc\n"[..]);
        assert_eq!(one_line(b"plain\n", false), &b"plain\n"[..]);
        assert_eq!(one_line(b"\n", false), &b"\n"[..]);
    }

    /// A JSON event stays JSON, whatever came in with it, and does not mislead.
    #[test]
    fn json_stays_json() {
        let text = "é\n\t\u{1b}[2J\u{7f}\u{9b}m\u{202e}\u{2028}\u{e0041}\\u{1}";
        let line = json_line((serde_json::json!({ "name": text }).to_string() + "\n").as_bytes());
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&line).unwrap()["name"], text);
        let line = String::from_utf8(line).unwrap();
        assert!(!line.trim_end_matches('\n').contains(misleads), "{line:?}");
        assert!(line.ends_with("}\n") && line.contains("\\u202e\\u2028\\udb40\\udc41"), "{line:?}");
    }

    /// On a terminal our own colours pass, but nothing else that begins like them.
    #[test]
    fn colours_pass_on_a_terminal() {
        let coloured = b"\x1b[2mnow\x1b[0m \x1b[1;31mWARN\x1b[m\n";
        assert_eq!(one_line(coloured, true), &coloured[..]);
        assert_eq!(one_line(b"\x1b[2m\n", false), &b"\\u{1b}[2m\n"[..]);
        for other in [&b"\x1b[2J\n"[..], b"\x1b[2", b"\x1b", b"\x1b]0;title\x07", b"\x1b[?25l"] {
            assert!(!one_line(other, true).contains(&0x1b), "{other:?}");
        }
    }
}
