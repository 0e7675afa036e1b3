//! How a queue and its daemon are, as text for people: what `shiftboss status` prints, and the sentences of it that `top` has in its
//! head. Pure: from what was found to lines.

use shiftboss_protocol::answers::live::{BrokerLive, Live};
use shiftboss_protocol::answers::{
    DaemonState, DaemonStatus, Done, FetcherStatus, GroupCount, GroupState, HOLDERS_MAX,
    QueueStatus, RelayStatus, Waiting,
};
use shiftboss_queue::attempt::CANCELLED_CODE;
use shiftboss_queue::sums::total;

use super::health::{Snapshot, Trouble, running};
use super::key::held_by_rule;
use super::machines;
use super::table::capitalized;
use crate::hint::hint;
use crate::lock::LockState;
use crate::stores::Database;
use crate::stores::outcome_words::of_code;
use crate::target::Target;
use crate::text::{CELL_WIDTH_MAX, ago, counted, cut, line, quoted, shown, span};

/// A daemon or a relay that is gone for so many seconds may be so for good.
const LONG_GONE_SECONDS: i64 = 3_600;
/// So many rules that hold keys are shown.
const RULES_SHOWN: usize = 3;

/// All of it: facts, what is wrong, and tables of those who take part.
pub fn render(snapshot: &Snapshot) -> String {
    let Snapshot { at, queue, live: asked, .. } = snapshot;
    let live = snapshot.live();
    let broker = live.and_then(|live| live.broker.as_ref());
    let mut out = facts(snapshot);
    out += &lines([("Live", asked.as_ref().err().map(ToString::to_string))]);
    out += &broker.map_or_else(String::new, self::broker);
    out += &snapshot.health().troubles.iter().map(trouble).collect::<String>();
    out += &machines::daemons(&queue.daemons, *at).render();
    out += &gone(queue, *at);
    out += &machines::relays(&queue.relays, broker, *at).render();
    out += &gone_relays(queue, *at);
    let up = snapshot.up();
    out += &match queue.fetchers.is_empty() {
        true => "No fetcher has a run.\n".to_owned(),
        false => machines::fetchers(queue, None, &[], up, *at).render(),
    };
    out += &machines::runs(&queue.managed_fetchers, up, *at).render();
    out + &workers(queue, live, *at)
}

/// What a daemon knows while its queue cannot be looked at.
pub fn render_live(target: &Target, live: &Live, now: i64) -> String {
    let queue = QueueStatus::default();
    let outage = live.health.outage.as_ref().map(|outage| {
        let since = ago(now.saturating_sub(outage.since));
        format!("nothing can be written since {since}: {}", shown(&outage.error))
    });
    let head = [
        ("Database", Some(shown(&target.database.to_string()))),
        ("Daemon", Some(daemon(target, &queue, now))),
        ("Storage", outage),
    ];
    lines(head) + &workers(&queue, Some(live), now)
}

fn facts(snapshot: &Snapshot) -> String {
    let Snapshot { at, target, queue, .. } = snapshot;
    let keys = |count: i64, what: &str, command: &str, does: &str| {
        (count > 0).then(|| format!("{}: {} {does}", counted(count, what), hint(command)))
    };
    let socket = match &target.daemon {
        LockState::By(holder) => Some(shown(&holder.socket.display().to_string())),
        _ => None,
    };
    lines([
        ("Database", Some(shown(&target.database.to_string()))),
        ("Daemon", Some(daemon(target, queue, *at))),
        ("Socket", socket),
        ("Rules", Some(rules(target, queue))),
        ("Rows", Some(rows(queue))),
        ("Longest waiting", Some(oldest(queue, *at))),
        ("Last hour", Some(last_hour(queue))),
        ("Failed", keys(queue.failed, "task", "tasks --status failed", "lists them")),
        ("Delayed", keys(queue.delayed, "task", "tasks --status delayed", "lists them")),
        ("Held", keys(queue.held, "key", "tasks --held", "lists them")),
        ("Hold rules", hold_rules(queue, *at)),
        ("Groups", groups(queue)),
        ("Backed off", keys(queue.backed_off, "key that fails", "tasks --held", "lists them")),
        ("Unlisted", unlisted(queue)),
        ("Bumped", keys(queue.bumped, "key", "tasks --next", "shows when their turn is")),
    ])
}

