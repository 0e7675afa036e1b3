//! Options that both `serve` and `relay` have, and the checked settings made from them: the input directory, the socket
//! and who may use it, the log.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::absolute;
use crate::config::values::parse_interval;
use crate::exit::Failure;
use crate::logging::{self, LogFormat};
use crate::socket::{SocketSettings, group_id};

/// What the command line, the environment and the file can say.
#[derive(Debug, Clone, Args)]
pub struct CommonOptions {
    /// The directory that fetchers write to; made if there is none
    #[arg(env = "SHIFTBOSS_INPUT_DIR")]
    pub input_dir: Option<PathBuf>,
    /// The Unix socket for workers; made
    #[arg(env = "SHIFTBOSS_SOCKET")]
    pub socket: Option<PathBuf>,
    /// Accept the directory at INPUT_DIR at this start, even if it is another one than before
    #[arg(long, env = "SHIFTBOSS_ACCEPT_INPUT")]
    pub accept_input: bool,
    /// Accept another directory at INPUT_DIR once it has held lists for so long without a change
    #[arg(long, value_name = "TIME", env = "SHIFTBOSS_ACCEPT_INPUT_AFTER", value_parser = parse_interval, default_value = "60s")]
    pub accept_input_after: Duration,
    /// Permission bits of the socket, in octal
    #[arg(long, env = "SHIFTBOSS_SOCKET_MODE", value_parser = parse_mode, default_value = "0600")]
    pub socket_mode: u32,
    /// Group of the socket, by name or number; with --socket-mode 0660 its members may work, but not give orders
    #[arg(long, env = "SHIFTBOSS_SOCKET_GROUP")]
    pub socket_group: Option<String>,
    /// Group whose members may do what operators do (add, cancel, pause, retry ...), by name or number
    ///
    /// The daemon's user and root always may. Members must also be let in: --socket-mode and --socket-group. At a relay, its
    /// daemon must allow it, too: --relay-operators.
    #[arg(long, value_name = "GROUP", env = "SHIFTBOSS_OPERATOR_GROUP")]
    pub operator_group: Option<String>,
    /// How many connections may be open; further ones are closed
    #[arg(long, value_name = "N", env = "SHIFTBOSS_MAX_CONNECTIONS", default_value = "16384")]
    pub max_connections: NonZeroU32,
    /// How log lines look; `auto` is `journal` under systemd, else `text`
    #[arg(long, value_enum, env = "SHIFTBOSS_LOG_FORMAT", default_value = "auto")]
    pub log_format: LogFormat,
    /// What is logged: a level (error, warn, info, debug, trace), or a list of target=level
    #[arg(long, value_name = "FILTER", env = "SHIFTBOSS_LOG", value_parser = logging::checked, default_value = "info")]
    pub log_level: String,
}

impl CommonOptions {
    /// The groups that do not exist.
    pub fn unknown_groups(&self) -> Vec<Failure> {
        let groups =
            [(&self.socket_group, "--socket-group"), (&self.operator_group, "--operator-group")];
        let unknown =
            |(name, setting): (&Option<String>, _)| group_id(name.as_deref()?, setting).err();
        groups.into_iter().filter_map(unknown).collect()
    }
}

/// The checked settings.
#[derive(Debug)]
pub struct CommonSettings {
    pub input: PathBuf,
    pub socket: SocketSettings,
    pub operator_group: Option<u32>,
    pub said: CommonOptions,
}

impl CommonSettings {
    /// `place`: what the command takes before the input directory.
    pub(super) fn new(said: CommonOptions, place: &str) -> Result<Self, Failure> {
        let path = |said: &Option<PathBuf>, what| {
            absolute(said.clone().ok_or_else(|| missing(what, place))?)
        };
        let operators = said.operator_group.as_deref();
        Ok(Self {
            input: path(&said.input_dir, "INPUT_DIR")?,
            socket: SocketSettings {
                path: path(&said.socket, "SOCKET")?,
                mode: said.socket_mode,
                group: said.socket_group.clone(),
            },
            operator_group: operators
                .map(|group| group_id(group, "--operator-group"))
                .transpose()?,
            said,
        })
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
