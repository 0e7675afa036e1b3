//! What can be said to `relay`, by flags, by the environment or in a configuration file, and the checked settings made of it,
//! once. As `serve`'s.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::RangedI64ValueParser;
use serde::{Deserialize, Deserializer};
use shiftboss_protocol::url::Url;
use shiftboss_relay::{MessageSize, Settings};

use super::serve::{
    ACCEPT_INPUT_AFTER, CONNECTIONS, MODE, daemon_name_of_file, host_name, mode_of_file,
    parse_daemon_name, parse_mode, url_of_file,
};
use super::{absolute, broker, url};
use crate::config::{self, Checked, values};
use crate::exit::Failure;
use crate::logging::LogFormat;
use crate::socket::{SocketSettings, group_id};
use crate::stores::Polls;

/// Where nothing is said.
const POLL: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  shiftboss relay amqp://shiftboss@broker.example/ input worker.sock
  shiftboss relay --config /etc/shiftboss-relay.toml
  SHIFTBOSS_BROKER=amqps://shiftboss:secret@broker.example/ SHIFTBOSS_INPUT_DIR=/var/lib/shiftboss/input \\
      SHIFTBOSS_SOCKET=/run/shiftboss/worker.sock shiftboss relay --name site-2")]
pub struct RelayArguments {
    /// The configuration file; paths in it are relative to its directory
    #[arg(long, value_name = "FILE", env = "SHIFTBOSS_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    options: RelayOptions,
}

/// What the command line, the environment and the file can say; `None`: nothing was said.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayOptions {
    /// The URL of the broker; in SHIFTBOSS_BROKER or the file nobody sees its password
    #[arg(env = "SHIFTBOSS_BROKER", hide_env_values = true, value_parser = url())]
    #[serde(default, deserialize_with = "url_of_file")]
    broker: Option<Url>,
    /// The directory that fetchers write to; made if there is none
    #[arg(env = "SHIFTBOSS_INPUT_DIR")]
    #[serde(default, deserialize_with = "values::path")]
    input_dir: Option<PathBuf>,
    /// The Unix socket for workers; made
    #[arg(env = "SHIFTBOSS_SOCKET")]
    #[serde(default, deserialize_with = "values::path")]
    socket: Option<PathBuf>,
    /// This relay's name among those of the queue [default: the machine's host name]
    #[arg(long, value_name = "NAME", env = "SHIFTBOSS_RELAY_NAME", value_parser = parse_daemon_name)]
    #[serde(default, deserialize_with = "daemon_name_of_file")]
    name: Option<String>,
    /// What the names of the daemon's queues on the broker begin with [default: shiftboss.]
    #[arg(long, value_name = "TEXT", env = "SHIFTBOSS_BROKER_PREFIX")]
    broker_prefix: Option<String>,
    /// Rows of a list that one message has at the most [default: 100]
    #[arg(
        long,
        value_name = "N",
        env = "SHIFTBOSS_MESSAGE_ROWS",
        value_parser = within(MessageSize::ROWS)
    )]
    #[serde(default, deserialize_with = "message_rows_of_file")]
    message_rows: Option<u32>,
    /// Bytes of keys and payloads that one message has at the most, unless one row has more [default: 262144]
    #[arg(
        long,
        value_name = "N",
        env = "SHIFTBOSS_MESSAGE_BYTES",
        value_parser = within(MessageSize::BYTES)
    )]
    #[serde(default, deserialize_with = "message_bytes_of_file")]
    message_bytes: Option<u32>,
    /// How often daemons are asked for work while workers wait and no hints arrive [default: 2s]
    #[arg(long, value_name = "TIME", env = "SHIFTBOSS_POLL", value_parser = values::parse_interval)]
    #[serde(default, deserialize_with = "values::interval")]
    poll: Option<Duration>,
    /// The same while hints arrive [default: 30s]
    #[arg(long, value_name = "TIME", env = "SHIFTBOSS_POLL_NOTIFIED", value_parser = values::parse_interval)]
    #[serde(default, deserialize_with = "values::interval")]
    poll_notified: Option<Duration>,
    /// Accept the directory at INPUT_DIR at this start, even if it is another one than before
    #[arg(
        long,
        env = "SHIFTBOSS_ACCEPT_INPUT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    accept_input: Option<bool>,
    /// Accept another directory at INPUT_DIR once it has held lists for so long without a change [default: 60s]
    #[arg(
        long,
        value_name = "TIME",
        env = "SHIFTBOSS_ACCEPT_INPUT_AFTER",
        value_parser = values::parse_interval
    )]
    #[serde(default, deserialize_with = "values::interval")]
    accept_input_after: Option<Duration>,
    /// Permission bits of the socket, in octal [default: 0600]
    #[arg(long, env = "SHIFTBOSS_SOCKET_MODE", value_parser = parse_mode)]
    #[serde(default, deserialize_with = "mode_of_file")]
    socket_mode: Option<u32>,
    /// Group of the socket, by name or number
    #[arg(long, env = "SHIFTBOSS_SOCKET_GROUP")]
    socket_group: Option<String>,
    /// Group whose members may do what operators do, by name or number; a daemon must allow it, too: --relay-operators
    #[arg(long, value_name = "GROUP", env = "SHIFTBOSS_OPERATOR_GROUP")]
    operator_group: Option<String>,
    /// How many connections may be open; further ones are closed [default: 16384]
    #[arg(long, value_name = "N", env = "SHIFTBOSS_MAX_CONNECTIONS")]
    max_connections: Option<NonZeroU32>,
    /// How log lines look; `auto` is `journal` under systemd, else `text` [default: auto]
    #[arg(long, value_enum, env = "SHIFTBOSS_LOG_FORMAT")]
    log_format: Option<LogFormat>,
    /// What is logged: a level (error, warn, info, debug, trace), or a list of target=level [default: info]
    #[arg(long, value_name = "FILTER", env = "SHIFTBOSS_LOG")]
    #[serde(default, deserialize_with = "values::log_level")]
    log_level: Option<String>,
}

