//! A queue on a PostgreSQL server, for callers that have no runtime yet: `serve` before its actors start, and commands.

use std::fs;
use std::future::Future;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use shiftboss_actors::directory::Directory;
use shiftboss_protocol::backoff::random;
use shiftboss_protocol::url::Url;
use shiftboss_queue::error::{StoreError, StoreResult};
use shiftboss_queue::reader::Reader;
use tokio::runtime::Builder;
use tracing::debug;

use super::forget::Left;
use super::postgres::{self, PostgresReader, PostgresStore, Server, pooler};
use super::{Joining, Opened, Options, start_failure};
use crate::exit::{ExitCode, Failure};
use crate::safe_file;

/// A file in the input directory, with the URL of the server that a daemon of this directory has used: when that denies the next
/// one its login or a right, it is for a while.
const WAS_HERE: &str = ".shiftboss-server";

/// Whether a URL can be used; asks no server.
pub(crate) fn check(url: &Url) -> Result<(), Failure> {
    Server::new(url).map(|_| ())
}

/// Makes the schema, or brings it up to date.
pub(crate) fn migrate(url: &Url) -> Result<(), Failure> {
    let server = Server::new(url)?;
    wait_for(async { postgres::migrate(&pooler::refuse(&server).await?).await })
}

pub(super) fn forget_daemon(url: &Url, name: &str) -> Result<Option<Left>, Failure> {
    let server = Server::new(url)?;
    wait_for(async { postgres::forget(&server, name).await })
}

pub(super) fn open(url: &Url, options: &Options, joining: &Joining) -> Result<Opened, Failure> {
    let server = Server::new(url)?;
    let was_here = joining.input.join(WAS_HERE);
    let known = safe_file::open_to_read(&was_here).and_then(io::read_to_string);
    let was_right = known.is_ok_and(|known| known.trim_end() == url.to_string());
    let opened = async {
        if !joining.migrate {
            postgres::require_current(&pooler::refuse(&server).await?).await?;
        }
        PostgresStore::open(server, joining.clone(), owner(joining), options.clone()).await
    };
    let store = wait_for(async {
        opened.await.map_err(|error| match error {
            StoreError::Denied(text) if was_right => StoreError::Busy(text),
            error => error,
        })
    })?;
    // If it cannot be written, a refusal at the next start counts as an error of settings.
    if let Err(error) = safe_file::replace(&was_here, |out| writeln!(out, "{url}")) {
        debug!(%error, path = %was_here.display(), "It could not be noted that the server lets this daemon in.");
    }
    Ok(Opened { found: store.found.clone(), store: Box::new(store) })
}

pub(super) fn reader(url: &Url) -> Result<Arc<dyn Reader>, Failure> {
    Ok(Arc::new(PostgresReader::new(Server::new(url)?)))
}

pub(super) fn glance(url: &Url, patience: Duration) -> Result<Arc<dyn Reader>, Failure> {
    Ok(Arc::new(PostgresReader::glance(Server::new(url)?, patience)))
}

fn wait_for<T>(asked: impl Future<Output = StoreResult<T>>) -> Result<T, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Failure::of(ExitCode::Internal))?;
    runtime.block_on(asked).map_err(start_failure)
}

/// The process, the machine and the input directory. Containers of one machine differ by their host names, and machines of one name
/// by their ids; where these are copied, by the directory, and at any rate by a number that each start draws.
fn owner(joining: &Joining) -> String {
    let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let directory = Directory::open(&joining.input).map(|directory| directory.identity());
    let directory = directory.map_or_else(
        |_| String::new(),
        |it| format!("{}-{}-{}", it.device, it.inode, it.born.unwrap_or_default()),
    );
    let process = random();
    format!("{process:016x}@{}/{directory} {host} {}", id.trim(), joining.input.display())
}
