//! A queue on a PostgreSQL server, for callers that have no runtime yet: `serve` before its actors start, and commands.

use std::fs;
use std::future::Future;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use shiftboss_actors::directory::Directory;
use shiftboss_protocol::backoff::random;
use shiftboss_protocol::url::Url;
use shiftboss_queue::error::{StoreError, StoreResult};
use shiftboss_queue::reader::Reader;
use tokio::runtime::Builder;
use tracing::debug;

use super::mark::Moved;
use super::postgres::{self, Forgotten, Identity, PostgresReader, PostgresStore, Server, pooler};
use super::sqlite::transfer as file;
use super::transfer;
use super::{Joining, Left, Opened, Options, start_failure, unknown};
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
    wait_for(async { postgres::migrate(&pooler::refuse(&server).await?.client).await })
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
    let was_here = joining.input.join(WAS_HERE);
    let known = safe_file::open_to_read(&was_here).and_then(io::read_to_string);
    let was_right = known.is_ok_and(|known| known.trim_end() == url.to_string());
    let Joining { name, takeover, polls, .. } = joining.clone();
    let socket = joining.socket.to_string_lossy().into_owned();
    let identity = Identity { owner: owner(joining), socket, name, takeover, polls };
    let opened = async {
        if !joining.migrate {
            postgres::require_current(&pooler::refuse(&server).await?.client).await?;
        }
        PostgresStore::open(server, identity, options.clone()).await
    };
    let store = wait_for(async {
        opened.await.map_err(|error| match error {
            StoreError::Denied(text) if was_right => StoreError::Busy(text),
            error => error,
        })
    })?;
    // Where it cannot be written, what is denied at the next start is an error of settings.
    if let Err(error) = safe_file::replace(&was_here, |out| writeln!(out, "{url}")) {
        debug!(%error, path = %was_here.display(), "It could not be noted that the server lets this daemon in.");
    }
    let (found, is_paused) = (store.found().clone(), store.is_paused());
    Ok(Opened {
        store: Box::new(store),
        was_clean: found.was_clean,
        is_paused,
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
    transfer::carry(&mut source, &mut postgres::transfer::Arriving::open(&server, daemon)?)
}

/// Moves a queue from a server to a new file, whose lock the caller has.
pub(crate) fn move_out(from: &Url, to: &Path) -> Result<Vec<Moved>, Failure> {
    let server = Server::new(from)?;
    let mut target = file::arriving::Arriving::open(to)?;
    transfer::carry(&mut postgres::transfer::Leaving::open(&server)?, &mut target)
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
