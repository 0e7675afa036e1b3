//! The settings of `serve`: what was said, or else its default, checked. The daemon sees nothing else.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;

use super::super::absolute;
use super::ServeOptions;
use crate::config::{Checked, DaemonFiles, FetcherTable};
use crate::exit::Failure;
use crate::logging::LogFormat;
use crate::socket::{SocketSettings, group_id};
use crate::stores::{Durability, Options, Policy};

/// How long a request waits for another process's write to the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(3);
/// Where nothing is said.
const LEASE_SECONDS: i64 = 12 * 3600;
const EXPIRED_LEASES: u32 = 5;
const SINGLE_TASKS: u32 = 1_000_000;
const ACCEPT_INPUT_AFTER: Duration = Duration::from_secs(60);
const MODE: u32 = 0o600;
const CONNECTIONS: u32 = 16_384;

#[derive(Debug)]
pub struct ServeSettings {
    pub database: PathBuf,
    pub input: PathBuf,
    pub socket: SocketSettings,
    pub store: Options,
    /// The group whose members are operators, too.
    pub operator_group: Option<u32>,
    pub connections_max: usize,
    /// The spool whose tasks enter the queue.
    pub spool: Option<PathBuf>,
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
        let said = typed.over(file.unwrap_or_default());
        said.faults().into_iter().next().map_or(Ok(()), Err)?;
        let policy = match said.classic {
            Some(true) => Policy::Classic,
            _ => Policy::Fair { lease_seconds: said.lease.unwrap_or(LEASE_SECONDS) },
        };
        let operators = said.operator_group.as_deref();
        let operators = operators.map(|group| group_id(group, "--operator-group"));
        Ok(Self {
            database: named(said.database, "DATABASE")?,
            input: named(said.input_dir, "INPUT_DIR")?,
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
            },
            operator_group: operators.transpose()?,
            connections_max: said.max_connections.map_or(CONNECTIONS, NonZeroU32::get) as usize,
            spool: said.spool.map(absolute).transpose()?,
            accept_input: said.accept_input.unwrap_or(false),
            accept_input_after: said.accept_input_after.unwrap_or(ACCEPT_INPUT_AFTER),
            log_format: said.log_format.unwrap_or(LogFormat::Auto),
            log_level: said.log_level.unwrap_or_else(|| "info".to_owned()),
            fetchers: said.fetcher.into_iter().map(Spanned::into_inner).collect(),
        })
    }

    pub fn files(&self) -> DaemonFiles<'_> {
        DaemonFiles {
            database: Some(&self.database),
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
            ("durability", a.store.durability != b.store.durability),
            ("spool", a.spool != b.spool),
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

fn named(path: Option<PathBuf>, what: &str) -> Result<PathBuf, Failure> {
    let missing = || {
        let key = what.to_lowercase();
        Failure::usage(format!(
            "{what} is missing: give DATABASE, INPUT_DIR and SOCKET, or name a file that has the key {key} (--config)"
        ))
    };
    absolute(path.ok_or_else(missing)?)
}
