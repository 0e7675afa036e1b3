//! Relays and the broker over which a daemon serves them, as lines for people. Pure; called by [`super::table`] and
//! [`super::trouble`].

use shiftboss_actors::live::{BrokerLive, Live};
use shiftboss_queue::answers::{QueueStatus, RelayStatus};

use crate::target::line as hint;
use crate::text::{ago, columns, counted, line, quoted, shown};

/// One that is gone for so many seconds may be so for good.
pub(super) const LONG_GONE_SECONDS: i64 = 3_600;

/// The broker as its daemon sees it, and one line a relay of the queue; nothing if there are none.
pub(super) fn render(queue: &QueueStatus, live: Option<&Live>, now: i64) -> String {
    let broker = live.and_then(|live| live.broker.as_ref());
    let mut out = broker.map_or_else(String::new, self::broker);
    if queue.relays.is_empty() {
        return out;
    }
    let row = |relay: &RelayStatus| {
        let fetchers = shown(&relay.fetchers.join(", "));
        [
            shown(&relay.name),
            state(relay, broker, now),
            relay.in_flight.to_string(),
            if fetchers.is_empty() { "-".to_owned() } else { fetchers },
        ]
    };
    out += &columns(["Relay", "state", "jobs", "fetchers"], queue.relays.iter().map(row));
    let is_long_gone = |relay: &&RelayStatus| {
        let is_old = now.saturating_sub(relay.joined_since) > LONG_GONE_SECONDS;
        relay.gone && (relay.silent || is_old) && !relay.fetchers.is_empty()
    };
    let gone = queue.relays.iter().filter(is_long_gone);
    out += &gone.map(|relay| forget(&relay.name)).collect::<String>();
    out
}

/// What to do about a relay or a daemon that does not come back.
pub(super) fn forget(name: &str) -> String {
    format!(
        "{} is gone for good? {} takes its lists out of the queue, and frees its fetchers.\n",
        shown(name),
        hint(format_args!("forget --daemon {}", quoted(name)))
    )
}

fn broker(broker: &BrokerLive) -> String {
    let url = shown(&broker.url);
    if !broker.connected {
        return line("Broker", &format!("{url}: CANNOT BE USED, relays wait"));
    }
    let requests = broker.requests.map_or_else(
        || "what waits there is not known yet".to_owned(),
        |count| format!("{} of relays wait", counted(count, "request")),
    );
    let mut out = line("Broker", &format!("{url}: {requests}"));
    out += &ranges(broker).map_or_else(String::new, |ranges| line("Ranges", &ranges));
    out += &refused(broker).map_or_else(String::new, |refused| line("Refused", &refused));
    out
}

/// Where rows of lists wait, and what nobody takes.
fn ranges(broker: &BrokerLive) -> Option<String> {
    let messages: u64 = broker.ranges.iter().map(|range| u64::from(range.messages)).sum();
    let untaken = broker.ranges.iter().filter(|range| range.consumers == 0).count();
    let waiting = broker.ranges.iter().filter(|range| range.messages > 0);
    let waiting: Vec<String> =
        waiting.map(|range| format!("{} in {:02x}", range.messages, range.range)).collect();
    let count = counted(messages, "message");
    let waiting = match &*waiting {
        [] => "no rows wait".to_owned(),
        waiting => format!("{count} with rows wait: {}", waiting.join(", ")),
    };
    let untaken =
        if untaken == 0 { String::new() } else { format!("; NOBODY TAKES {untaken} OF THEM") };
    let count = broker.ranges.len();
    (count > 0).then(|| format!("{count}; {waiting}{untaken}"))
}

/// Messages that were refused, and what shows them.
pub(super) fn refused(broker: &BrokerLive) -> Option<String> {
    let count = broker.dead_letters.filter(|count| *count > 0)?;
    let messages = counted(count, "message");
    Some(format!("{messages}: `shiftboss broker dead-letters` shows what, and why"))
}

fn state(relay: &RelayStatus, broker: Option<&BrokerLive>, now: i64) -> String {
    let joined = ago(now.saturating_sub(relay.joined_since));
    if relay.gone {
        let gone = if relay.silent { "SILENT" } else { "gone" };
        return format!("{gone}, joined {joined}");
    }
    let heard = broker
        .filter(|broker| broker.connected)
        .and_then(|broker| broker.relays.iter().find(|heard| heard.name == relay.name));
    let heard = heard.map(|heard| ago(i64::try_from(heard.silent_seconds).unwrap_or(i64::MAX)));
    heard.map_or_else(
        || format!("joined {joined}"),
        |heard| format!("heard of {heard}, joined {joined}"),
    )
}

