//! What is wrong with a queue and its daemon, a line each: for `shiftboss status` and its `--check`. Pure.

use shiftboss_actors::live::{Live, LiveStatus};
use shiftboss_actors::store::answers::QueueStatus;
use shiftboss_spool::DEAD_LETTER;

use super::live::Unknown;
use crate::commands::text::{ago, counted, quoted, shown};

/// That as many single tasks are kept as may be: `add` is refused, and a spool is stuck.
pub(super) fn no_room(queue: &QueueStatus) -> Option<String> {
    let max = queue.max_single_tasks.filter(|max| queue.single_tasks >= *max)?;
    (queue.policy.as_deref() != Some("classic")).then(|| {
        format!(
            "{} kept, and max_single_tasks is {max}: `add` is refused, and a spool's tasks stay in it, until some are done or cancelled",
            queue.single_tasks
        )
    })
}

/// Entries in the dead-letter queue of the daemon's spool, and what lists them.
pub(super) fn dead_entries(live: &Live) -> Option<String> {
    let spool = live.spool.as_ref().filter(|spool| spool.dead_letters > 0)?;
    let (count, path) = (spool.dead_letters, quoted(&spool.path));
    let entries = if count == 1 { "entry" } else { "entries" };
    Some(format!(
        "{count} {entries} in {DEAD_LETTER}: `shiftboss spool list {path} {DEAD_LETTER}` lists them"
    ))
}

/// That the daemon's spool is not at its path any more.
pub(super) fn lost_spool(live: &Live) -> Option<String> {
    let spool = live.spool.as_ref().filter(|spool| spool.lost)?;
    Some(format!(
        "LOST: {} was removed, moved or replaced, and no task comes from it; put it back, or restart the daemon to use what is there now",
        shown(&spool.path)
    ))
}

/// Everything that is wrong while a daemon runs.
pub(super) fn of(status: &LiveStatus, unknown: Option<&Unknown>, now: i64) -> Vec<String> {
    let LiveStatus { queue, live } = status;
    let mut found = Vec::new();
    if let Some(silent @ Unknown::Silent(_)) = unknown {
        found.push(format!("daemon: {silent}"));
    }
    if let Some(outage) = live.as_ref().and_then(|live| live.health.outage.as_ref()) {
        let (since, error) = (ago(now - outage.since), shown(&outage.error));
        found.push(format!("storage: nothing can be written since {since}: {error}"));
    }
    if let Some(since) = queue.directory_lost_since {
        let reason = queue.directory_lost_reason.as_deref().map(shown).unwrap_or_default();
        found.push(format!("input: the directory is lost since {}: {reason}", ago(now - since)));
    }
    if queue.paused {
        found.push("paused: nothing is handed out until `shiftboss resume`".to_owned());
    }
    if queue.dead_letters > 0 {
        let tasks = counted(queue.dead_letters, "task");
        found.push(format!("dead letters: {tasks} lost too many leases"));
    }
    found.extend(no_room(queue).map(|full| format!("single tasks: {full}")));
    let spool = live.iter().flat_map(|live| [lost_spool(live), dead_entries(live)]);
    found.extend(spool.flatten().map(|trouble| format!("spool: {trouble}")));
    for fetcher in &queue.managed_fetchers {
        if let Some(run) = fetcher.last_run.as_ref().filter(|run| run.exit_code != 0) {
            let (name, message) = (shown(&fetcher.name), shown(&run.message));
            found.push(format!("fetcher {name}: {message} ({})", ago(now - run.ended)));
        }
    }
    found.extend(queue.rejected_files.iter().map(|rejected| {
        let (name, reason) = (shown(&rejected.name), shown(&rejected.reason));
        format!("input: {name} is left out: {reason}")
    }));
    found
}
