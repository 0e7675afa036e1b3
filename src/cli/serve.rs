//! What can be said to `serve`, by flags, by the environment or in a configuration file. The checked settings are made of it by
//! [`settings`].
//!
//! [`ServeOptions`] is parsed by clap and by serde alike, so that a key of the file is a flag, too. Reading the
//! file is [`crate::config`]'s.

mod settings;
#[cfg(test)]
mod tests;
mod values;

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use shiftboss_protocol::url::Url;
use shiftboss_relay::QueueKind;
use toml::Spanned;

use super::{BROKER_QUEUES, database, one_of};
use crate::config::values as values_of_file;
use crate::config::{
    BackoffRule, Checked, DaemonFiles, Fault, FetcherTable, RetryRule, check_fetchers,
};
use crate::exit::{ExitCode, Failure};
use crate::logging::LogFormat;
use crate::socket::group_id;
use crate::stores::{self, Database, Durability};
pub use settings::ServeSettings;
pub use values::host_name;
use values::{
    CLASSIC_BROKER, CLASSIC_FAILURES, CLASSIC_LEASE, CLASSIC_SERVER, CLASSIC_SPOOL, HISTORY,
    PROCESS_SERVER, SERVER_ONLY, database_of_file, expired_leases_of_file, history_of_file,
    lease_of_file, parse_lease, parse_share, share_of_file,
};
pub(super) use values::{
    daemon_name_of_file, mode_of_file, parse_daemon_name, parse_mode, url_of_file,
};

/// Where nothing is said.
pub(super) const ACCEPT_INPUT_AFTER: Duration = Duration::from_secs(60);
pub(super) const MODE: u32 = 0o600;
pub(super) const CONNECTIONS: u32 = 16_384;

/// What an answer outlives.
const DURABILITIES: &[(&str, &str, Durability)] = &[
    ("power", "A power cut", Durability::Power),
    ("process", "The end of the process, not of the machine; faster", Durability::Process),
];

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  shiftboss serve state.db input worker.sock
  shiftboss serve --config /etc/shiftboss.toml
  shiftboss serve --lease 2h --socket-mode 0660 --socket-group workers \\
      /var/lib/shiftboss/state.db /var/lib/shiftboss/input /run/shiftboss/worker.sock")]
pub struct ServeArguments {
    /// The configuration file; paths in it are relative to its directory
    #[arg(long, value_name = "FILE", env = "SHIFTBOSS_CONFIG")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub options: ServeOptions,
}

