//! What `serve` and `relay` can both be told, and the checked settings made of it: the input directory, the socket and who may use
//! it, the log.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::absolute;
use crate::config::values::parse_interval;
use crate::exit::Failure;
use crate::logging::{self, LogFormat};
use crate::socket::{SocketSettings, group_id};

/// Where nothing is said.
const ACCEPT_INPUT_AFTER: Duration = Duration::from_secs(60);
const MODE: u32 = 0o600;
const CONNECTIONS: u32 = 16_384;

/// What the command line, the environment and the file can say; `None`: nothing was said.
#[derive(Debug, Clone, Default, Args)]
pub struct CommonOptions {
    /// The directory that fetchers write to; made if there is none
    #[arg(env = "SHIFTBOSS_INPUT_DIR")]
    pub input_dir: Option<PathBuf>,
    /// The Unix socket for workers; made
    #[arg(env = "SHIFTBOSS_SOCKET")]
    pub socket: Option<PathBuf>,
    /// Accept the directory at INPUT_DIR at this start, even if it is another one than before
    #[arg(
        long,
        env = "SHIFTBOSS_ACCEPT_INPUT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    pub accept_input: Option<bool>,
    /// Accept another directory at INPUT_DIR once it has held lists for so long without a change [default: 60s]
    #[arg(long, value_name = "TIME", env = "SHIFTBOSS_ACCEPT_INPUT_AFTER", value_parser = parse_interval)]
    pub accept_input_after: Option<Duration>,
    /// Permission bits of the socket, in octal [default: 0600]
    #[arg(long, env = "SHIFTBOSS_SOCKET_MODE", value_parser = parse_mode)]
    pub socket_mode: Option<u32>,
    /// Group of the socket, by name or number; with --socket-mode 0660 its members may work, but not give orders
    #[arg(long, env = "SHIFTBOSS_SOCKET_GROUP")]
    pub socket_group: Option<String>,
    /// Group whose members may do what operators do (add, cancel, pause, retry ...), by name or number
    ///
    /// The daemon's user and root always may. Members must also be let in: --socket-mode and --socket-group. At a relay, its
    /// daemon must allow it, too: --relay-operators.
    #[arg(long, value_name = "GROUP", env = "SHIFTBOSS_OPERATOR_GROUP")]
    pub operator_group: Option<String>,
    /// How many connections may be open; further ones are closed [default: 16384]
    #[arg(long, value_name = "N", env = "SHIFTBOSS_MAX_CONNECTIONS")]
    pub max_connections: Option<NonZeroU32>,
    /// How log lines look; `auto` is `journal` under systemd, else `text` [default: auto]
    #[arg(long, value_enum, env = "SHIFTBOSS_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
    /// What is logged: a level (error, warn, info, debug, trace), or a list of target=level [default: info]
    #[arg(long, value_name = "FILTER", env = "SHIFTBOSS_LOG", value_parser = parse_log_level)]
    pub log_level: Option<String>,
}

impl CommonOptions {
    /// The groups that nobody knows.
    pub fn unknown_groups(&self) -> Vec<Failure> {
        let groups =
            [(&self.socket_group, "--socket-group"), (&self.operator_group, "--operator-group")];
        let unknown =
            |(name, setting): (&Option<String>, _)| group_id(name.as_deref()?, setting).err();
        groups.into_iter().filter_map(unknown).collect()
    }
}

/// What was said, checked.
#[derive(Debug)]
pub struct CommonSettings {
    pub input: PathBuf,
    pub socket: SocketSettings,
    /// Whichever directory is there at the start is the input directory.
    pub accept_input: bool,
    /// Another one is, once it has held lists for so long without a change.
    pub accept_input_after: Duration,
    pub operator_group: Option<u32>,
    pub connections_max: usize,
    pub log_format: LogFormat,
    pub log_level: String,
}

impl CommonSettings {
    /// `place`: what the command takes before the input directory.
    pub(super) fn new(said: CommonOptions, place: &str) -> Result<Self, Failure> {
        let operators = said.operator_group.as_deref();
        Ok(Self {
            input: absolute(said.input_dir.ok_or_else(|| missing("INPUT_DIR", place))?)?,
            socket: SocketSettings {
                path: absolute(said.socket.ok_or_else(|| missing("SOCKET", place))?)?,
                mode: said.socket_mode.unwrap_or(MODE),
                group: said.socket_group,
            },
            accept_input: said.accept_input.unwrap_or(false),
            accept_input_after: said.accept_input_after.unwrap_or(ACCEPT_INPUT_AFTER),
            operator_group: operators
                .map(|group| group_id(group, "--operator-group"))
                .transpose()?,
            connections_max: said.max_connections.map_or(CONNECTIONS, NonZeroU32::get) as usize,
            log_format: said.log_format.unwrap_or(LogFormat::Auto),
            log_level: said.log_level.unwrap_or_else(|| "info".to_owned()),
        })
    }

    /// Which settings differ from those of `other`.
    pub(super) fn differences(&self, other: &Self) -> [(&'static str, bool); 10] {
        let (a, b) = (self, other);
        [
            ("input_dir", a.input != b.input),
            ("socket", a.socket.path != b.socket.path),
            ("accept_input", a.accept_input != b.accept_input),
            ("accept_input_after", a.accept_input_after != b.accept_input_after),
            ("socket_mode", a.socket.mode != b.socket.mode),
            ("socket_group", a.socket.group != b.socket.group),
            ("operator_group", a.operator_group != b.operator_group),
            ("max_connections", a.connections_max != b.connections_max),
            ("log_format", a.log_format != b.log_format),
            ("log_level", a.log_level != b.log_level),
        ]
    }
}

pub(super) fn missing(what: &str, place: &str) -> Failure {
    let key = what.to_lowercase();
    Failure::usage(format!(
        "{what} is missing: give {place}, INPUT_DIR and SOCKET, or name a file that has the key {key} (--config)"
    ))
}

/// Permission bits.
fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("permission bits are octal, from 0 to 777; for example 0660".to_owned()),
    }
}

fn parse_log_level(text: &str) -> Result<String, String> {
    logging::check(text).map(|()| text.to_owned())
}
