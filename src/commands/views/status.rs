//! `shiftboss status`: how the daemon and its queue are, as a table or as JSON; or what is wrong alone. What only the
//! memory of the daemon knows is asked over its socket.

mod daemons;
mod managed_fetchers;
mod relays;
mod table;
mod trouble;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_actors::live::{Live, LiveStatus};
use shiftboss_actors::store::answers::QueueStatus;
use shiftboss_protocol::client::{Connection, within};
use shiftboss_protocol::model::UnixSeconds;

use crate::cli::ViewArguments;
use crate::client::{Session, no_answer};
use crate::commands::output::print;
use crate::exit::{ExitCode, Failure};
use crate::lock::LockState;
use crate::target::{self, Target};
use crate::text::span;

/// How long the daemon may take. All the rest of the status is there without it.
const PATIENCE: Duration = Duration::from_secs(3);
/// The same while a server may have to be found not to answer, by it and by this command at once.
const PATIENCE_ON_SERVER: Duration = Duration::from_secs(6);

/// Why it is not known what only the daemon knows.
#[derive(Debug)]
enum Unknown {
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

/// Shows how the daemon at a target is. With `check` only what is wrong, and ends with 1 then.
pub(super) fn run(arguments: ViewArguments, check: bool) -> Result<(), Failure> {
    let ViewArguments { target, config, json } = arguments;
    let target = Target::find(target, config.as_deref())?;
    let now = SystemClock.now();
    let asked = table::is_on_server(&target).then(|| begin(&target, PATIENCE_ON_SERVER));
    let queue = target::ask(&target.database, |reader, now| reader.status(now));
    let answered = match (asked, &queue) {
        (Some(asked), _) => asked.and_then(answer),
        (None, Ok(queue)) => ask_daemon(&target, queue),
        (None, Err(_)) => Ok(None),
    };
    let (live, unknown) = match answered {
        Ok(live) => (live, None),
        Err(unknown) => (None, Some(unknown)),
    };
    let queue = match queue {
        Ok(queue) => queue,
        Err(failure) => return Err(without_queue(&target, failure, live, (json, check), now)),
    };
    let status = LiveStatus { queue, live };
    let trouble = trouble::of(&status, unknown.as_ref(), now);
    if check && !json {
        print(trouble.iter().map(|line| format!("{line}\n")).collect::<String>())?;
    } else {
        super::show(&target, &status, json, |status| {
            table::render(&target, status, unknown.as_ref(), now)
        })?;
    }
    if check { verdict(&target, &status, trouble.is_empty(), unknown, now) } else { Ok(()) }
}

/// How `status --check` ends.
fn verdict(
    target: &Target,
    status: &LiveStatus,
    is_well: bool,
    unknown: Option<Unknown>,
    now: UnixSeconds,
) -> Result<(), Failure> {
    if status.queue.moved_to.is_some() {
        // Nor is a daemon to run on it.
        return Err(Failure::silent(ExitCode::Found));
    }
    let code = if is_well { ExitCode::Denied } else { ExitCode::Found };
    let not_known =
        |what, why| Err(Failure::new(code, format!("whether {what} is not known: {why}")));
    match (&target.daemon, unknown) {
        (LockState::Free, _) => {
            let text = format!("the daemon is {}", table::daemon(target, &status.queue, now));
            Err(Failure::new(ExitCode::Unavailable, text))
        }
        (LockState::Unknown(_), _) if table::is_on_server(target) => {
            if daemons::running(&status.queue.daemons) == 0 {
                let text = format!("no daemon runs on {}", target.database);
                return Err(Failure::new(ExitCode::Unavailable, text));
            }
            if is_well { Ok(()) } else { Err(Failure::silent(code)) }
        }
        (LockState::Unknown(why), _) => not_known("a daemon runs", (*why).to_owned()),
        (_, Some(Unknown::Closed(why))) => not_known("the daemon answers", why),
        _ if is_well => Ok(()),
        _ => Err(Failure::silent(code)),
    }
}

/// Why nothing is known of the queue; shows what its daemon knows all the same.
fn without_queue(
    target: &Target,
    failure: Failure,
    live: Option<Live>,
    (json, check): (bool, bool),
    now: i64,
) -> Failure {
    let (LockState::By(daemon), Some(live)) = (&target.daemon, live) else { return failure };
    if json || !check {
        let render = |_: &_| table::render_live(target, &live, now);
        if let Err(unprinted) = super::show(target, &json!({ "live": live }), json, render) {
            return unprinted;
        }
    }
    let Some(outage) = &live.health.outage else { return failure };
    let lasts = span(now.saturating_sub(outage.since));
    let text =
        format!("{failure}; the daemon (pid {}) has been without it for {lasts}", daemon.pid);
    Failure::new(failure.code(), text)
}

/// Asks the daemon of a database in a file, if one runs.
fn ask_daemon(target: &Target, queue: &QueueStatus) -> Result<Option<Live>, Unknown> {
    if let LockState::By(daemon) = &target.daemon
        && queue.policy.as_deref() == Some("classic")
    {
        is_there(&daemon.socket).map_err(unreached)?;
        return Err(Unknown::Withheld("the daemon runs with --classic".to_owned()));
    }
    begin(target, PATIENCE).and_then(answer)
}

fn begin(target: &Target, patience: Duration) -> Result<Option<Session>, Unknown> {
    let LockState::By(daemon) = &target.daemon else {
        return Ok(None);
    };
    Session::begin(&daemon.socket, "status", "STATUS\n", patience).map(Some).map_err(unreached)
}

fn answer(asked: Option<Session>) -> Result<Option<Live>, Unknown> {
    let Some(mut session) = asked else { return Ok(None) };
    let answer = session.answer().map_err(|failure| match failure.code() {
        ExitCode::Denied => Unknown::Withheld("only the daemon's user and root may ask".to_owned()),
        _ => Unknown::Silent(failure.to_string()),
    })?;
    // An older daemon tells nothing of it.
    Ok(serde_json::from_value(answer.object["live"].clone()).unwrap_or(None))
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