/// What the command line, the environment and the file can say; `None`: nothing was said.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServeOptions {
    /// The SQLite database, made if there is none; or the URL of a database on a PostgreSQL server
    #[arg(env = "SHIFTBOSS_DATABASE", hide_env_values = true, value_parser = database())]
    #[serde(default, deserialize_with = "database_of_file")]
    pub database: Option<Database>,
    /// The directory that fetchers write to; made if there is none
    #[arg(env = "SHIFTBOSS_INPUT_DIR")]
    #[serde(default, deserialize_with = "values_of_file::path")]
    pub input_dir: Option<PathBuf>,
    /// The Unix socket for workers; made
    #[arg(env = "SHIFTBOSS_SOCKET")]
    #[serde(default, deserialize_with = "values_of_file::path")]
    pub socket: Option<PathBuf>,
    /// Follow the Python supervisor's rules exactly: nothing is undone, leased or counted
    #[arg(
        long,
        env = "SHIFTBOSS_CLASSIC",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    pub classic: Option<bool>,
    /// How long a classic worker may have a job before it is handed out again [default: 12h]
    #[arg(long, value_name = "TIME", env = "SHIFTBOSS_LEASE", value_parser = parse_lease)]
    #[serde(default, deserialize_with = "lease_of_file")]
    pub lease: Option<i64>,
    /// How many leases of a job may expire before it becomes a dead letter (protocol 2) [default: 5]
    #[arg(
        long,
        value_name = "N",
        env = "SHIFTBOSS_MAX_EXPIRED_LEASES",
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    #[serde(default, deserialize_with = "expired_leases_of_file")]
    pub max_expired_leases: Option<u32>,
    /// How many single tasks are kept at once; beyond that `shiftboss add` is refused [default: 1000000]
    #[arg(long, value_name = "N", env = "SHIFTBOSS_MAX_SINGLE_TASKS")]
    pub max_single_tasks: Option<NonZeroU32>,
    /// How many attempts that ended are kept, the last ones: 1000 to 50000000 [default: 100000]
    #[arg(
        long,
        value_name = "N",
        env = "SHIFTBOSS_HISTORY",
        value_parser = clap::value_parser!(u32).range(HISTORY)
    )]
    #[serde(default, deserialize_with = "history_of_file")]
    pub history: Option<u32>,
    /// What share of the hand-outs keys may have that `shiftboss bump` has go first: 0 to 0.5 [default: 0.1]
    #[arg(
        long,
        value_name = "SHARE",
        env = "SHIFTBOSS_BUMP_SHARE",
        value_parser = parse_share
    )]
    #[serde(default, deserialize_with = "share_of_file")]
    pub bump_share: Option<u32>,
    /// What an answer outlives: a power cut, or only the end of the process [default: power]
    #[arg(long, value_parser = one_of(DURABILITIES), env = "SHIFTBOSS_DURABILITY")]
    pub durability: Option<Durability>,
    /// On a server: this daemon's name among those that share the queue [default: the machine's host name]
    #[arg(long, value_name = "NAME", env = "SHIFTBOSS_DAEMON_NAME", value_parser = parse_daemon_name)]
    #[serde(default, deserialize_with = "daemon_name_of_file")]
    pub daemon_name: Option<String>,
    /// On a server: take over a fetcher of another daemon that has been gone, or without it, for so long [default: 10m]
    #[arg(long, value_name = "TIME", env = "SHIFTBOSS_TAKEOVER", value_parser = values_of_file::parse_interval)]
    #[serde(default, deserialize_with = "values_of_file::interval")]
    pub takeover: Option<Duration>,
    /// On a server: how often it is looked for work while workers wait and no notices of work arrive [default: 1s]
    #[arg(long, value_name = "TIME", env = "SHIFTBOSS_POLL", value_parser = values_of_file::parse_interval)]
    #[serde(default, deserialize_with = "values_of_file::interval")]
    pub poll: Option<Duration>,
    /// On a server: the same while notices arrive; up to half of it less [default: 30s]
    #[arg(long, value_name = "TIME", env = "SHIFTBOSS_POLL_NOTIFIED", value_parser = values_of_file::parse_interval)]
    #[serde(default, deserialize_with = "values_of_file::interval")]
    pub poll_notified: Option<Duration>,
    /// On a server: do not make the schema or bring it up to date; refuse one that is not
    #[arg(
        long,
        env = "SHIFTBOSS_NO_MIGRATE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    pub no_migrate: Option<bool>,
    /// Serve relays, too, over this broker: amqp://user@host/vhost
    #[arg(long, value_name = "URL", env = "SHIFTBOSS_BROKER", hide_env_values = true, value_parser = super::url())]
    #[serde(default, deserialize_with = "url_of_file")]
    pub broker: Option<Url>,
    /// What the names of its queues on the broker begin with [default: shiftboss.]
    #[arg(long, value_name = "TEXT", env = "SHIFTBOSS_BROKER_PREFIX")]
    pub broker_prefix: Option<String>,
    /// How the broker keeps its queues: `quorum` where it is a cluster [default: classic]
    #[arg(long, value_parser = one_of(BROKER_QUEUES), env = "SHIFTBOSS_BROKER_QUEUES")]
    pub broker_queues: Option<QueueKind>,
    /// Relays at which operators may do what they may here; may be given several times
    #[arg(long, value_name = "NAME", env = "SHIFTBOSS_RELAY_OPERATORS", value_delimiter = ',')]
    pub relay_operators: Option<Vec<String>>,
    /// Accept the entries of this spool's queue `tasks` as single tasks; made if there is none
    #[arg(long, value_name = "DIR", env = "SHIFTBOSS_SPOOL")]
    #[serde(default, deserialize_with = "values_of_file::path")]
    pub spool: Option<PathBuf>,
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
    #[arg(long, value_name = "TIME", env = "SHIFTBOSS_ACCEPT_INPUT_AFTER", value_parser = values_of_file::parse_interval)]
    #[serde(default, deserialize_with = "values_of_file::interval")]
    pub accept_input_after: Option<Duration>,
    /// Permission bits of the socket, in octal [default: 0600]
    #[arg(long, env = "SHIFTBOSS_SOCKET_MODE", value_parser = parse_mode)]
    #[serde(default, deserialize_with = "mode_of_file")]
    pub socket_mode: Option<u32>,
    /// Group of the socket, by name or number; with --socket-mode 0660 its members may work, but not give orders
    #[arg(long, env = "SHIFTBOSS_SOCKET_GROUP")]
    pub socket_group: Option<String>,
    /// Group whose members may do what operators do (add, cancel, pause, retry ...), by name or number
    ///
    /// The daemon's user and root always may. Members must also be let in: --socket-mode and --socket-group.
    #[arg(long, value_name = "GROUP", env = "SHIFTBOSS_OPERATOR_GROUP")]
    pub operator_group: Option<String>,
    /// How many connections may be open; further ones are closed [default: 16384]
    #[arg(long, value_name = "N", env = "SHIFTBOSS_MAX_CONNECTIONS")]
    pub max_connections: Option<NonZeroU32>,
    /// How log lines look; `auto` is `journal` under systemd, else `text` [default: auto]
    #[arg(long, value_enum, env = "SHIFTBOSS_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
    /// What is logged: a level (error, warn, info, debug, trace), or a list of target=level [default: info]
    #[arg(long, value_name = "FILTER", env = "SHIFTBOSS_LOG")]
    #[serde(default, deserialize_with = "values_of_file::log_level")]
    pub log_level: Option<String>,
    /// How often tasks that fail are tried again; in the file only, as the next two.
    #[arg(skip)]
    pub job_retry: Option<RetryRule>,
    /// When keys are held whose jobs fail again and again.
    #[arg(skip)]
    pub backoff: Option<BackoffRule>,
    /// What the daemon runs itself.
    #[arg(skip)]
    #[serde(default)]
    pub fetcher: Vec<Spanned<FetcherTable>>,
}

