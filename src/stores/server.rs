//! A queue on a PostgreSQL server, for callers that have no runtime yet: `serve` before its actors start, and commands.

use std::fs;
use std::future::Future;
use std::sync::Arc;

use shiftboss_actors::store::{Reader, StoreError, StoreResult};
use tokio::runtime::Builder;

use super::postgres::{self, Identity, PostgresReader, PostgresStore, Server};
use super::{Joining, Opened, Options, Url};
use crate::exit::{ExitCode, Failure};

/// Whether a URL can be used; asks no server.
pub(crate) fn check(url: &Url) -> Result<(), Failure> {
    Server::new(url).map(|_| ()).map_err(Failure::usage)
}

/// Makes the schema, or brings it up to date.
pub(crate) fn migrate(url: &Url) -> Result<(), Failure> {
    let server = server(url)?;
    wait_for(async { postgres::migrate(&server.connect().await?.client).await })
}

pub(super) fn open(url: &Url, options: &Options, joining: &Joining) -> Result<Opened, Failure> {
    let server = server(url)?;
    let identity = Identity { name: joining.name.clone(), owner: owner(joining) };
    let store = wait_for(async {
        if !joining.migrate {
            postgres::require_current(&server.connect().await?.client).await?;
        }
        PostgresStore::open(server, identity, *options).await
    })?;
    let found = store.found().clone();
    Ok(Opened {
        store: Box::new(store),
        was_clean: found.was_clean,
        is_paused: found.is_paused,
        input_directory: found.input_directory,
    })
}

pub(super) fn reader(url: &Url) -> Result<Arc<dyn Reader>, Failure> {
    Ok(Arc::new(PostgresReader(server(url)?)))
}

fn server(url: &Url) -> Result<Server, Failure> {
    Server::new(url).map_err(Failure::usage)
}

fn wait_for<T>(asked: impl Future<Output = StoreResult<T>>) -> Result<T, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Failure::of(ExitCode::Internal))?;
    runtime.block_on(asked).map_err(failure)
}

/// The machine and the input directory, which no two living daemons share. Containers of one machine differ by their host
/// names, and machines of one name by their ids.
fn owner(joining: &Joining) -> String {
    let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    format!("{} {host} {}", id.trim(), joining.input.display())
}

/// Why a queue cannot be used from the start: what a restart may help with, and what needs somebody.
fn failure(error: StoreError) -> Failure {
    match error {
        StoreError::Busy(text) => Failure::new(ExitCode::Unavailable, text),
        StoreError::Full(text) => Failure::new(ExitCode::StoreIo, text),
        StoreError::Corrupt(text) => Failure::new(ExitCode::BadData, text),
        // Another daemon has the name.
        StoreError::Rejected(text) => Failure::new(ExitCode::AlreadyRunning, text),
        StoreError::Fatal(text) => Failure::new(ExitCode::Configuration, text),
    }
}
