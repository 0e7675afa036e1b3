//! The options of `relay`, from flags, the environment or a configuration file, and the checked settings made from
//! them. Like those of `serve`.

use std::ops::RangeInclusive;
use std::time::Duration;

use clap::Args;
use clap::builder::RangedI64ValueParser;
use shiftboss_protocol::url::Url;
use shiftboss_relay::{MessageSize, QueueKind, Settings, host_name};

use super::common::{CommonOptions, CommonSettings, missing};
use super::serve::parse_daemon_name;
use super::{broker, url};
use crate::config::keys::{Configured, Keys};
use crate::config::values::parse_interval;
use crate::exit::Failure;
use crate::stores::Polls;

/// As they are typed; the file may say more.
pub type RelayArguments = Configured<RelayOptions>;

/// What the command line, the environment and the file can say.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  shiftboss relay amqp://shiftboss@broker.example/ input worker.sock
  shiftboss relay --config /etc/shiftboss-relay.toml
  SHIFTBOSS_BROKER=amqps://shiftboss:secret@broker.example/ SHIFTBOSS_INPUT_DIR=/var/lib/shiftboss/input \\
      SHIFTBOSS_SOCKET=/run/shiftboss/worker.sock shiftboss relay --name site-2")]
pub struct RelayOptions {
    /// The URL of the broker; in SHIFTBOSS_BROKER or the file nobody sees its password
    #[arg(env = "SHIFTBOSS_BROKER", hide_env_values = true, value_parser = url())]
    broker: Option<Url>,
    /// This relay's name among those of the queue [default: the machine's host name]
    #[arg(long, value_name = "NAME", env = "SHIFTBOSS_RELAY_NAME", value_parser = parse_daemon_name)]
    name: Option<String>,
    /// What the names of the daemon's queues on the broker begin with
    #[arg(
        long,
        value_name = "TEXT",
        env = "SHIFTBOSS_BROKER_PREFIX",
        default_value = "shiftboss."
    )]
    broker_prefix: String,
    /// Rows of a list that one message has at most
    #[arg(long, value_name = "N", env = "SHIFTBOSS_MESSAGE_ROWS", value_parser = within(MessageSize::ROWS), default_value = "100")]
    message_rows: u32,
    /// Bytes of keys and payloads that one message has at most, unless one row has more
    #[arg(long, value_name = "N", env = "SHIFTBOSS_MESSAGE_BYTES", value_parser = within(MessageSize::BYTES), default_value = "262144")]
    message_bytes: u32,
    /// How often daemons are asked for work while workers wait and no hints arrive
    #[arg(long, value_name = "TIME", env = "SHIFTBOSS_POLL", value_parser = parse_interval, default_value = "2s")]
    poll: Duration,
    /// The same while hints arrive
    #[arg(long, value_name = "TIME", env = "SHIFTBOSS_POLL_NOTIFIED", value_parser = parse_interval, default_value = "30s")]
    poll_notified: Duration,
    #[command(flatten)]
    common: CommonOptions,
}

impl Keys for RelayOptions {}

/// A whole number of some.
fn within(some: RangeInclusive<u32>) -> RangedI64ValueParser<u32> {
    RangedI64ValueParser::new().range(i64::from(*some.start())..=i64::from(*some.end()))
}

/// The checked settings.
#[derive(Debug)]
pub struct RelaySettings {
    pub link: Settings,
    pub common: CommonSettings,
}

impl TryFrom<RelayArguments> for RelaySettings {
    type Error = Failure;

    /// Reads the file, if one is named.
    fn try_from(typed: RelayArguments) -> Result<Self, Failure> {
        let (said, _) = typed.behind(typed.read_file()?.as_ref())?;
        let broker = broker(said.broker, &said.broker_prefix, QueueKind::default())?;
        Ok(Self {
            link: Settings {
                broker: broker.ok_or_else(|| missing("BROKER", "BROKER"))?,
                name: said.name.unwrap_or_else(host_name),
                message: MessageSize {
                    rows: said.message_rows as usize,
                    bytes: said.message_bytes as usize,
                },
                polls: Polls { alone: said.poll, notified: said.poll_notified },
            },
            common: CommonSettings::new(said.common, "BROKER")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    /// Settings from these arguments, and a file with this text.
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

    /// A flag wins over the file, whose paths are relative to its directory; otherwise there are defaults.
    #[test]
    fn flags_win_over_the_file() {
        let found = settings(&[], Some(FILE)).unwrap();
        assert_eq!((&*found.link.name, found.link.message.rows), ("one", 7));
        assert_eq!(
            (found.link.message.bytes, found.common.said.max_connections.get()),
            (262_144, 16_384)
        );
        assert_eq!(
            (found.common.socket.mode, &*found.common.socket.path),
            (0o660, Path::new("/s"))
        );
        assert_eq!(found.common.said.accept_input_after, Duration::from_secs(300));
        let input = &found.common.input;
        assert!(input.is_absolute() && input.ends_with("in"), "{found:?}");
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
            (&[], Some("message_rows = 1001"), ":1: message_rows: 1001 is not in 1..=1000"),
            (&[], Some("\nmessage_bytes = '2'"), ":2: message_bytes: 2 is not in 1024..=1048576"),
            (&[], Some("database = 'x'"), "there is no key \"database\""),
            (&[], Some("broker = 'http://u:secret@h/'"), "http://u@h/"),
            (&[], Some("broker = 'amqp://u:secret@h/"), ":1: "),
        ] {
            let error = settings(words, file).unwrap_err();
            assert!(error.contains(why) && !error.contains("secret"), "{why}: {error}");
        }
    }
}
