//! The options of `serve`, from flags, the environment or a configuration file. [`settings`] makes the checked settings
//! from them.
//!
//! A key of the file is an option's name ([`crate::config::keys`]), except for the tables, which have no flags.

mod settings;
#[cfg(test)]
mod tests;

use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use clap::{Args, ValueHint};
use shiftboss_protocol::url::Url;
use shiftboss_queue::groups::GroupRules;
use shiftboss_queue::policy::{Backoff, Retries};
use shiftboss_relay::QueueKind;

use super::common::CommonOptions;
use super::{BROKER_QUEUES, database, one_of};
use crate::config::keys::{Configured, Keys, Said, Value};
use crate::config::values::{parse_interval, parse_time};
use crate::config::{
    DaemonFiles, Fault, FetcherTable, backoff, fetchers, groups, retention, retries,
};
use crate::exit::{ExitCode, Failure};
use crate::stores::{self, BUMP_SHARE_MAX, Database, Durability};
pub use settings::ServeSettings;

/// Longest lease: practically for ever, and far from overflowing a sum of seconds.
const LEASE_SECONDS_MAX: i64 = 10 * 31_557_600;
/// Attempts that may be kept.
const HISTORY: RangeInclusive<i64> = 1_000..=50_000_000;
/// The longest name of a daemon.
const NAME_BYTES_MAX: usize = 255;
/// Options of a queue that daemons share.
const FOR_A_SERVER: [&str; 5] = ["daemon_name", "takeover", "poll", "poll_notified", "no_migrate"];
/// What an answer outlives.
const DURABILITIES: &[(&str, &str, Durability)] = &[
    ("power", "A power cut", Durability::Power),
    ("process", "The end of the process, not of the machine; faster", Durability::Process),
];

/// As they are typed; the file may say more.
pub type ServeArguments = Configured<ServeOptions>;

/// What the command line, the environment and the file can say.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  shiftboss serve state.db input worker.sock
  shiftboss serve --config /etc/shiftboss.toml
  shiftboss serve --lease 2h --socket-mode 0660 --socket-group workers \\
      /var/lib/shiftboss/state.db /var/lib/shiftboss/input /run/shiftboss/worker.sock")]
pub struct ServeOptions {
    /// The SQLite database, made if there is none; or the URL of a database on a PostgreSQL server
    #[arg(env = "SHIFTBOSS_DATABASE", hide_env_values = true, value_hint = ValueHint::FilePath, value_parser = database())]
    pub database: Option<Database>,
    /// Follow the Python supervisor's rules exactly: nothing is undone, leased or counted
    #[arg(long, env = "SHIFTBOSS_CLASSIC")]
    pub classic: bool,
    /// How long a classic worker may have a job before it is handed out again
    #[arg(long, value_name = "TIME", env = "SHIFTBOSS_LEASE", value_parser = parse_lease, default_value = "12h")]
    pub lease: i64,
    /// How many leases of a job may expire before it becomes a dead letter (protocol 2)
    #[arg(long, value_name = "N", env = "SHIFTBOSS_MAX_EXPIRED_LEASES", value_parser = clap::value_parser!(u32).range(1..=1000), default_value = "5")]
    pub max_expired_leases: u32,
    /// How many single tasks are kept at once; beyond that `shiftboss add` is refused
    #[arg(long, value_name = "N", env = "SHIFTBOSS_MAX_SINGLE_TASKS", default_value = "1000000")]
    pub max_single_tasks: NonZeroU32,
    /// How many attempts that ended are kept, the last ones: 1000 to 50000000
    #[arg(long, value_name = "N", env = "SHIFTBOSS_HISTORY", value_parser = clap::value_parser!(u32).range(HISTORY), default_value = "100000")]
    pub history: u32,
    /// What share of the hand-outs keys may have that `shiftboss bump` has go first: 0 to 0.5
    #[arg(long, value_name = "SHARE", env = "SHIFTBOSS_BUMP_SHARE", value_parser = parse_share, default_value = "0.1")]
    pub bump_share: u32,
    /// What an answer outlives: a power cut, or only the end of the process
    #[arg(long, value_parser = one_of(DURABILITIES), env = "SHIFTBOSS_DURABILITY", default_value = "power")]
    pub durability: Durability,
    /// On a server: this daemon's name among those that share the queue [default: the machine's host name]
    #[arg(long, value_name = "NAME", env = "SHIFTBOSS_DAEMON_NAME", value_parser = parse_daemon_name)]
    pub daemon_name: Option<String>,
    /// On a server: take over a fetcher of another daemon that has been gone, or without it, for so long
    #[arg(long, value_name = "TIME", env = "SHIFTBOSS_TAKEOVER", value_parser = parse_interval, default_value = "10m")]
    pub takeover: Duration,
    /// On a server: how often to look for work while workers wait and no notices of work arrive
    #[arg(long, value_name = "TIME", env = "SHIFTBOSS_POLL", value_parser = parse_interval, default_value = "1s")]
    pub poll: Duration,
    /// On a server: the same while notices arrive; up to half of it less
    #[arg(long, value_name = "TIME", env = "SHIFTBOSS_POLL_NOTIFIED", value_parser = parse_interval, default_value = "30s")]
    pub poll_notified: Duration,
    /// On a server: do not make the schema or bring it up to date; refuse one that is not
    #[arg(long, env = "SHIFTBOSS_NO_MIGRATE")]
    pub no_migrate: bool,
    /// Serve relays, too, over this broker: amqp://user@host/vhost
    #[arg(long, value_name = "URL", env = "SHIFTBOSS_BROKER", hide_env_values = true, value_parser = super::url())]
    pub broker: Option<Url>,
    /// What the names of its queues on the broker begin with
    #[arg(
        long,
        value_name = "TEXT",
        env = "SHIFTBOSS_BROKER_PREFIX",
        default_value = "shiftboss."
    )]
    pub broker_prefix: String,
    /// How the broker keeps its queues: `quorum` where it is a cluster
    #[arg(long, value_parser = one_of(BROKER_QUEUES), env = "SHIFTBOSS_BROKER_QUEUES", default_value = "classic")]
    pub broker_queues: QueueKind,
    /// Relays at which operators may do what they may here; may be given several times
    #[arg(long, value_name = "NAME", env = "SHIFTBOSS_RELAY_OPERATORS", value_delimiter = ',')]
    pub relay_operators: Vec<String>,
    #[command(flatten)]
    pub common: CommonOptions,
    /// How often tasks that fail are tried again; in the file only, as the next four.
    #[arg(skip)]
    pub job_retry: Option<Retries>,
    /// When keys are held whose jobs fail again and again.
    #[arg(skip)]
    pub backoff: Option<Backoff>,
    /// For how long keys are kept that nothing lists.
    #[arg(skip)]
    pub retention: Option<Duration>,
    /// What keys have in common, and the limits of that.
    #[arg(skip)]
    pub group: GroupRules,
    /// What the daemon runs itself.
    #[arg(skip)]
    pub fetcher: Vec<FetcherTable>,
}

