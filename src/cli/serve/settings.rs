//! The checked settings of `serve`, made once from its options; the daemon sees nothing else.

use std::time::Duration;

use shiftboss_queue::policy::Retries;
use shiftboss_relay::{Broker, host_name};

use super::{ServeArguments, ServeOptions};
use crate::cli::broker;
use crate::cli::common::{CommonSettings, missing};
use crate::config::keys::Said;
use crate::config::{DaemonFiles, FetcherTable, File, retries_of_single_tasks};
use crate::exit::{ExitCode, Failure};
use crate::stores::{Database, Joining, Options, Policy, Polls, RetryRules};

/// How long a request waits for another process's write to the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(3);

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
    said: Said,
}

impl ServeSettings {
    /// Settings from the command line and the environment, and then from a file.
    pub fn new(arguments: &ServeArguments, file: Option<&File>) -> Result<Self, Failure> {
        let (typed, wrote) = arguments.typed()?;
        typed.unfit(&wrote).map_or(Ok(()), |text| Err(Failure::usage(text)))?;
        let (options, said) = arguments.behind(file)?;
        options.faults(&said).into_iter().next().map_or(Ok(()), Err)?;
        let store = options.store()?;
        let database = options.database.ok_or_else(|| missing("DATABASE", "DATABASE"))?;
        let common = CommonSettings::new(options.common, "DATABASE")?;
        Ok(Self {
            database: database
                .absolute()
                .map_err(|error| Failure::usage(format!("the database cannot be used: {error}")))?,
            joining: Joining {
                name: options.daemon_name.unwrap_or_else(host_name),
                input: common.input.clone(),
                socket: common.socket.path.clone(),
                migrate: !options.no_migrate,
                takeover: options.takeover,
                polls: Polls { alone: options.poll, notified: options.poll_notified },
            },
            common,
            store,
            broker: broker(options.broker, &options.broker_prefix, options.broker_queues)?,
            relay_operators: options.relay_operators,
            fetchers: options.fetcher,
            said,
        })
    }

    pub fn files(&self) -> DaemonFiles<'_> {
        DaemonFiles {
            database: self.database.file(),
            input: Some(&self.common.input),
            socket: Some(&self.common.socket.path),
        }
    }

    /// Names of the settings, fetchers and groups apart, that differ from those of `other`.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut names = self.said.differences(&other.said);
        let (a, b) = (&self.store, &other.store);
        let tables = [
            ("job_retry", a.retries != b.retries),
            ("backoff", a.backoff != b.backoff),
            ("retention", a.unlisted_kept != b.unlisted_kept),
        ];
        names.extend(
            tables.iter().filter(|(_, differs)| *differs).map(|(name, _)| name.to_string()),
        );
        names
    }
}

impl ServeOptions {
    /// How the queue is kept, and by which rules.
    pub fn store(&self) -> Result<Options, Failure> {
        Ok(Options {
            policy: if self.classic {
                Policy::Classic
            } else {
                Policy::Fair { lease_seconds: self.lease }
            },
            durability: self.durability,
            busy_timeout: BUSY_TIMEOUT,
            max_expired_leases: self.max_expired_leases,
            max_single_tasks: self.max_single_tasks.get(),
            history: self.history,
            bump_share: self.bump_share,
            backoff: self.backoff.clone(),
            retries: retry_rules(self.job_retry.clone(), &self.fetcher)?,
            unlisted_kept: self.retention,
            groups: self.group.clone(),
        })
    }
}

/// Single tasks are retried by default, because no list brings them back.
fn retry_rules(lists: Option<Retries>, fetchers: &[FetcherTable]) -> Result<RetryRules, Failure> {
    let usual =
        || retries_of_single_tasks().map_err(|fault| Failure::new(ExitCode::Internal, fault.what));
    let single = lists.clone().map_or_else(usual, Ok)?;
    let of_fetcher = fetchers
        .iter()
        .filter_map(|table| Some((table.list.name.as_str().to_owned(), table.job_retry.clone()?)))
        .collect();
    Ok(RetryRules { lists, single: Some(single), of_fetcher })
}
