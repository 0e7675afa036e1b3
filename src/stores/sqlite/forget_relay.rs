//! Forgets a relay that is gone for good: its lists leave the queue, and its fetchers are free. Called by `shiftboss forget --daemon`,
//! beside the daemon if one runs; it knows none.
//!
//! What is to be done the queue's engine knows; here it is asked in bounded steps. What was begun and failed is ended by the next try.

use std::path::Path;

use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_queue::documents::{DAEMON, RELAY};
use shiftboss_queue::engine::{Engine, Forgetting};
use shiftboss_sqlite::{SqliteRecords, at_once, document};

use super::file::stopped;
use super::transfer::open_ours;
use crate::exit::{ExitCode, Failure};
use crate::stores::{Left, unknown};

pub(in crate::stores) fn forget_relay(path: &Path, name: &str) -> Result<Left, Failure> {
    if matches!(path.try_exists(), Ok(false)) {
        let text = format!(
            "there is no database {}: give the one that `shiftboss serve` was given",
            path.display()
        );
        return Err(Failure::new(ExitCode::Unavailable, text));
    }
    let connection = open_ours(path)?;
    let daemon = document(&connection, &DAEMON).map_err(stopped("read", path))?;
    let records = SqliteRecords::new(connection).map_err(stopped("read", path))?;
    let mut engine = Engine::new(records, daemon.unwrap_or_default().settings());
    let relay = RELAY.of(name).into();
    loop {
        let step = at_once(engine.forget_member(SystemClock.millis(), &relay));
        match step.map_err(stopped("write to", path))? {
            Forgetting::More => {}
            Forgetting::Gone { lists, fetchers } => {
                let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
                return Ok(Left { lists: count(lists), fetchers: count(fetchers), jobs: 0 });
            }
            Forgetting::Unknown => return Err(unknown(name, &path.display())),
            Forgetting::Lives => {
                return Err(Failure::new(
                    ExitCode::AlreadyRunning,
                    format!(
                        "the relay {name} lives, or no daemon has taken it for dead yet: stop it, and let a daemon run for ten seconds"
                    ),
                ));
            }
        }
    }
}