impl ServeOptions {
    /// What it says of the daemon's files.
    pub fn files(&self) -> DaemonFiles<'_> {
        DaemonFiles {
            database: self.database.as_ref().and_then(Database::file),
            input: self.common.input_dir.as_deref(),
            socket: self.common.socket.as_deref(),
        }
    }

    /// Errors that the parser cannot find.
    pub fn faults(&self, said: &Said) -> Vec<Failure> {
        let unfit = self.unfit(said).map(|text| Failure::new(ExitCode::Configuration, text));
        let url = match &self.database {
            Some(Database::Server(url)) => stores::check(url).err(),
            _ => None,
        };
        unfit.into_iter().chain(url).chain(self.common.unknown_groups()).collect()
    }

    /// Options that exclude each other, or do not fit the kind of database.
    fn unfit(&self, said: &Said) -> Option<&'static str> {
        Some(match &self.database {
            _ if self.classic && said.has("lease") => {
                "the classic rules know no other lease than 12h: leave out lease or classic"
            }
            _ if self.classic && self.broker.is_some() => {
                "the classic rules know no relays: leave out broker or classic"
            }
            _ if self.classic && self.has_rules_of_its_own() => {
                "the classic rules know neither [job_retry] nor [backoff] nor [retention] nor [[group]]: leave them out, or classic"
            }
            Some(Database::Server(_)) if self.classic => {
                "the classic rules are those of a supervisor on SQLite, and of one alone: leave out classic, or give a database in a file"
            }
            Some(Database::Server(_)) if self.durability == Durability::Process => {
                "with a database on a server, an answer always outlives a power cut: leave out durability"
            }
            Some(Database::File(_)) if FOR_A_SERVER.iter().any(|option| said.has(option)) => {
                "daemon_name, takeover, poll, poll_notified and no_migrate are for a database on a server: leave them out, or give its URL"
            }
            _ => return None,
        })
    }

    fn has_rules_of_its_own(&self) -> bool {
        let mut of_fetchers = self.fetcher.iter().map(|table| &table.job_retry);
        let of_failures = self.backoff.is_some() || self.job_retry.is_some();
        let of_keys = self.retention.is_some() || !self.group.is_empty();
        of_failures || of_keys || of_fetchers.any(Option::is_some)
    }
}

impl Keys for ServeOptions {
    const TABLES: &'static [&'static str] =
        &["job_retry", "backoff", "retention", "group", "fetcher"];
    /// A lease means that the rules are not classic.
    const TOGETHER: &'static [&'static str] = &["classic", "lease"];

    fn take(&mut self, name: &str, value: &Value<'_>, directory: &Path) -> Result<(), Fault> {
        match name {
            "job_retry" => self.job_retry = Some(retries(value)?),
            "backoff" => self.backoff = Some(backoff(value)?),
            "retention" => self.retention = retention(value)?,
            "group" => self.group = groups(value, directory)?,
            _ => self.fetcher = fetchers(value, directory)?,
        }
        Ok(())
    }
}

/// A lease in whole seconds, the unit it is counted in (spec 2).
fn parse_lease(text: &str) -> Result<i64, String> {
    let lease = parse_time(text)?;
    match i64::try_from(lease.as_secs()) {
        Ok(seconds @ 1..=LEASE_SECONDS_MAX) if lease.subsec_nanos() == 0 => Ok(seconds),
        _ => Err("give whole seconds, from 1s to 10years".to_owned()),
    }
}

/// A share, in thousandths.
fn parse_share(text: &str) -> Result<u32, &'static str> {
    let share = text.parse().unwrap_or(f64::NAN);
    let thousandths = (share * 1_000.0).round();
    let is_too_small = thousandths == 0.0 && share != 0.0;
    // Within these it is a small whole number.
    let is_right = (0.0..=f64::from(BUMP_SHARE_MAX)).contains(&thousandths) && !is_too_small;
    is_right.then_some(thousandths as u32).ok_or("give 0, or a number from 0.001 to 0.5")
}

pub(super) fn parse_daemon_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > NAME_BYTES_MAX || text.contains(char::is_control) {
        return Err(format!("a name has 1 to {NAME_BYTES_MAX} bytes and no control characters"));
    }
    // So the queue on a server names relays, among its daemons.
    if text.starts_with("relay ") {
        return Err("a name does not begin with the word relay".to_owned());
    }
    Ok(text.to_owned())
}
