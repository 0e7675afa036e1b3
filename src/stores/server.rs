//! A queue on a PostgreSQL server, for callers that have no runtime yet: `serve` before its actors start, and commands.

use std::fs;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use shiftboss_actors::store::{Reader, StoreResult};
use tokio::runtime::Builder;

use super::mark::Moved;
use super::postgres::{self, Forgotten, Identity, PostgresReader, PostgresStore, Server};
use super::sqlite::transfer as file;
use super::transfer;
use super::{Joining, Left, Opened, Options, Url, start_failure, unknown};
use crate::exit::{ExitCode, Failure};

/// Whether a URL can be used; asks no server.
pub(crate) fn check(url: &Url) -> Result<(), Failure> {
    Server::new(url).map(|_| ())
}

/// Makes the schema, or brings it up to date.
pub(crate) fn migrate(url: &Url) -> Result<(), Failure> {
    let server = Server::new(url)?;
    wait_for(async { postgres::migrate(&server.connect().await?.client).await })
}

/// Forgets a daemon that is gone for good, or a relay, and what it left.
pub(crate) fn forget_daemon(url: &Url, name: &str) -> Result<Left, Failure> {
    let server = Server::new(url)?;
    match wait_for(async { postgres::forget(&server, name).await })? {
        Forgotten::Gone(left) => Ok(left),
        Forgotten::Unknown => Err(unknown(name, url)),
        Forgotten::Lives(who) => Err(Failure::new(
            ExitCode::AlreadyRunning,
            format!("the daemon {name} lives ({who}): stop it first"),
        )),
    }
}

pub(super) fn open(url: &Url, options: &Options, joining: &Joining) -> Result<Opened, Failure> {
    let server = Server::new(url)?;
    let Joining { name, takeover, polls, .. } = joining.clone();
    let identity = Identity { owner: owner(joining), name, takeover, polls };
    let store = wait_for(async {
        if !joining.migrate {
            postgres::require_current(&server.connect().await?.client).await?;
        }
        PostgresStore::open(server, identity, options.clone()).await
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
    Ok(Arc::new(PostgresReader::new(Server::new(url)?)))
}

pub(super) fn glance(url: &Url, patience: Duration) -> Result<Arc<dyn Reader>, Failure> {
    Ok(Arc::new(PostgresReader::glance(Server::new(url)?, patience)))
}

/// Moves a queue from a file to a server; `daemon` has its lists there. The caller has the file's lock.
pub(crate) fn move_in(from: &Path, to: &Url, daemon: &str) -> Result<Vec<Moved>, Failure> {
    let server = Server::new(to)?;
    let mut source = file::leaving::Leaving::open(from)?;
    transfer::carry(
        &mut source,
        &mut postgres::transfer::arriving::Arriving::open(&server, daemon)?,
    )
}

/// Moves a queue from a server to a new file, whose lock the caller has.
pub(crate) fn move_out(from: &Url, to: &Path) -> Result<Vec<Moved>, Failure> {
    let server = Server::new(from)?;
    let mut target = file::arriving::Arriving::open(to)?;
    transfer::carry(&mut postgres::transfer::leaving::Leaving::open(&server)?, &mut target)
}

fn wait_for<T>(asked: impl Future<Output = StoreResult<T>>) -> Result<T, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Failure::of(ExitCode::Internal))?;
    runtime.block_on(asked).map_err(start_failure)
}

/// The machine and the input directory, which no two living daemons share. Containers of one machine differ by their host
/// names, and machines of one name by their ids.
fn owner(joining: &Joining) -> String {
    let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    format!("{} {host} {}", id.trim(), joining.input.display())
}
