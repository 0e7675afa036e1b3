//! What only the memory of the daemon knows, asked over its socket: a part of `shiftboss status`.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use shiftboss_actors::live::Live;
use shiftboss_protocol::client::{Connection, Deadline};

use crate::client;
use crate::commands::operators::Session;
use crate::exit::{ExitCode, Failure};
use crate::lock::LockState;
use crate::reports::Target;
use crate::stores::sqlite::QueueStatus;

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
            Self::Withheld(why) => write!(f, "unknown: {why}"),
            Self::Closed(why) => write!(f, "unknown: {why}"),
            Self::Silent(why) => write!(f, "no answer: {why}"),
        }
    }
}

/// Asks the daemon of the database, if one runs.
pub(super) fn ask(target: &Target, queue: &QueueStatus) -> Result<Option<Live>, Unknown> {
    let LockState::By(daemon) = &target.daemon else {
        return Ok(None);
    };
    let deadline = client::deadline(PATIENCE).map_err(silent)?;
    if queue.policy.as_deref() == Some("classic") {
        return Err(is_there(&daemon.socket, deadline)
            .err()
            .unwrap_or_else(|| Unknown::Withheld("the daemon runs with --classic".to_owned())));
    }
    let greeted = Session::greet(&daemon.socket, "status", "STATUS\n", PATIENCE, deadline);
    let mut session = greeted.map_err(unreached)?;
    let answer =
        session.answer(PATIENCE, deadline).map_err(|failure| match is_denied(&failure) {
            true => Unknown::Withheld("only the daemon's user and root may ask".to_owned()),
            false => silent(failure),
        })?;
    // An older daemon tells nothing of it.
    Ok(serde_json::from_value(answer.object["live"].clone()).unwrap_or(None))
}

/// Whether anybody closes a connection on which nothing is asked: all that a classic daemon tells.
fn is_there(socket: &Path, deadline: Deadline) -> Result<(), Unknown> {
    let closed = Connection::connect(socket, deadline).and_then(|mut client| {
        client.end_sending();
        client.read(deadline)
    });
    closed.map(drop).map_err(|error| unreached(client::no_answer(socket, PATIENCE, &error)))
}

fn unreached(failure: Failure) -> Unknown {
    match is_denied(&failure) {
        true => Unknown::Closed(failure.to_string()),
        false => silent(failure),
    }
}

fn is_denied(failure: &Failure) -> bool {
    failure.exit_code() == ExitCode::Denied
}

fn silent(failure: Failure) -> Unknown {
    Unknown::Silent(failure.to_string())
}
