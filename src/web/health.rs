//! Whether the daemon is well: what `/healthz` answers.

use shiftboss_protocol::client::{Connection, within};
use shiftboss_protocol::verbs::Health;

use crate::client;
use crate::exit::{ExitCode, Failure};
use crate::lock::LockState;
use crate::metrics::{CLASSIC, PATIENCE};
use crate::target::{self, Target};
use crate::up::Up;

/// Whether the daemon can reach its database: it is asked within [`PATIENCE`]. Of one under `--classic`, which answers no
/// question, that it takes a connection.
///
/// # Errors
/// Why it is not well.
pub(super) fn health(target: &Target) -> Result<(), Failure> {
    let daemon = match &target.daemon {
        LockState::By(daemon) => daemon,
        LockState::Free | LockState::Unknown(_) => return runs_elsewhere(target),
    };
    let asked = client::ask(&daemon.socket, Health {}, PATIENCE);
    let Err(failure) = asked else { return Ok(()) };
    let queue = target::ask(&target.database, |reader, now| reader.status(now));
    match queue {
        Ok(queue) if queue.policy.as_deref() == Some(CLASSIC) => {
            Connection::connect(&daemon.socket, within(PATIENCE)).map(drop).map_err(|_| failure)
        }
        _ => Err(failure),
    }
}

/// Daemons of a queue on a server that cannot be asked here write into it that they live.
fn runs_elsewhere(target: &Target) -> Result<(), Failure> {
    let queue = target::ask(&target.database, |reader, now| reader.status(now))?;
    let why = match Up::of(target, &queue) {
        Up::Running => return Ok(()),
        Up::Down => format!("no daemon runs on {}", target.database),
        Up::OthersOnly => "the daemon of this socket does not run, others do".to_owned(),
        Up::Unknown(why) => why.to_owned(),
    };
    Err(Failure::new(ExitCode::Unavailable, why))
}