impl RelayOptions {
    /// These, and `others` where these say nothing.
    fn over(mut self, others: Self) -> Self {
        macro_rules! fall_back {
            ($($key:ident)*) => { $(self.$key = self.$key.or(others.$key);)* };
        }
        fall_back!(broker input_dir socket name broker_prefix message_rows message_bytes);
        fall_back!(poll poll_notified);
        fall_back!(accept_input accept_input_after socket_mode socket_group operator_group);
        fall_back!(max_connections log_format log_level);
        self
    }

    /// The same with its paths below `directory`, unless they are absolute.
    fn below(mut self, directory: &Path) -> Self {
        let paths = [&mut self.input_dir, &mut self.socket];
        paths.into_iter().flatten().for_each(|path| *path = directory.join(&*path));
        self
    }
}

impl Checked for RelayOptions {}

/// A whole number of some, as it is typed.
fn within(some: RangeInclusive<u32>) -> RangedI64ValueParser<u32> {
    RangedI64ValueParser::new().range(i64::from(*some.start())..=i64::from(*some.end()))
}

/// The same in a file.
fn within_of_file<'de, D: Deserializer<'de>>(
    typed: D,
    some: RangeInclusive<u32>,
) -> Result<Option<u32>, D::Error> {
    let wrong =
        format!("give a whole number from {} to {}, without quotes", some.start(), some.end());
    values::checked(typed, &wrong, |count| {
        if some.contains(&count) { Ok(Some(count)) } else { Err(wrong.clone()) }
    })
}

fn message_rows_of_file<'de, D: Deserializer<'de>>(typed: D) -> Result<Option<u32>, D::Error> {
    within_of_file(typed, MessageSize::ROWS)
}

fn message_bytes_of_file<'de, D: Deserializer<'de>>(typed: D) -> Result<Option<u32>, D::Error> {
    within_of_file(typed, MessageSize::BYTES)
}

/// What was said, checked.
#[derive(Debug)]
pub struct RelaySettings {
    pub link: Settings,
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

    /// Reads the file, if one is named.
    fn try_from(typed: RelayArguments) -> Result<Self, Failure> {
        let Some(file) = typed.config else { return Self::new(typed.options) };
        let (said, file) = config::read::<RelayOptions>(&file)?;
        let said = said.below(file.parent().unwrap_or(Path::new("/")));
        Self::new(typed.options.over(said))
    }
}