impl ServeOptions {
    /// These, and `others` where these say nothing.
    fn over(mut self, others: Self) -> Self {
        macro_rules! fall_back {
            ($($key:ident)*) => { $(self.$key = self.$key.or(others.$key);)* };
        }
        // A lease means that the rules are not classic: of these two what is nearer says both.
        if self.classic.is_none() && self.lease.is_none() {
            fall_back!(classic lease);
        }
        fall_back!(database input_dir socket max_expired_leases max_single_tasks durability spool);
        fall_back!(accept_input accept_input_after socket_mode socket_group operator_group);
        fall_back!(max_connections log_format log_level daemon_name takeover no_migrate);
        fall_back!(poll poll_notified broker broker_prefix broker_queues relay_operators history);
        fall_back!(bump_share);
        let Self { job_retry, backoff, fetcher, .. } = others;
        Self { job_retry, backoff, fetcher, ..self }
    }

    /// What it says of the daemon's files.
    pub fn files(&self) -> DaemonFiles<'_> {
        DaemonFiles {
            database: self.database.as_ref().and_then(Database::file),
            input: self.input_dir.as_deref(),
            socket: self.socket.as_deref(),
            spool: self.spool.as_deref(),
        }
    }

    /// What is wrong with it, though the parser took it.
    pub fn faults(&self) -> Vec<Failure> {
        let groups =
            [(&self.socket_group, "--socket-group"), (&self.operator_group, "--operator-group")];
        let groups = groups
            .into_iter()
            .filter_map(|(name, setting)| group_id(name.as_deref()?, setting).err());
        let unfit = self.unfit().map(|text| Failure::new(ExitCode::Configuration, text));
        let url = match &self.database {
            Some(Database::Server(url)) => stores::check(url).err(),
            _ => None,
        };
        unfit.into_iter().chain(url).chain(groups).collect()
    }

    /// What does not go together, or with the kind of database.
    fn unfit(&self) -> Option<&'static str> {
        let is_classic = self.classic == Some(true);
        match &self.database {
            _ if is_classic && self.spool.is_some() => Some(CLASSIC_SPOOL),
            _ if is_classic && self.broker.is_some() => Some(CLASSIC_BROKER),
            _ if is_classic && self.has_rules_for_failures() => Some(CLASSIC_FAILURES),
            Some(Database::Server(_)) if is_classic => Some(CLASSIC_SERVER),
            Some(Database::Server(_)) if self.durability == Some(Durability::Process) => {
                Some(PROCESS_SERVER)
            }
            Some(Database::File(_)) if self.is_for_a_server() => Some(SERVER_ONLY),
            _ => None,
        }
    }

    fn has_rules_for_failures(&self) -> bool {
        let mut of_fetchers = self.fetcher.iter().map(|table| &table.get_ref().job_retry);
        self.backoff.is_some() || self.job_retry.is_some() || of_fetchers.any(Option::is_some)
    }

    fn is_for_a_server(&self) -> bool {
        let times = [self.takeover, self.poll, self.poll_notified];
        self.daemon_name.is_some() || self.no_migrate.is_some() || times != [None; 3]
    }

    /// The same with its paths, and its fetchers', below `directory`, unless they are absolute.
    #[must_use]
    pub fn below(mut self, directory: &Path) -> Self {
        self.database = self.database.map(|database| database.below(directory));
        let paths = [&mut self.input_dir, &mut self.socket, &mut self.spool];
        paths.into_iter().flatten().for_each(|path| *path = directory.join(&*path));
        for table in &mut self.fetcher {
            *table.get_mut() = table.get_ref().clone().below(directory);
        }
        self
    }
}

impl Checked for ServeOptions {
    fn check(&self) -> Result<(), Fault> {
        if self.classic == Some(true) && self.lease.is_some() {
            return Err(Fault { place: 0..0, what: CLASSIC_LEASE.to_owned() });
        }
        check_fetchers(&self.fetcher)
    }
}
