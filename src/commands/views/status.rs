//! `shiftboss status`: the state of the daemon and its queue, as text or as JSON; or only what is wrong. What only the
//! daemon's memory has is requested over its socket.

use serde_json::json;
use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_protocol::answers::live::Live;

use crate::cli::ViewArguments;
use crate::commands::printing::print;
use crate::exit::{ExitCode, Failure};
use crate::live::{self, PATIENCE_ON_SERVER};
use crate::lock::LockState;
use crate::stores::Database;
use crate::target::{self, Target};
use crate::text::span;
use crate::view::health::{Object, Severity, Snapshot, Unknown, Up};
use crate::view::status;

/// Shows the state of the daemon at a target. With `check` only what is wrong; then exits with 1 if any of it is an
/// error.
pub(super) fn run(arguments: ViewArguments, check: bool) -> Result<(), Failure> {
    let ViewArguments { target, json } = arguments;
    let target = target.find()?;
    let at = SystemClock.now();
    let is_on_server = matches!(target.database, Database::Server(_));
    let asked = is_on_server.then(|| live::begin(&target, PATIENCE_ON_SERVER));
    let queue = target::ask(&target.database, |reader, now| reader.status(now));
    let live = match (asked, &queue) {
        (Some(asked), _) => asked.and_then(live::answer),
        (None, Ok(queue)) => live::ask(&target, queue),
        (None, Err(_)) => Ok(None),
    };
    let queue = match queue {
        Ok(queue) => queue,
        Err(failure) => return Err(without_queue(&target, failure, live, (json, check), at)),
    };
    let snapshot = Snapshot { at, target, queue, live };
    let text = match (json, check) {
        (true, _) => snapshot.target.json(&Object::from(&snapshot))?,
        (false, false) => status::render(&snapshot),
        (false, true) => {
            snapshot.health().troubles.iter().map(|trouble| format!("{trouble}\n")).collect()
        }
    };
    print(text)?;
    if check { verdict(&snapshot) } else { Ok(()) }
}

fn verdict(snapshot: &Snapshot) -> Result<(), Failure> {
    let Snapshot { target, queue, .. } = snapshot;
    let is_well = snapshot.health().count(Severity::Error) == 0;
    let code = if is_well { ExitCode::Denied } else { ExitCode::Found };
    let not_known =
        |what, why| Err(Failure::new(code, format!("whether {what} is not known: {why}")));
    match (snapshot.up(), &snapshot.live) {
        // Nor is a daemon to run on it.
        _ if queue.moved_to.is_some() => Err(Failure::silent(ExitCode::Found)),
        (Up::Down | Up::OthersOnly, _) => {
            let text = match target.daemon {
                LockState::Unknown(_) => format!("no daemon runs on {}", target.database),
                _ => format!("the daemon is {}", status::daemon(target, queue, snapshot.at)),
            };
            Err(Failure::new(ExitCode::Unavailable, text))
        }
        (Up::Unknown(why), _) => not_known("a daemon runs", why),
        (Up::Running, Err(Unknown::Closed(why))) => not_known("the daemon answers", why),
        _ if is_well => Ok(()),
        _ => Err(Failure::silent(code)),
    }
}

/// Why nothing is known of the queue; shows what its daemon knows all the same.
fn without_queue(
    target: &Target,
    failure: Failure,
    live: Result<Option<Live>, Unknown>,
    (json, check): (bool, bool),
    now: i64,
) -> Failure {
    let (LockState::By(daemon), Ok(Some(live))) = (&target.daemon, live) else { return failure };
    let text = match (json, check) {
        (true, _) => target.json(&json!({ "live": live })),
        (false, false) => Ok(status::render_live(target, &live, now)),
        (false, true) => Ok(String::new()),
    };
    if let Err(unprinted) = text.and_then(print) {
        return unprinted;
    }
    let Some(outage) = &live.health.outage else { return failure };
    let lasts = span(now.saturating_sub(outage.since));
    let text =
        format!("{failure}; the daemon (pid {}) has been without it for {lasts}", daemon.pid);
    Failure::new(failure.code(), text)
}