impl RelaySettings {
    fn new(said: RelayOptions) -> Result<Self, Failure> {
        let operators = said.operator_group.as_deref();
        let broker = broker(said.broker, said.broker_prefix, None)?;
        let message = MessageSize::default();
        Ok(Self {
            link: Settings {
                broker: broker.ok_or_else(|| missing("BROKER"))?,
                name: said.name.unwrap_or_else(host_name),
                message: MessageSize {
                    rows: said.message_rows.map_or(message.rows, |rows| rows as usize),
                    bytes: said.message_bytes.map_or(message.bytes, |bytes| bytes as usize),
                },
                polls: Polls {
                    alone: said.poll.unwrap_or(POLL),
                    notified: said.poll_notified.unwrap_or(Polls::default().notified),
                },
            },
            input: absolute(said.input_dir.ok_or_else(|| missing("INPUT_DIR"))?)?,
            accept_input: said.accept_input.unwrap_or(false),
            accept_input_after: said.accept_input_after.unwrap_or(ACCEPT_INPUT_AFTER),
            socket: SocketSettings {
                path: absolute(said.socket.ok_or_else(|| missing("SOCKET"))?)?,
                mode: said.socket_mode.unwrap_or(MODE),
                group: said.socket_group,
            },
            operator_group: operators
                .map(|group| group_id(group, "--operator-group"))
                .transpose()?,
            connections_max: said.max_connections.map_or(CONNECTIONS, NonZeroU32::get) as usize,
            log_format: said.log_format.unwrap_or(LogFormat::Auto),
            log_level: said.log_level.unwrap_or_else(|| "info".to_owned()),
        })
    }
}

fn missing(what: &str) -> Failure {
    let key = what.to_lowercase();
    Failure::usage(format!(
        "{what} is missing: give BROKER, INPUT_DIR and SOCKET, or name a file that has the key {key} (--config)"
    ))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    /// What is typed, with a file that has this text.
    fn settings(words: &[&str], file: Option<&str>) -> Result<RelaySettings, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("relay.toml");
        let config = path.to_str().unwrap();
        let config = file.map_or(vec![], |text| {
            std::fs::write(&path, text).unwrap();
            vec!["--config", config]
        });
        let typed = ["shiftboss", "relay"].iter().chain(words).chain(&config);
        match Cli::try_parse_from(typed).map_err(|error| error.to_string())?.command {
            Command::Relay(typed) => {
                (*typed).try_into().map_err(|error: Failure| error.to_string())
            }
            _ => Err("another command".to_owned()),
        }
    }

    const FILE: &str = "broker = 'amqp://u:secret@h/'\ninput_dir = 'in'\nsocket = '/s'\nname = 'one'\n\
        message_rows = 7\nsocket_mode = '0660'\naccept_input_after = '5m'\n";

    /// A flag wins over the file, whose paths are its directory's; where nothing is said there are defaults.
    #[test]
    fn flags_win_over_the_file() {
        let found = settings(&[], Some(FILE)).unwrap();
        assert_eq!((&*found.link.name, found.link.message.rows), ("one", 7));
        assert_eq!((found.link.message.bytes, found.connections_max), (262_144, 16_384));
        assert_eq!((found.socket.mode, &*found.socket.path), (0o660, Path::new("/s")));
        assert_eq!(found.accept_input_after, Duration::from_secs(300));
        assert!(found.input.is_absolute() && found.input.ends_with("in"), "{found:?}");
        assert!(!format!("{found:?}").contains("secret"));
        let flagged = ["amqp://h/", "--name", "two", "--message-rows", "9"];
        let flagged = settings(&flagged, Some(FILE)).unwrap();
        assert_eq!((&*flagged.link.name, flagged.link.message.rows), ("two", 9));
        assert_eq!(flagged.link.broker.to_string(), "amqp://h/");
    }

    /// What is wrong or missing is named, with its line in the file, and without the password.
    #[test]
    fn what_is_wrong_is_named() {
        for (words, file, why) in [
            (&[][..], None, "BROKER is missing"),
            (&["amqp://h/"], None, "INPUT_DIR is missing"),
            (&["amqp://h/", "i", "s", "--message-rows", "0"], None, "--message-rows"),
            (&[], Some("message_rows = 1001"), ":1: give a whole number from 1 to 1000"),
            (&[], Some("\nmessage_bytes = '2'"), ":2: give a whole number from 1024 to 1048576"),
            (&[], Some("database = 'x'"), "there is no key \"database\""),
            (&[], Some("broker = 'http://u:secret@h/'"), "http://u@h/"),
            (&[], Some("broker = 'amqp://u:secret@h/"), ":1: "),
        ] {
            let error = settings(words, file).unwrap_err();
            assert!(error.contains(why) && !error.contains("secret"), "{why}: {error}");
        }
    }
}
