//! The checked settings of `serve`: what was said, or else its default. Made once, of [`ServeOptions`]; the daemon sees nothing
//! else.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use shiftboss_relay::Broker;
use toml::Spanned;

use super::values::{absolute_database, host_name, named, polls};
use super::{ACCEPT_INPUT_AFTER, CONNECTIONS, MODE, ServeOptions};
use crate::cli::{absolute, broker};
use crate::config::{Checked, DaemonFiles, FetcherTable, RetryRule};
use crate::exit::Failure;
use crate::logging::LogFormat;
use crate::socket::{SocketSettings, group_id};
use crate::stores::{Database, Durability, Joining, Options, Policy, RetryRules};

/// How long a request waits for another process's write to the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(3);
/// Where nothing is said.
const LEASE_SECONDS: i64 = 12 * 3600;
const EXPIRED_LEASES: u32 = 5;
const SINGLE_TASKS: u32 = 1_000_000;
const HISTORY: u32 = 100_000;
/// In thousandths.
const BUMP_SHARE: u32 = 100;
const TAKEOVER: Duration = Duration::from_secs(10 * 60);

/// See the module's documentation.
#[derive(Debug)]
pub struct ServeSettings {
    pub database: Database,
    pub joining: Joining,
    pub input: PathBuf,
    pub socket: SocketSettings,
    pub store: Options,
    pub operator_group: Option<u32>,
    pub connections_max: usize,
    /// The spool whose tasks enter the queue.
    pub spool: Option<PathBuf>,
    /// The broker that relays use.
    pub broker: Option<Broker>,
    pub relay_operators: Vec<String>,
    /// Whichever directory is there at the start is the input directory.
    pub accept_input: bool,
    /// Another one is, once it has held lists for so long without a change.
    pub accept_input_after: Duration,
    pub log_format: LogFormat,
    pub log_level: String,
    pub fetchers: Vec<FetcherTable>,
}

impl ServeSettings {
    /// Settings from the command line and the environment, and behind them a file.
    pub fn new(typed: ServeOptions, file: Option<ServeOptions>) -> Result<Self, Failure> {
        typed.check().map_err(|fault| Failure::usage(fault.what))?;
        typed.unfit().map_or(Ok(()), |text| Err(Failure::usage(text)))?;
        let said = typed.over(file.unwrap_or_default());
        said.faults().into_iter().next().map_or(Ok(()), Err)?;
        let policy = match said.classic {
            Some(true) => Policy::Classic,
            _ => Policy::Fair { lease_seconds: said.lease.unwrap_or(LEASE_SECONDS) },
        };
        let operators = said.operator_group.as_deref();
        let operators = operators.map(|group| group_id(group, "--operator-group"));
        let fetchers: Vec<_> = said.fetcher.into_iter().map(Spanned::into_inner).collect();
        let input = named(said.input_dir, "INPUT_DIR")?;
        Ok(Self {
            database: absolute_database(said.database)?,
            joining: Joining {
                name: said.daemon_name.unwrap_or_else(host_name),
                input: input.clone(),
                migrate: said.no_migrate != Some(true),
                takeover: said.takeover.unwrap_or(TAKEOVER),
                polls: polls(said.poll, said.poll_notified),
            },
            input,
            socket: SocketSettings {
                path: named(said.socket, "SOCKET")?,
                mode: said.socket_mode.unwrap_or(MODE),
                group: said.socket_group,
            },
            store: Options {
                policy,
                durability: said.durability.unwrap_or(Durability::Power),
                busy_timeout: BUSY_TIMEOUT,
                max_expired_leases: said.max_expired_leases.unwrap_or(EXPIRED_LEASES),
                max_single_tasks: said.max_single_tasks.map_or(SINGLE_TASKS, NonZeroU32::get),
                history: said.history.unwrap_or(HISTORY),
                bump_share: said.bump_share.unwrap_or(BUMP_SHARE),
                backoff: said.backoff.map(|rule| rule.0),
                retries: retry_rules(said.job_retry, &fetchers),
            },
            operator_group: operators.transpose()?,
            connections_max: said.max_connections.map_or(CONNECTIONS, NonZeroU32::get) as usize,
            spool: said.spool.map(absolute).transpose()?,
            broker: broker(said.broker, said.broker_prefix, said.broker_queues)?,
            relay_operators: said.relay_operators.unwrap_or_default(),
            accept_input: said.accept_input.unwrap_or(false),
            accept_input_after: said.accept_input_after.unwrap_or(ACCEPT_INPUT_AFTER),
            log_format: said.log_format.unwrap_or(LogFormat::Auto),
            log_level: said.log_level.unwrap_or_else(|| "info".to_owned()),
            fetchers,
        })
    }

    pub fn files(&self) -> DaemonFiles<'_> {
        DaemonFiles {
            database: self.database.file(),
            input: Some(&self.input),
            socket: Some(&self.socket.path),
            spool: self.spool.as_deref(),
        }
    }

    /// Names of the settings, fetchers apart, that differ from those of `other`.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let (a, b) = (self, other);
        let all = [
            ("database", a.database != b.database),
            ("input_dir", a.input != b.input),
            ("socket", a.socket.path != b.socket.path),
            ("classic", (a.store.policy == Policy::Classic) != (b.store.policy == Policy::Classic)),
            ("lease", a.store.policy != b.store.policy),
            ("max_expired_leases", a.store.max_expired_leases != b.store.max_expired_leases),
            ("max_single_tasks", a.store.max_single_tasks != b.store.max_single_tasks),
            ("history", a.store.history != b.store.history),
            ("job_retry", a.store.retries != b.store.retries),
            ("backoff", a.store.backoff != b.store.backoff),
            ("bump_share", a.store.bump_share != b.store.bump_share),
            ("daemon_name", a.joining.name != b.joining.name),
            ("takeover", a.joining.takeover != b.joining.takeover),
            ("poll", a.joining.polls.alone != b.joining.polls.alone),
            ("poll_notified", a.joining.polls.notified != b.joining.polls.notified),
            ("no_migrate", a.joining.migrate != b.joining.migrate),
            ("durability", a.store.durability != b.store.durability),
            ("spool", a.spool != b.spool),
            ("broker", a.broker != b.broker),
            ("relay_operators", a.relay_operators != b.relay_operators),
            ("accept_input", a.accept_input != b.accept_input),
            ("accept_input_after", a.accept_input_after != b.accept_input_after),
            ("socket_mode", a.socket.mode != b.socket.mode),
            ("socket_group", a.socket.group != b.socket.group),
            ("operator_group", a.operator_group != b.operator_group),
            ("max_connections", a.connections_max != b.connections_max),
            ("log_format", a.log_format != b.log_format),
            ("log_level", a.log_level != b.log_level),
        ];
        all.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect()
    }
}

/// Single tasks are tried again where nothing is said, for no list brings them back.
fn retry_rules(of_all: Option<RetryRule>, fetchers: &[FetcherTable]) -> RetryRules {
    let of_fetcher = fetchers
        .iter()
        .filter_map(|table| Some((table.name.as_str().to_owned(), table.job_retry.clone()?.0)))
        .collect();
    let single = of_all.clone().unwrap_or_else(RetryRule::of_single_tasks);
    RetryRules { lists: of_all.map(|rule| rule.0), single: Some(single.0), of_fetcher }
}
