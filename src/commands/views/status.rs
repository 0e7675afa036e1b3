//! `shiftboss status`: how the daemon and its queue are, as a table or as JSON; or what is wrong alone. What only the
//! memory of the daemon knows is asked over its socket.

mod daemons;
mod managed_fetchers;
mod relays;
mod table;
mod trouble;

use serde_json::json;
use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_actors::live::{Live, LiveStatus};
use shiftboss_protocol::model::UnixSeconds;

use crate::cli::ViewArguments;
use crate::commands::printing::print;
use crate::exit::{ExitCode, Failure};
use crate::live::{self, PATIENCE_ON_SERVER, Unknown};
use crate::lock::LockState;
use crate::target::{self, Target};
use crate::text::span;
use crate::up::Up;

/// Shows how the daemon at a target is. With `check` only what is wrong, and ends with 1 then.
pub(super) fn run(arguments: ViewArguments, check: bool) -> Result<(), Failure> {
    let ViewArguments { target, json } = arguments;
    let target = target.find()?;
    let now = SystemClock.now();
    let asked = table::is_on_server(&target).then(|| live::begin(&target, PATIENCE_ON_SERVER));
    let queue = target::ask(&target.database, |reader, now| reader.status(now));
    let answered = match (asked, &queue) {
        (Some(asked), _) => asked.and_then(live::answer),
        (None, Ok(queue)) => live::ask(&target, queue),
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
    match (Up::of(target, &status.queue), unknown) {
        (Up::Down | Up::OthersOnly, _) => {
            let text = match target.daemon {
                LockState::Unknown(_) => format!("no daemon runs on {}", target.database),
                _ => format!("the daemon is {}", table::daemon(target, &status.queue, now)),
            };
            Err(Failure::new(ExitCode::Unavailable, text))
        }
        (Up::Unknown(why), _) => not_known("a daemon runs", why.to_owned()),
        (Up::Running, Some(Unknown::Closed(why))) => not_known("the daemon answers", why),
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
