//! What only the memory of the daemon knows, asked over its socket: a part of `shiftboss status`.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use shiftboss_actors::live::Live;
use shiftboss_actors::store::answers::QueueStatus;
use shiftboss_protocol::client::{Connection, Deadline};

use crate::client::{Session, no_answer};
use crate::commands::target::Target;
use crate::exit::{ExitCode, Failure};
use crate::lock::LockState;

/// How long the daemon may take. All the rest of the status is there without it.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why it is not known.
#[derive(Debug)]
pub(super) enum Unknown {
    /// It is not for this user, or the daemon has no such request.
    Withheld(String),
    /// This user may not connect: nobody knows whether the daemon answers.
    Closed(String),
    /// The daemon runs and does not answer.
    Silent(String),
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Withheld(why) | Self::Closed(why) => write!(f, "unknown: {why}"),
            Self::Silent(why) => write!(f, "no answer: {why}"),
        }
    }
}

/// Asks the daemon of the database, if one runs.
pub(super) fn ask(target: &Target, queue: &QueueStatus) -> Result<Option<Live>, Unknown> {
    let LockState::By(daemon) = &target.daemon else {
        return Ok(None);
    };
    if queue.policy.as_deref() == Some("classic") {
        is_there(&daemon.socket).map_err(unreached)?;
        return Err(Unknown::Withheld("the daemon runs with --classic".to_owned()));
    }
    let mut session =
        Session::begin(&daemon.socket, "status", "STATUS\n", PATIENCE).map_err(unreached)?;
    let answer = session.answer().map_err(|failure| match failure.code() {
        ExitCode::Denied => Unknown::Withheld("only the daemon's user and root may ask".to_owned()),
        _ => Unknown::Silent(failure.to_string()),
    })?;
    // An older daemon tells nothing of it.
    Ok(serde_json::from_value(answer.object["live"].clone()).unwrap_or(None))
}

/// Whether anybody closes a connection on which nothing is asked: all that a classic daemon tells.
fn is_there(socket: &Path) -> Result<(), Failure> {
    let deadline = Deadline::NEVER.or_after(PATIENCE);
    let closed = Connection::connect(socket, deadline).and_then(|mut connection| {
        connection.end_sending();
        connection.read(deadline)
    });
    closed.map(drop).map_err(|error| no_answer(socket, PATIENCE, &error))
}

fn unreached(failure: Failure) -> Unknown {
    match failure.code() {
        ExitCode::Denied => Unknown::Closed(failure.to_string()),
        _ => Unknown::Silent(failure.to_string()),
    }
}
