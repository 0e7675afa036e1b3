//! What only a daemon's memory has (`live` of `status`), requested over its socket. For commands, the web page and
//! `top`.

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
use crate::view::health::{Snapshot, Unknown};

/// How long the daemon may take. The rest of the status does not need it.
const PATIENCE: Duration = Duration::from_secs(3);
/// The same while a server may have to be found not to answer, by it and by this command at once.
pub const PATIENCE_ON_SERVER: Duration = Duration::from_secs(6);

/// A queue as it was found, with its daemon's answer.
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

/// Whether the other end closes a connection without a request: the only sign of life of a classic daemon.
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