pub fn closed_groups(queue: &QueueStatus) -> i64 {
    total(queue.groups.iter().filter(|it| it.state != GroupState::Open).map(|it| it.groups))
}

/// How many groups are closed, how many keys wait for that, and how far keys are sorted into other groups.
fn groups(queue: &QueueStatus) -> Option<String> {
    let is_closed = |it: &&GroupCount| it.state != GroupState::Open;
    let word = |it: &GroupCount| format!("{} {}", it.groups, it.state.word());
    let all: Vec<String> = queue.groups.iter().map(word).collect();
    let waiting = total(queue.groups.iter().filter(is_closed).map(|it| it.waiting));
    let waiting = (waiting > 0).then(|| {
        format!("; {} for closed ones: {} lists them", keys_wait(waiting), hint("groups"))
    });
    let sorted = queue
        .groups_carried
        .map(|some| format!("{some} of {} keys are sorted into others", queue.keys));
    let all = (!all.is_empty()).then(|| all.join(", ") + &waiting.unwrap_or_default());
    let said: Vec<String> = all.into_iter().chain(sorted).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// What is held otherwise than key by key.
pub fn held_as_whole(queue: &QueueStatus, now: i64) -> String {
    let held = queue.groups.iter().find(|it| it.state == GroupState::Held && it.groups > 0);
    let groups =
        held.map(|it| format!("{}: {} lists them", counted(it.groups, "group"), hint("groups")));
    lines([("Hold rules", hold_rules(queue, now)), ("Held groups", groups)])
}

fn keys_wait(keys: i64) -> String {
    if keys == 1 { "1 key waits".to_owned() } else { format!("{keys} keys wait") }
}

/// The first rules that hold many keys, how many more there are, and how far places have followed them.
fn hold_rules(queue: &QueueStatus, now: i64) -> Option<String> {
    let (rules, carried) = (&queue.hold_rules, queue.hold_rules_carried);
    let shown: Vec<_> = rules.iter().take(RULES_SHOWN).map(|it| held_by_rule(it, now)).collect();
    let more = rules.len() - shown.len();
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let carried = carried.map(|some| format!("; {some} of {} keys have followed", queue.keys));
    let carried = carried.unwrap_or_default();
    let is_any = !rules.is_empty() || !carried.is_empty();
    is_any.then(|| format!("{}: {}{more}{carried}", rules.len(), shown.join("; ")))
}

/// Keys that are kept for their last runs alone, and those that were not kept so long.
fn unlisted(queue: &QueueStatus) -> Option<String> {
    let forgotten = match queue.forgotten_keys {
        0 => String::new(),
        some => format!("; {some} forgotten so far"),
    };
    let (some, all) = (queue.unlisted_keys, counted(queue.keys, "key"));
    (some > 0 || !forgotten.is_empty()).then(|| format!("{some} of {all}{forgotten}"))
}

fn lines<const N: usize>(lines: [(&str, Option<String>); N]) -> String {
    lines.into_iter().filter_map(|(name, value)| Some(line(name, &value?))).collect()
}

fn trouble(trouble: &Trouble) -> String {
    line(&capitalized(&trouble.subject), &trouble.text)
}

pub fn paused() -> String {
    format!("nothing is handed out until {}", hint("resume"))
}

/// Since the last run of the key that ran least recently.
pub fn longest_wait(queue: &QueueStatus, now: i64) -> String {
    queue.waits_longest().map_or("-".to_owned(), |it| {
        it.last_started.map_or("never ran".to_owned(), |at| span(now.saturating_sub(at)))
    })
}

pub fn daemon(target: &Target, queue: &QueueStatus, now: i64) -> String {
    let is_on_server = matches!(target.database, Database::Server(_));
    match &target.daemon {
        LockState::By(holder) => {
            let started = i64::try_from(holder.started).unwrap_or(now);
            let started = ago(now.saturating_sub(started));
            format!("running, pid {}, started {started}", holder.pid)
        }
        LockState::Unknown(_) if is_on_server => summary(&queue.daemons),
        LockState::Unknown(why) => format!("whether one runs is not known: {why}"),
        LockState::Free if is_on_server => {
            format!("not running at this socket; {}", summary(&queue.daemons))
        }
        LockState::Free => queue.not_stopped.map_or("not running".to_owned(), |died| {
            let wrote = |last| format!(", last wrote {}", ago(now.saturating_sub(last)));
            let wrote = died.last_write.map_or(String::new(), wrote);
            format!(
                "not running: pid {} ended without a clean stop{wrote}, started {}",
                died.pid,
                ago(now.saturating_sub(died.started))
            )
        }),
    }
}

pub(super) fn summary(daemons: &[DaemonStatus]) -> String {
    format!("{} of {} running", running(daemons), daemons.len())
}

/// As a daemon keeps the queue, or kept it last.
pub fn rules(target: &Target, queue: &QueueStatus) -> String {
    let (Some(policy), Some(durability)) = (&queue.policy, &queue.durability) else {
        return match &target.database {
            Database::Server(_) => {
                "no daemon has used it yet: start `shiftboss serve` on it".to_owned()
            }
            Database::File(_) => format!(
                "database of version {}, not yet taken over: start `shiftboss serve` on it",
                queue.schema_version
            ),
        };
    };
    let lease =
        queue.lease_seconds.map_or(String::new(), |seconds| format!(", lease {}", span(seconds)));
    format!("{}{lease}, durability {}", shown(policy), shown(durability))
}

fn rows(queue: &QueueStatus) -> String {
    let rows = &queue.rows;
    let again = match rows.redelivered {
        0 => String::new(),
        again => format!(" ({again} of them again, after a lease that expired)"),
    };
    let dead_letters = match queue.dead_letters {
        0 => String::new(),
        dead => format!(", {dead} dead-lettered"),
    };
    let failed = match queue.failed {
        0 => String::new(),
        failed => format!(" ({failed} failed)"),
    };
    let delayed = match queue.delayed {
        0 => String::new(),
        delayed => format!(", {delayed} delayed"),
    };
    format!(
        "{} waiting, {} running{again}, {} ended{failed}{delayed}{dead_letters}",
        rows.pending,
        rows.in_flight,
        ended(queue)
    )
}

/// Tasks of newest lists that ended, however, and wait for the next one; and single tasks that failed. Rows of older
/// lists are left out: a newer one may hide them before they ran.
pub fn ended(queue: &QueueStatus) -> i64 {
    let add = |sum: i64, list: &FetcherStatus| {
        sum.saturating_add(list.lines.saturating_sub(list.pending))
    };
    let handed_out = queue.fetchers.iter().fold(0, add);
    let others = [queue.rows.in_flight, queue.delayed, queue.dead_letters];
    others.into_iter().fold(handed_out, i64::saturating_sub).max(0)
}

fn oldest(queue: &QueueStatus, now: i64) -> String {
    let named = |waiting: &Waiting| {
        let last = waiting.last_started;
        let run = last.map_or("never run".to_owned(), |at| {
            format!("last run {}", ago(now.saturating_sub(at)))
        });
        format!("{} ({run})", cut(&waiting.key, CELL_WIDTH_MAX))
    };
    match (&queue.oldest_waiting, &queue.longest_wait) {
        (None, _) => "none".to_owned(),
        (Some(next), Some(longest)) if next.last_started.is_none() => {
            format!("{}; of those that ran, {}", named(next), named(longest))
        }
        (Some(next), _) => named(next),
    }
}

fn last_hour(queue: &QueueStatus) -> String {
    if queue.done_last_hour.is_empty() {
        return "no job ended".to_owned();
    }
    let done = queue.done_last_hour.iter();
    let total = total(done.clone().map(|done| done.jobs));
    let ends = done.map(|Done { exit_code, jobs }| match of_code(*exit_code) {
        "failure" if *exit_code == CANCELLED_CODE => {
            format!("{jobs} cancelled or failure (exit code {exit_code})")
        }
        "failure" => format!("{jobs} failure (exit code {exit_code})"),
        end => format!("{jobs} {end}"),
    });
    format!("{} ended: {}", counted(total, "job"), ends.collect::<Vec<_>>().join(", "))
}

/// Daemons that may be gone for good, and those whose server fell back, to a backup or to a replica that was behind.
fn gone(queue: &QueueStatus, now: i64) -> String {
    let daemons = &queue.daemons;
    let older = daemons.iter().filter_map(|daemon| {
        let found = ago(now.saturating_sub(daemon.went_back?));
        Some(format!(
            "{} found {found} that the queue went back to an older state than it had written: what happened between is done again.\n",
            shown(&daemon.name)
        ))
    });
    // Where none runs the whole queue may be at rest, or just moved here.
    let is_gone = |daemon: &&DaemonStatus| {
        running(daemons) > 0
            && !daemon.fetchers.is_empty()
            && matches!(daemon.state, DaemonState::Stopped | DaemonState::Silent)
            && now.saturating_sub(daemon.since) > LONG_GONE_SECONDS
    };
    older.chain(daemons.iter().filter(is_gone).map(|it| forget(&it.name))).collect()
}

fn gone_relays(queue: &QueueStatus, now: i64) -> String {
    let is_gone = |relay: &&RelayStatus| {
        let is_old = now.saturating_sub(relay.joined_since) > LONG_GONE_SECONDS;
        relay.gone && (relay.silent || is_old) && !relay.fetchers.is_empty()
    };
    queue.relays.iter().filter(is_gone).map(|it| forget(&it.name)).collect()
}

/// What to do about a relay or a daemon that does not come back.
fn forget(name: &str) -> String {
    format!(
        "{} is gone for good? {} takes its lists out of the queue, and frees its fetchers.\n",
        shown(name),
        forgetting(name)
    )
}

pub(super) fn forgetting(name: &str) -> String {
    hint(format_args!("forget --daemon {}", quoted(name)))
}

/// The broker as its daemon sees it: where rows of lists wait, and what nobody takes.
fn broker(broker: &BrokerLive) -> String {
    let url = shown(&broker.url);
    if !broker.connected {
        return String::new();
    }
    let requests =
        broker.requests.map_or("what waits there is not known yet".to_owned(), |count| {
            format!("{} of relays wait", counted(count, "request"))
        });
    let messages: u64 = broker.ranges.iter().map(|range| u64::from(range.messages)).sum();
    let waiting = broker.ranges.iter().filter(|range| range.messages > 0);
    let waiting: Vec<String> =
        waiting.map(|range| format!("{} in {:02x}", range.messages, range.range)).collect();
    let waiting = match &*waiting {
        [] => "no rows wait".to_owned(),
        waiting => {
            format!("{} with rows wait: {}", counted(messages, "message"), waiting.join(", "))
        }
    };
    let untaken = match broker.ranges.iter().filter(|range| range.consumers == 0).count() {
        0 => String::new(),
        untaken => format!("; NOBODY TAKES {untaken} OF THEM"),
    };
    let count = broker.ranges.len();
    lines([
        ("Broker", Some(format!("{url}: {requests}"))),
        ("Ranges", (count > 0).then(|| format!("{count}; {waiting}{untaken}"))),
    ])
}

fn workers(queue: &QueueStatus, live: Option<&Live>, now: i64) -> String {
    let more = match queue.holders.len() >= HOLDERS_MAX {
        true => format!("Only the oldest {HOLDERS_MAX} jobs are counted by worker.\n"),
        false => String::new(),
    };
    machines::workers(queue, live, now).render() + &more
}
