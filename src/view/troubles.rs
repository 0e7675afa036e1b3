//! All that may be wrong with a queue, its daemons, relays, fetchers and lists: one list, with how bad each is. Pure; called by
//! [`health`](super::health) alone.

use std::cmp::Reverse;

use shiftboss_protocol::answers::live::{BrokerLive, Failing, FailingKind, Live};
use shiftboss_protocol::answers::{DaemonState, FetcherStatus, QueueStatus, RelayStatus};
use shiftboss_protocol::model::TASKS_FETCHER;

use super::health::{Severity, Snapshot, Trouble, Unknown, Up};
use super::machines::failed_run;
use super::status::{forgetting, paused, summary};
use crate::hint::hint;
use crate::text::{ago, counted, shown, span};

/// A list that begins so much later than now was named by a clock that was ahead, not by one of two that differ a little.
const AHEAD_SECONDS: i64 = 60;
/// Up to so many keys it does not matter how many of them are unlisted.
const UNLISTED_FLOOR: i64 = 1_000;
/// The end of the year 9999: a larger number of a list is no time.
const TIME_MAX: i64 = 253_402_300_799;

fn error(subject: impl Into<String>, text: String) -> Trouble {
    Trouble { severity: Severity::Error, subject: subject.into(), text, stops_all: false }
}

fn warning(subject: impl Into<String>, text: String) -> Trouble {
    Trouble { severity: Severity::Warning, ..error(subject, text) }
}

pub(super) fn of(snapshot: &Snapshot) -> Vec<Trouble> {
    let Snapshot { queue, at, .. } = snapshot;
    let (now, live) = (*at, snapshot.live());
    let mut found: Vec<Trouble> = stops(snapshot)
        .into_iter()
        .flatten()
        .map(|trouble| Trouble { stops_all: true, ..trouble })
        .collect();
    found.extend(daemons(snapshot));
    found.extend(no_room(queue));
    found.extend(many_unlisted(queue));
    let broker = live.and_then(|live| live.broker.as_ref());
    found.extend(broker.into_iter().flat_map(self::broker));
    found.extend(queue.relays.iter().flat_map(|relay| self::relay(relay, now)));
    found.extend(queue.managed_fetchers.iter().filter_map(|fetcher| {
        let run = failed_run(fetcher)?;
        let ago = ago(now.saturating_sub(run.ended));
        Some(error(
            format!("fetcher {}", shown(&fetcher.name)),
            format!("{} ({ago})", shown(&run.message)),
        ))
    }));
    found.extend(queue.fetchers.iter().filter_map(|fetcher| ahead(fetcher, now)));
    found.extend(queue.rejected_files.iter().map(|file| {
        let daemon = file.daemon.as_ref().filter(|_| queue.daemons.len() > 1);
        let at = daemon.map_or_else(String::new, |name| format!(" at {}", shown(name)));
        let (name, reason) = (shown(&file.name), shown(&file.reason));
        let ago = ago(now.saturating_sub(file.since));
        error("rejected", format!("{name}{at}: {reason} ({ago})"))
    }));
    found.extend(ended(snapshot));
    found.sort_by_key(|trouble| Reverse(trouble.severity));
    found
}

/// What keeps all of the queue from going on, the worst first.
fn stops(snapshot: &Snapshot) -> [Option<Trouble>; 7] {
    let Snapshot { at, queue, live: asked, .. } = snapshot;
    let since = |since: i64| ago(at.saturating_sub(since));
    let live = snapshot.live();
    let moved = queue.moved_to.as_ref().map(|to| {
        let to = shown(to);
        let text =
            format!("the queue is in {to} now: use that; no daemon starts on what is left here");
        error("moved", text)
    });
    let is_down = moved.is_none() && snapshot.up().is_down();
    let down =
        is_down.then(|| error("stopped", "no daemon runs, and nothing is handed out".to_owned()));
    let silent = asked.as_ref().err().filter(|unknown| matches!(unknown, Unknown::Silent(_)));
    let outage = live.and_then(|live| live.health.outage.as_ref()).map(|outage| {
        let why = shown(&outage.error);
        error("storage", format!("nothing can be written since {}: {why}", since(outage.since)))
    });
    let lost = queue.directory_lost_since.map(|lost| {
        let why = queue.directory_lost_reason.as_deref().map_or("it is gone".to_owned(), shown);
        error("input", format!("the directory is lost since {}: {why}", since(lost)))
    });
    [
        moved,
        down,
        silent.map(|silent| error("daemon", silent.to_string())),
        outage,
        lost,
        draining(queue, live),
        queue.paused.then(|| warning("paused", paused())),
    ]
}

fn draining(queue: &QueueStatus, live: Option<&Live>) -> Option<Trouble> {
    let states = || queue.daemons.iter().map(|daemon| daemon.state);
    let all_drain = states().any(|state| state == DaemonState::Draining)
        && states().all(|state| state != DaemonState::Running);
    let jobs = live.map_or(queue.rows.in_flight, |live| {
        i64::try_from(live.health.in_flight).unwrap_or(i64::MAX)
    });
    (all_drain || live.is_some_and(|live| live.health.draining)).then(|| {
        let jobs = counted(jobs, "job");
        warning(
            "draining",
            format!("nothing is handed out, and the daemon stops at the end of {jobs} in flight"),
        )
    })
}

