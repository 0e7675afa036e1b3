//! The checked settings of `serve`: what was said, or else its default. Made once, of [`ServeOptions`]; the daemon sees nothing
//! else.

use std::num::NonZeroU32;
use std::time::Duration;

use shiftboss_relay::Broker;
use toml::Spanned;

use super::values::{absolute_database, host_name, polls};
use super::{ServeArguments, ServeOptions};
use crate::cli::broker;
use crate::cli::common::CommonSettings;
use crate::config::{DaemonFiles, FetcherTable, RetryRule};
use crate::exit::Failure;
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
    pub common: CommonSettings,
    pub store: Options,
    /// The broker that relays use.
    pub broker: Option<Broker>,
    pub relay_operators: Vec<String>,
    pub fetchers: Vec<FetcherTable>,
}

impl ServeSettings {
    /// Settings from the command line and the environment, and behind them a file.
    pub fn new(arguments: &ServeArguments, file: Option<ServeOptions>) -> Result<Self, Failure> {
        let typed = arguments.typed()?;
        let wrong = typed.contradiction().or(typed.unfit());
        wrong.map_or(Ok(()), |text| Err(Failure::usage(text)))?;
        let mut file = file.unwrap_or_default();
        // A lease means that the rules are not classic: of these two what is nearer says both.
        if typed.classic.is_some() || typed.lease.is_some() {
            (file.classic, file.lease) = (None, None);
        }
        let said = arguments.over(file)?;
        said.faults().into_iter().next().map_or(Ok(()), Err)?;
        let policy = match said.classic {
            Some(true) => Policy::Classic,
            _ => Policy::Fair { lease_seconds: said.lease.unwrap_or(LEASE_SECONDS) },
        };
        let fetchers: Vec<_> = said.fetcher.into_iter().map(Spanned::into_inner).collect();
        let database = absolute_database(said.database)?;
        let common = CommonSettings::new(said.common, "DATABASE")?;
        Ok(Self {
            database,
            joining: Joining {
                name: said.daemon_name.unwrap_or_else(host_name),
                input: common.input.clone(),
                socket: common.socket.path.clone(),
                migrate: said.no_migrate != Some(true),
                takeover: said.takeover.unwrap_or(TAKEOVER),
                polls: polls(said.poll, said.poll_notified),
            },
            common,
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
            broker: broker(said.broker, said.broker_prefix, said.broker_queues)?,
            relay_operators: said.relay_operators.unwrap_or_default(),
            fetchers,
        })
    }

    pub fn files(&self) -> DaemonFiles<'_> {
        DaemonFiles {
            database: self.database.file(),
            input: Some(&self.common.input),
            socket: Some(&self.common.socket.path),
        }
    }

    /// Names of the settings, fetchers apart, that differ from those of `other`.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let (a, b) = (self, other);
        let all = [
            ("database", a.database != b.database),
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
            ("broker", a.broker != b.broker),
            ("relay_operators", a.relay_operators != b.relay_operators),
        ];
        let all = all.into_iter().chain(a.common.differences(&b.common));
        all.filter_map(|(name, differs)| differs.then_some(name)).collect()
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