/// What is wrong, a line each.
pub(super) fn trouble(queue: &QueueStatus, live: Option<&Live>, now: i64) -> Vec<String> {
    let broker = live.and_then(|live| live.broker.as_ref());
    let cut = broker
        .filter(|broker| !broker.connected)
        .map(|broker| format!("broker: {} cannot be used, and relays wait", shown(&broker.url)));
    let refused = broker.and_then(refused).map(|refused| format!("broker: refused {refused}"));
    let silent = queue.relays.iter().filter(|relay| relay.silent).map(|relay| {
        format!(
            "relay {}: it is silent, and was not stopped: start it again, or forget it ({})",
            shown(&relay.name),
            hint(format_args!("forget --daemon {}", quoted(&relay.name)))
        )
    });
    let relays = queue.relays.iter().filter(|relay| !relay.gone).flat_map(|relay| {
        let name = shown(&relay.name);
        let lost = relay.directory_lost_since.map(|since| {
            let why = relay.directory_lost_reason.as_deref().map(shown).unwrap_or_default();
            format!(
                "relay {name}: its input directory is lost since {}: {why}",
                ago(now.saturating_sub(since))
            )
        });
        let rejected = (relay.rejected_files > 0).then(|| {
            format!(
                "relay {name}: {} left out; its log says why",
                counted(relay.rejected_files, "file")
            )
        });
        lost.into_iter().chain(rejected)
    });
    cut.into_iter().chain(refused).chain(silent).chain(relays).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shiftboss_actors::live::{Health, HeardRelay, RangeLive};

    fn relay(name: &str, gone: bool) -> RelayStatus {
        RelayStatus {
            name: name.to_owned(),
            joined_since: 940,
            gone,
            silent: false,
            directory_lost_since: Some(970),
            directory_lost_reason: Some("gone\u{7}".to_owned()),
            rejected_files: 2,
            in_flight: 3,
            fetchers: vec!["f".to_owned(), "g".to_owned()],
        }
    }

    fn live(connected: bool) -> Live {
        let range = |range, messages, consumers| RangeLive { range, messages, consumers };
        let broker = BrokerLive {
            url: "amqp://u@h".to_owned(),
            connected,
            relays: vec![HeardRelay { name: "one".to_owned(), silent_seconds: 2 }],
            requests: Some(1),
            dead_letters: Some(4),
            ranges: vec![range(3, 7, 1), range(10, 0, 0), range(14, 5, 1)],
        };
        let health = Health { in_flight: 0, draining: false, outage: None };
        Live {
            health,
            workers: Vec::new(),
            spool: None,
            broker: Some(broker),
            dropped_log_lines: 0,
        }
    }

    /// What a user sees, to the letter: with a connection, and without.
    #[test]
    fn relays_are_shown() {
        let killed = RelayStatus { silent: true, fetchers: Vec::new(), ..relay("three", true) };
        let relays = vec![relay("one", false), relay("two", true), killed];
        let queue = QueueStatus { relays, ..QueueStatus::default() };
        let expected = "\
Broker          amqp://u@h: 1 request of relays wait
Ranges          3; 12 messages with rows wait: 7 in 03, 5 in 0e; NOBODY TAKES 1 OF THEM
Refused         4 messages: `shiftboss broker dead-letters` shows what, and why
Relay  state                           jobs  fetchers
one    heard of 2s ago, joined 1m ago  3     f, g
two    gone, joined 1m ago             3     f, g
three  SILENT, joined 1m ago           3     -
";
        assert_eq!(render(&queue, Some(&live(true)), 1_000), expected);
        let later = render(&queue, Some(&live(true)), 1_000 + LONG_GONE_SECONDS);
        assert!(later.ends_with("two is gone for good? `shiftboss forget --daemon two` takes its lists out of the queue, and frees its fetchers.\n"), "{later}");
        let cut = render(&queue, Some(&live(false)), 1_000);
        assert!(cut.starts_with("Broker          amqp://u@h: CANNOT BE USED, relays wait\nRelay "));
        assert!(cut.contains("one    joined 1m ago "), "{cut}");
        assert_eq!(render(&QueueStatus::default(), None, 1_000), "");
        let expected = [
            "broker: refused 4 messages: `shiftboss broker dead-letters` shows what, and why",
            "relay three: it is silent, and was not stopped: start it again, or forget it (`shiftboss forget --daemon three`)",
            "relay one: its input directory is lost since 30s ago: gone\\u{7}",
            "relay one: 2 files left out; its log says why",
        ];
        assert_eq!(trouble(&queue, Some(&live(true)), 1_000), expected);
    }
}
