//! Forgets a daemon of a queue on a server, or a relay of any queue, that is gone for good: its lists leave the queue,
//! and its fetchers are free. Called by `shiftboss forget --daemon`, beside the daemon if one runs, and without
//! contacting it.
//!
//! The queue's engine does the work; this module calls it in bounded steps. If it fails in between, the next try
//! finishes it.

use std::path::Path;
use std::sync::Arc;

use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_queue::documents::{DAEMON, RELAY};
use shiftboss_queue::engine::{Engine, Forgetting};
use shiftboss_queue::error::{StoreError, StoreResult};
use shiftboss_queue::record::Millis;
use shiftboss_queue::records::Records;
use shiftboss_sqlite::{SqliteRecords, at_once, document};

use super::sqlite::{stopped, transfer};
use super::{Database, server, start_failure};
use crate::exit::{ExitCode, Failure};
use crate::hint::hint;

/// What a forgotten daemon has left.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// Lists that leave the queue.
    pub(crate) lists: u64,
    /// Fetchers that another daemon may have.
    pub(crate) fetchers: u64,
    /// Leased jobs that wait again, because no other daemon was alive.
    pub(crate) jobs: u64,
}

pub(crate) fn forget_daemon(database: &Database, name: &str) -> Result<Left, Failure> {
    let left = match database {
        Database::File(path) => relay_of_file(path, name)?,
        Database::Server(url) => server::forget_daemon(url, name)?,
    };
    left.ok_or_else(|| {
        let text = format!(
            "the queue in {database} has no daemon and no relay {name}: {} shows those that it has",
            hint("status")
        );
        Failure::new(ExitCode::BadData, text)
    })
}

fn relay_of_file(path: &Path, name: &str) -> Result<Option<Left>, Failure> {
    if matches!(path.try_exists(), Ok(false)) {
        let text = format!(
            "there is no database {}: give the one that `shiftboss serve` was given",
            path.display()
        );
        return Err(Failure::new(ExitCode::Unavailable, text));
    }
    let connection = transfer::open_ours(path)?;
    let daemon = document(&connection, &DAEMON).map_err(stopped("read", path))?;
    let records = SqliteRecords::new(connection).map_err(stopped("read", path))?;
    let mut engine = Engine::new(records, daemon.unwrap_or_default().settings());
    let lives = || {
        format!(
            "the relay {name} lives, or no daemon has taken it for dead yet: stop it, and let a daemon run for ten seconds"
        )
    };
    let (now, relay) = (SystemClock.millis(), RELAY.of(name).into());
    at_once(forget_member(&mut engine, now, &relay, lives)).map_err(|error| match error {
        StoreError::Rejected(_) => start_failure(error),
        error => stopped("write to", path)(error),
    })
}

/// `None`: there is no member of this name. If it is alive, fails with `lives`.
pub(super) async fn forget_member(
    engine: &mut Engine<impl Records>,
    now: Millis,
    member: &Arc<str>,
    lives: impl FnOnce() -> String,
) -> StoreResult<Option<Left>> {
    loop {
        match engine.forget_member(now, member).await? {
            Forgetting::More => {}
            Forgetting::Unknown => return Ok(None),
            Forgetting::Lives => return Err(StoreError::Rejected(lives())),
            Forgetting::Gone { lists, fetchers } => {
                return Ok(Some(Left { lists, fetchers, jobs: 0 }));
            }
        }
    }
}
