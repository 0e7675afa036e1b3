//! What can be said to `relay`, and the checked settings made of it, once.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::serve::{host_name, parse_daemon_name, parse_mode};
use super::{absolute, broker, url};
use crate::broker::{MessageSize, RelayLink};
use crate::config::values::parse_interval;
use crate::exit::Failure;
use crate::logging::LogFormat;
use crate::socket::{SocketSettings, group_id};
use crate::url::Url;

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  shiftboss relay amqp://shiftboss@broker.example/ input worker.sock
  SHIFTBOSS_BROKER=amqps://shiftboss:secret@broker.example/ shiftboss relay --name site-2 \\
      --input-dir /var/lib/shiftboss/input --socket /run/shiftboss/worker.sock")]
pub struct RelayArguments {
    /// The URL of the broker; in SHIFTBOSS_BROKER nobody sees its password
    #[arg(env = "SHIFTBOSS_BROKER", hide_env_values = true, value_parser = url())]
    broker: Url,
    /// The directory that fetchers write to; made if there is none
    #[arg(env = "SHIFTBOSS_INPUT_DIR")]
    input_dir: PathBuf,
    /// The Unix socket for workers; made
    #[arg(env = "SHIFTBOSS_SOCKET")]
    socket: PathBuf,
    /// This relay's name among those of the queue [default: the machine's host name]
    #[arg(long, value_name = "NAME", env = "SHIFTBOSS_RELAY_NAME", value_parser = parse_daemon_name)]
    name: Option<String>,
    /// What the names of the daemon's queues on the broker begin with [default: shiftboss.]
    #[arg(long, value_name = "TEXT", env = "SHIFTBOSS_BROKER_PREFIX")]
    broker_prefix: Option<String>,
    /// Rows of a list that one message has at the most
    #[arg(
        long,
        value_name = "N",
        env = "SHIFTBOSS_MESSAGE_ROWS",
        default_value = "100",
        value_parser = clap::value_parser!(u16).range(1..=1000)
    )]
    message_rows: u16,
    /// Bytes of keys and payloads that one message has at the most, unless one row has more
    #[arg(
        long,
        value_name = "N",
        env = "SHIFTBOSS_MESSAGE_BYTES",
        default_value = "262144",
        value_parser = clap::value_parser!(u32).range(1024..=1_048_576)
    )]
    message_bytes: u32,
    /// Accept the directory at INPUT_DIR at this start, even if it is another one than before
    #[arg(long, env = "SHIFTBOSS_ACCEPT_INPUT")]
    accept_input: bool,
    /// Accept another directory at INPUT_DIR once it has held lists for so long without a change
    #[arg(
        long,
        value_name = "TIME",
        env = "SHIFTBOSS_ACCEPT_INPUT_AFTER",
        value_parser = parse_interval,
        default_value = "60s"
    )]
    accept_input_after: Duration,
    /// Permission bits of the socket, in octal
    #[arg(long, env = "SHIFTBOSS_SOCKET_MODE", value_parser = parse_mode, default_value = "0600")]
    socket_mode: u32,
    /// Group of the socket, by name or number
    #[arg(long, env = "SHIFTBOSS_SOCKET_GROUP")]
    socket_group: Option<String>,
    /// Group whose members may do what operators do, by name or number; a daemon must allow it, too: --relay-operators
    #[arg(long, value_name = "GROUP", env = "SHIFTBOSS_OPERATOR_GROUP")]
    operator_group: Option<String>,
    /// How many connections may be open; further ones are closed
    #[arg(long, value_name = "N", env = "SHIFTBOSS_MAX_CONNECTIONS", default_value = "16384")]
    max_connections: NonZeroU32,
    /// How log lines look; `auto` is `journal` under systemd, else `text`
    #[arg(long, value_enum, env = "SHIFTBOSS_LOG_FORMAT", default_value = "auto")]
    log_format: LogFormat,
    /// What is logged: a level (error, warn, info, debug, trace), or a list of target=level
    #[arg(long, value_name = "FILTER", env = "SHIFTBOSS_LOG", default_value = "info")]
    log_level: String,
}

/// What was said, checked.
#[derive(Debug)]
pub struct RelaySettings {
    pub link: RelayLink,
    pub input: PathBuf,
    pub accept_input: bool,
    pub accept_input_after: Duration,
    pub socket: SocketSettings,
    pub operator_group: Option<u32>,
    pub connections_max: usize,
    pub log_format: LogFormat,
    pub log_level: String,
}

impl TryFrom<RelayArguments> for RelaySettings {
    type Error = Failure;

    fn try_from(typed: RelayArguments) -> Result<Self, Failure> {
        let operators = typed.operator_group.as_deref();
        let broker = broker(Some(typed.broker), typed.broker_prefix)?;
        Ok(Self {
            link: RelayLink {
                broker: broker.ok_or_else(|| Failure::usage("BROKER is missing"))?,
                name: typed.name.unwrap_or_else(host_name),
                message: MessageSize {
                    rows: typed.message_rows.into(),
                    bytes: typed.message_bytes as usize,
                },
            },
            input: absolute(typed.input_dir)?,
            accept_input: typed.accept_input,
            accept_input_after: typed.accept_input_after,
            socket: SocketSettings {
                path: absolute(typed.socket)?,
                mode: typed.socket_mode,
                group: typed.socket_group,
            },
            operator_group: operators
                .map(|group| group_id(group, "--operator-group"))
                .transpose()?,
            connections_max: typed.max_connections.get() as usize,
            log_format: typed.log_format,
            log_level: typed.log_level,
        })
    }
}