/// Daemons of several that are not there.
fn daemons(snapshot: &Snapshot) -> impl Iterator<Item = Trouble> {
    let Snapshot { at, queue, .. } = snapshot;
    let others = (snapshot.up() == Up::OthersOnly).then(|| {
        error("daemon", format!("not running at this socket; {}", summary(&queue.daemons)))
    });
    let silent = queue.daemons.iter().filter(|it| it.state == DaemonState::Silent).map(move |it| {
        let (name, since) = (shown(&it.name), span(at.saturating_sub(it.since)));
        error("daemon", format!("{name} has not been heard of for {since}, and was not stopped"))
    });
    others.into_iter().chain(silent)
}

/// As many single tasks are kept as may be.
fn no_room(queue: &QueueStatus) -> Option<Trouble> {
    let max = queue.max_single_tasks.filter(|max| queue.single_tasks >= *max)?;
    (queue.policy.as_deref() != Some("classic")).then(|| {
        let text = format!(
            "{} kept, and max_single_tasks is {max}: `add` is refused until some are done or cancelled",
            queue.single_tasks
        );
        error("single tasks", text)
    })
}

/// Most keys of a long queue are there for their last runs alone: they cost room in the database, and a backup's time. The keys of a
/// short one cost nothing.
fn many_unlisted(queue: &QueueStatus) -> Option<Trouble> {
    let (unlisted, all) = (queue.unlisted_keys, queue.keys);
    (all > UNLISTED_FLOOR && unlisted > all / 2).then(|| {
        let forget = hint("forget --prefix '' --dry-run");
        let text = format!(
            "nothing lists {unlisted} of {all} keys: [retention] in the configuration file forgets them in time, {forget} says which can go at once"
        );
        warning("unlisted keys", text)
    })
}

fn broker(broker: &BrokerLive) -> impl Iterator<Item = Trouble> {
    let cut = (!broker.connected).then(|| {
        error("broker", format!("{} cannot be used, and relays wait", shown(&broker.url)))
    });
    let refused = broker.dead_letters.filter(|count| *count > 0).map(|count| {
        let messages = counted(count, "message");
        let text =
            format!("refused {messages}: `shiftboss broker dead-letters` shows what, and why");
        warning("broker", text)
    });
    cut.into_iter().chain(refused)
}

fn relay(relay: &RelayStatus, now: i64) -> impl Iterator<Item = Trouble> {
    let subject = format!("relay {}", shown(&relay.name));
    let silent = relay.silent.then(|| {
        let forget = forgetting(&relay.name);
        format!("it is silent, and was not stopped: start it again, or forget it ({forget})")
    });
    let lost = relay.directory_lost_since.filter(|_| !relay.gone).map(|since| {
        let why = relay.directory_lost_reason.as_deref().map(shown).unwrap_or_default();
        format!("its input directory is lost since {}: {why}", ago(now.saturating_sub(since)))
    });
    let rejected = (relay.rejected_files > 0 && !relay.gone)
        .then(|| format!("{} left out; its log says why", counted(relay.rejected_files, "file")));
    [silent, lost, rejected].into_iter().flatten().map(move |text| error(subject.clone(), text))
}

/// A fetcher's newest list was named by a clock that was ahead: those with the right time are older, and not used.
fn ahead(fetcher: &FetcherStatus, now: i64) -> Option<Trouble> {
    let FetcherStatus { name, run, complete, .. } = fetcher;
    let is_ahead = (now.saturating_add(AHEAD_SECONDS)..=TIME_MAX).contains(run);
    (is_ahead && name != TASKS_FETCHER).then(|| {
        let part = if *complete { "" } else { ".part" };
        let text = format!(
            "{} begins in {}, and no list that begins before it counts: remove it, or give it the right time",
            shown(&format!("{name}.{run}.txt{part}")),
            span(run.saturating_sub(now))
        );
        error(format!("fetcher {}", shown(name)), text)
    })
}

/// What ended and does not go on by itself; and what nobody read.
fn ended(snapshot: &Snapshot) -> impl Iterator<Item = Trouble> {
    let Snapshot { queue, .. } = snapshot;
    let dead = (queue.dead_letters > 0).then(|| {
        let (tasks, how) =
            (counted(queue.dead_letters, "task"), hint("tasks --status dead_letter"));
        warning("dead letters", format!("{tasks} lost too many leases: {how} lists them"))
    });
    let failed = (queue.single_tasks_ended > 0).then(|| {
        let count = counted(queue.single_tasks_ended, "single task");
        let (list, retry) = (hint("tasks --fetcher @tasks"), hint("retry KEY"));
        let cancel = hint("cancel KEY");
        warning("not done", format!("{count}, kept until {retry} or {cancel}: {list} lists them"))
    });
    let dropped = snapshot.live().map_or(0, |live| live.dropped_log_lines);
    let dropped = (dropped > 0).then(|| {
        let lines = counted(dropped, "line");
        warning(
            "log",
            format!("{lines} dropped: nobody read the daemon's standard error for a time"),
        )
    });
    let failing = snapshot.live().map_or(&[][..], |live| &live.failing);
    let failing = failing.iter().map(|Failing { kind, name, jobs }| {
        let kind = match kind {
            FailingKind::Worker => "worker",
            FailingKind::Fetcher => "jobs of fetcher",
        };
        let how = hint("log --failed");
        warning(
            format!("{kind} {}", shown(name)),
            format!("the last {jobs} jobs failed: {how} lists them"),
        )
    });
    dead.into_iter().chain(failed).chain(failing).chain(dropped)
}
