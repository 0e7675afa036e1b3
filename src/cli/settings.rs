//! Checked settings, made once of what was typed. A value that exists is valid; an error names
//! the option and the value. No file is looked at: whether a path works shows when it is used.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use tracing_subscriber::EnvFilter;

use super::{AskArgs, Durability, LogFormat, ServeArgs};
use crate::exit::{ExitCode, Failure};

/// Longest path of a Unix socket in bytes: what fits `sun_path` with its final NUL.
pub const SOCKET_PATH_MAX_BYTES: usize = 107;

/// Longest lease. Long enough for "never", and far from where adding seconds overflows.
pub const LEASE_MAX: Duration = Duration::from_secs(10 * 31_557_600);

/// Longest time that `ask` may wait.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Most connections that can be asked for; Linux gives a process no more descriptors by default.
const CONNECTIONS_MAX: usize = 1 << 20;

/// A value that cannot be used.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("{option} {value:?}: {why}")]
pub struct SettingError {
    /// The option or argument as the help text names it.
    pub option: &'static str,
    /// What was typed.
    pub value: OsString,
    /// What is wrong, and what would be right.
    pub why: String,
}

impl From<SettingError> for Failure {
    fn from(error: SettingError) -> Self {
        Self::new(ExitCode::Usage, format!("{error} (see shiftboss --help)"))
    }
}

/// The group of the socket, as given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Group {
    /// By number.
    Id(u32),
    /// By name.
    Name(String),
}

/// How the daemon shall run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeSettings {
    /// The queue's file.
    pub database: PathBuf,
    /// The fetchers' directory.
    pub input_dir: PathBuf,
    /// The workers' socket; short enough for one.
    pub socket: PathBuf,
    /// How long a job may be in flight, in whole seconds of 1 at least; `None` with `--classic`,
    /// where nothing is leased and the reference's rules hold (spec 5).
    pub lease: Option<Duration>,
    /// What an answer promises.
    pub durability: Durability,
    /// Permission bits of the socket, 0o777 at most.
    pub socket_mode: u32,
    /// The socket's group, if not the daemon's.
    pub socket_group: Option<Group>,
    /// How many connections may be open; at least one.
    pub max_connections: usize,
    /// How log lines look.
    pub log_format: LogFormat,
    /// Directives that `EnvFilter` takes.
    pub log_filter: String,
}

impl ServeSettings {
    /// Whether the reference's rules hold to the letter (spec 5, `--classic`).
    #[must_use]
    pub fn classic(&self) -> bool {
        self.lease.is_none()
    }
}

impl TryFrom<ServeArgs> for ServeSettings {
    type Error = SettingError;

    fn try_from(args: ServeArgs) -> Result<Self, SettingError> {
        Ok(Self {
            database: args.database,
            input_dir: args.input_dir,
            lease: if args.classic {
                None
            } else {
                Some(parse_lease(&args.lease)?)
            },
            durability: args.durability,
            socket_mode: parse_mode(&args.socket_mode)?,
            socket_group: args.socket_group.as_deref().map(parse_group).transpose()?,
            max_connections: parse_connections(&args.max_connections)?,
            log_format: args.log_format,
            log_filter: parse_filter(&args.log_level)?,
            socket: socket_path(args.socket)?,
        })
    }
}

/// What `ask` shall do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskSettings {
    /// The daemon's socket; short enough for one.
    pub socket: PathBuf,
    /// What to send, each to be ended by a newline.
    pub lines: Vec<OsString>,
    /// How long all of it may take; not zero.
    pub timeout: Duration,
}

impl TryFrom<AskArgs> for AskSettings {
    type Error = SettingError;

    fn try_from(args: AskArgs) -> Result<Self, SettingError> {
        let timeout = parse_time("--timeout", &args.timeout, TIMEOUT_MAX)?;
        Ok(Self {
            socket: socket_path(args.socket)?,
            lines: args.lines,
            timeout,
        })
    }
}

fn wrong(option: &'static str, value: &str, why: impl Into<String>) -> SettingError {
    SettingError {
        option,
        value: value.into(),
        why: why.into(),
    }
}

/// A time above zero, such as `12h` or `1h 30min`.
fn parse_time(option: &'static str, text: &str, max: Duration) -> Result<Duration, SettingError> {
    let time = humantime::parse_duration(text).map_err(|error| {
        wrong(
            option,
            text,
            format!("{error}; give a time such as 12h or 5s"),
        )
    })?;
    if time.is_zero() || time > max {
        let max = humantime::format_duration(max);
        return Err(wrong(
            option,
            text,
            format!("give a time above 0 and up to {max}"),
        ));
    }
    Ok(time)
}

/// A lease is counted on the wall clock, whose unit is the second (spec 2).
fn parse_lease(text: &str) -> Result<Duration, SettingError> {
    let lease = parse_time("--lease", text, LEASE_MAX)?;
    if lease.subsec_nanos() != 0 {
        return Err(wrong("--lease", text, "give whole seconds"));
    }
    Ok(lease)
}

fn parse_mode(text: &str) -> Result<u32, SettingError> {
    let octal = !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    match u32::from_str_radix(text, 8) {
        Ok(mode) if octal && mode <= 0o777 => Ok(mode),
        _ => Err(wrong(
            "--socket-mode",
            text,
            "give octal permissions from 0000 to 0777",
        )),
    }
}

fn parse_group(text: &str) -> Result<Group, SettingError> {
    if text.is_empty() || text.contains([':', '\n', '\0']) {
        return Err(wrong(
            "--socket-group",
            text,
            "give a group's name or number",
        ));
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(Group::Name(text.to_owned()));
    }
    match text.parse() {
        // The highest number means "leave it as it is" to chown(2).
        Ok(id) if id < u32::MAX => Ok(Group::Id(id)),
        _ => Err(wrong(
            "--socket-group",
            text,
            "group numbers end at 4294967294",
        )),
    }
}

fn parse_connections(text: &str) -> Result<usize, SettingError> {
    match text.parse() {
        Ok(count) if (1..=CONNECTIONS_MAX).contains(&count) => Ok(count),
        _ => {
            let why = format!("give a number from 1 to {CONNECTIONS_MAX}");
            Err(wrong("--max-connections", text, why))
        }
    }
}

/// An empty filter is an empty `SHIFTBOSS_LOG=` in a unit, which means the default.
fn parse_filter(text: &str) -> Result<String, SettingError> {
    if text.trim().is_empty() {
        return Ok("info".to_owned());
    }
    match EnvFilter::builder().parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => {
            let why = format!("{error}; give a level such as info, or MODULE=LEVEL,LEVEL");
            Err(wrong("--log-level (or SHIFTBOSS_LOG)", text, why))
        }
    }
}

fn socket_path(socket: PathBuf) -> Result<PathBuf, SettingError> {
    let len = socket.as_os_str().len();
    if len > SOCKET_PATH_MAX_BYTES {
        let why = format!(
            "the path of a Unix socket may have {SOCKET_PATH_MAX_BYTES} bytes, this one has {len}; \
             give a shorter one, or a relative one"
        );
        return Err(SettingError {
            option: "SOCKET",
            value: socket.into_os_string(),
            why,
        });
    }
    Ok(socket)
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
