//! What is wrong with a queue and its daemon, a line each: for `shiftboss status` and its `--check`. Pure.

use shiftboss_actors::live::{Live, LiveStatus};
use shiftboss_protocol::model::TASKS_FETCHER;
use shiftboss_queue::answers::{FetcherStatus, QueueStatus, RejectedFile};
use shiftboss_spool::DEAD_LETTER;

use super::{daemons, relays};
use crate::live::Unknown;
use crate::standing::fetchers::failed_run;
use crate::target::line;
use crate::text::{ago, counted, quoted, shown, span};

/// A list that begins so much later than now was named by a clock that was ahead, not by one of two that differ a little.
const AHEAD_SECONDS: i64 = 60;
/// The end of the year 9999: a larger number of a list is no time.
const TIME_MAX: i64 = 253_402_300_799;

/// Of a queue that is paused, behind a word that says so.
pub(super) fn paused() -> String {
    format!("nothing is handed out until {}", line("resume"))
}

/// That the queue is elsewhere now.
pub(super) fn moved(queue: &QueueStatus) -> Option<String> {
    let to = shown(queue.moved_to.as_ref()?);
    Some(format!("the queue is in {to} now: use that; no daemon starts on what is left here"))
}

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

/// A file that a daemon rejected, and which one if there are several.
pub(super) fn rejected(file: &RejectedFile, queue: &QueueStatus) -> String {
    let daemon = file.daemon.as_ref().filter(|_| queue.daemons.len() > 1);
    shown(&file.name) + &daemon.map_or_else(String::new, |name| format!(" at {}", shown(name)))
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

/// That nothing can be written at present, said in those words.
pub(super) fn outage(live: Option<&Live>, what: &str, now: i64) -> Option<String> {
    let outage = live?.health.outage.as_ref()?;
    Some(format!(
        "{what} since {}: {}",
        ago(now.saturating_sub(outage.since)),
        shown(&outage.error)
    ))
}

/// That the input directory is lost, said in those words.
pub(super) fn lost_directory(queue: &QueueStatus, what: &str, now: i64) -> Option<String> {
    let since = ago(now.saturating_sub(queue.directory_lost_since?));
    let reason = queue.directory_lost_reason.as_deref().map(shown).unwrap_or_default();
    Some(format!("{what} since {since}: {reason}"))
}

/// Everything that is wrong while a daemon runs.
pub(super) fn of(status: &LiveStatus, unknown: Option<&Unknown>, now: i64) -> Vec<String> {
    let LiveStatus { queue, live } = status;
    let live = live.as_ref();
    let silent = unknown.filter(|unknown| matches!(unknown, Unknown::Silent(_)));
    let dead_letters = (queue.dead_letters > 0)
        .then(|| format!("{} lost too many leases", counted(queue.dead_letters, "task")));
    let found = [
        ("daemon", silent.map(ToString::to_string)),
        ("moved", moved(queue)),
        ("storage", outage(live, "nothing can be written", now)),
        ("input", lost_directory(queue, "the directory is lost", now)),
        ("paused", queue.paused.then(paused)),
        ("dead letters", dead_letters),
        ("single tasks", no_room(queue)),
        ("spool", live.and_then(lost_spool)),
        ("spool", live.and_then(dead_entries)),
    ];
    let found = found.into_iter().filter_map(|(of, what)| Some(format!("{of}: {}", what?)));
    let silent = daemons::silent(&queue.daemons, now).map(|what| format!("daemon: {what}"));
    let fetchers = queue.managed_fetchers.iter().filter_map(|fetcher| {
        let run = failed_run(fetcher)?;
        let (name, message) = (shown(&fetcher.name), shown(&run.message));
        Some(format!("fetcher {name}: {message} ({})", ago(now.saturating_sub(run.ended))))
    });
    let rejected = queue.rejected_files.iter().map(|rejected| {
        let (name, reason) = (self::rejected(rejected, queue), shown(&rejected.reason));
        format!("input: {name} is left out: {reason}")
    });
    let relays = relays::trouble(queue, live, now);
    let ahead = queue.fetchers.iter().filter_map(|fetcher| ahead(fetcher, now));
    found.chain(silent).chain(relays).chain(fetchers).chain(ahead).chain(rejected).collect()
}

/// That a fetcher's newest list was named by a clock that was ahead: those with the right time are older, and not used.
fn ahead(fetcher: &FetcherStatus, now: i64) -> Option<String> {
    let FetcherStatus { name, run, complete, .. } = fetcher;
    let is_ahead = (now.saturating_add(AHEAD_SECONDS)..=TIME_MAX).contains(run);
    (is_ahead && name != TASKS_FETCHER).then(|| {
        let part = if *complete { "" } else { ".part" };
        format!(
            "fetcher {}: {} begins in {}, and no list that begins before it counts: remove it, or give it the right time",
            shown(name),
            shown(&format!("{name}.{run}.txt{part}")),
            span(run.saturating_sub(now))
        )
    })
}
