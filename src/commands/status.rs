//! `shiftboss status`: how the daemon and its queue are, as a table or as JSON; or what is wrong alone.

mod live;
mod managed_fetchers;
mod table;
mod trouble;

use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_actors::live::LiveStatus;
use shiftboss_actors::store::Status;

use live::Unknown;

use super::output::print;
use super::target::{self, Target};
use crate::cli::ViewArguments;
use crate::exit::{ExitCode, Failure};
use crate::lock::LockState;

/// Shows how the daemon at a target is. With `check` only what is wrong, and ends with 1 then.
pub fn run(arguments: &ViewArguments, check: bool) -> Result<(), Failure> {
    let target = target::find(arguments.target.clone(), arguments.config.as_deref())?;
    let now = SystemClock.now();
    let queue = target::ask(&target.database, Status)?;
    let (live, unknown) = match live::ask(&target, &queue) {
        Ok(live) => (live, None),
        Err(unknown) => (None, Some(unknown)),
    };
    let status = LiveStatus { queue, live };
    let trouble = trouble::of(&status, unknown.as_ref(), now);
    if !check || arguments.json {
        target::show(&target, &status, arguments.json, |status| {
            table::render(&target, status, unknown.as_ref(), now)
        })?;
    } else {
        print(trouble.iter().map(|line| format!("{line}\n")).collect::<String>())?;
    }
    if check { checked(&target, &status, unknown, &trouble, now) } else { Ok(()) }
}

fn checked(
    target: &Target,
    status: &LiveStatus,
    unknown: Option<Unknown>,
    trouble: &[String],
    now: i64,
) -> Result<(), Failure> {
    if target.daemon == LockState::Free {
        let text = format!("the daemon is {}", table::daemon(target, &status.queue, now));
        return Err(Failure::new(ExitCode::Unavailable, text));
    }
    let code = if trouble.is_empty() { ExitCode::Denied } else { ExitCode::Found };
    if let LockState::Unknown(why) = target.daemon {
        return Err(Failure::new(code, format!("whether a daemon runs is not known: {why}")));
    }
    match unknown {
        Some(Unknown::Closed(why)) => {
            Err(Failure::new(code, format!("whether the daemon answers is not known: {why}")))
        }
        _ if trouble.is_empty() => Ok(()),
        _ => Err(Failure::silent(code)),
    }
}
