//! What only the memory of a daemon knows (`live` of `status`), asked over its socket. For commands, the page and `top`.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use shiftboss_protocol::answers::QueueStatus;
use shiftboss_protocol::answers::live::Live;
use shiftboss_protocol::client::{Connection, within};
use shiftboss_protocol::verbs::Status;

use crate::client::{Session, no_answer};
use crate::exit::{ExitCode, Failure};
use crate::lock::LockState;
use crate::target::Target;
use crate::view::health::Snapshot;

/// How long the daemon may take. All the rest of the status is there without it.
const PATIENCE: Duration = Duration::from_secs(3);
/// The same while a server may have to be found not to answer, by it and by this command at once.
pub const PATIENCE_ON_SERVER: Duration = Duration::from_secs(6);

/// Why it is not known what only the daemon knows.
#[derive(Debug)]
pub enum Unknown {
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

/// A queue as it was found, and what its daemon says.
pub fn snapshot(target: Target, queue: QueueStatus, at: i64) -> Snapshot {
    let live = ask(&target, &queue);
    Snapshot { at, target, queue, live }
}

/// Asks the daemon of a queue, if one runs.
pub fn ask(target: &Target, queue: &QueueStatus) -> Result<Option<Live>, Unknown> {
    if let LockState::By(daemon) = &target.daemon
        && queue.policy.as_deref() == Some("classic")
    {
        is_there(&daemon.socket).map_err(unreached)?;
        return Err(Unknown::Withheld("the daemon runs with --classic".to_owned()));
    }
    begin(target, PATIENCE).and_then(answer)
}

pub fn begin(target: &Target, patience: Duration) -> Result<Option<Session>, Unknown> {
    let LockState::By(daemon) = &target.daemon else {
        return Ok(None);
    };
    Session::begin(&daemon.socket, &[Status {}], patience).map(Some).map_err(unreached)
}

pub fn answer(asked: Option<Session>) -> Result<Option<Live>, Unknown> {
    let Some(mut session) = asked else { return Ok(None) };
    let answer = session.answer::<Status>().map_err(|failure| match failure.code() {
        ExitCode::Denied => Unknown::Withheld(
            "only the daemon's user, root and its operator group may ask".to_owned(),
        ),
        _ => Unknown::Silent(failure.to_string()),
    })?;
    Ok(answer.object.live)
}

/// Whether anybody closes a connection on which nothing is asked: all that a classic daemon tells.
fn is_there(socket: &Path) -> Result<(), Failure> {
    let deadline = within(PATIENCE);
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
