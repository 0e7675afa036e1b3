//! The daemons that share a queue on a server, as lines for people. Pure; called by [`super::table`] and [`super::trouble`].

use shiftboss_queue::answers::{DaemonState, DaemonStatus};

use super::relays::{LONG_GONE_SECONDS, forget};
use crate::text::{ago, columns, shown, span};
use crate::up::running;

/// One line a daemon of a database, or nothing if there are none; and what to do about those that are gone for long.
pub(super) fn render(daemons: &[DaemonStatus], now: i64) -> String {
    if daemons.is_empty() {
        return String::new();
    }
    let row = |daemon: &DaemonStatus| {
        let fetchers = shown(&daemon.fetchers.join(", "));
        [
            shown(&daemon.name),
            state(daemon, now),
            shown(&daemon.version),
            daemon.in_flight.to_string(),
            if fetchers.is_empty() { "-".to_owned() } else { fetchers },
            place(daemon),
        ]
    };
    // Where none runs the whole queue may be at rest, or just moved here.
    let gone = daemons.iter().filter(|daemon| {
        running(daemons) > 0
            && !daemon.fetchers.is_empty()
            && matches!(daemon.state, DaemonState::Stopped | DaemonState::Silent)
            && now.saturating_sub(daemon.since) > LONG_GONE_SECONDS
    });
    let hint = |daemon: &DaemonStatus| forget(&daemon.name);
    let head = ["Daemon", "state", "version", "jobs", "fetchers", "where"];
    let older = daemons.iter().filter_map(|daemon| went_back(daemon, now));
    columns(head, daemons.iter().map(row)) + &older.chain(gone.map(hint)).collect::<String>()
}

/// Its server fell back, to a backup or to a replica that was behind.
fn went_back(daemon: &DaemonStatus, now: i64) -> Option<String> {
    let name = shown(&daemon.name);
    let found = ago(now.saturating_sub(daemon.went_back?));
    Some(format!(
        "{name} found {found} that the queue went back to an older state than it had written: what happened between is done again.\n"
    ))
}

/// Its process, its machine and its input directory, as far as they are known.
fn place(daemon: &DaemonStatus) -> String {
    let pid = daemon.pid.map(|pid| format!("pid {pid} on "));
    let place = match (&daemon.host, &daemon.input_dir) {
        (Some(host), Some(directory)) => format!("{}:{}", shown(host), shown(directory)),
        _ => "-".to_owned(),
    };
    pid.unwrap_or_default() + &place
}

fn state(daemon: &DaemonStatus, now: i64) -> String {
    let seconds = now.saturating_sub(daemon.since);
    match daemon.state {
        DaemonState::Running => format!("running for {}", span(seconds)),
        DaemonState::Draining => format!("draining for {}", span(seconds)),
        DaemonState::Stopped => format!("stopped {}", ago(seconds)),
        DaemonState::Silent => format!("SILENT for {}", span(seconds)),
    }
}

/// How many of them run.
pub(super) fn summary(daemons: &[DaemonStatus]) -> String {
    format!("{} of {} running", running(daemons), daemons.len())
}

/// Those that were not stopped and are not heard of.
pub(super) fn silent(daemons: &[DaemonStatus], now: i64) -> impl Iterator<Item = String> {
    let silent = daemons.iter().filter(|daemon| daemon.state == DaemonState::Silent);
    silent.map(move |daemon| {
        format!(
            "{} has not been heard of for {}, and was not stopped",
            shown(&daemon.name),
            span(now.saturating_sub(daemon.since))
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a user sees, to the letter.
    #[test]
    fn the_lines_are_as_documented() {
        let daemon = |name: &str, state, since: i64, fetchers: &[&str], in_flight| DaemonStatus {
            name: name.to_owned(),
            state,
            since: 1_000_000 - since,
            version: "0.1.0".to_owned(),
            host: (state != DaemonState::Stopped).then(|| "mill".to_owned()),
            pid: (state == DaemonState::Running).then_some(711),
            input_dir: Some("/srv/in".to_owned()),
            socket: None,
            fetchers: fetchers.iter().map(|name| (*name).to_owned()).collect(),
            in_flight,
            went_back: (state == DaemonState::Draining).then_some(999_990),
        };
        let daemons = [
            daemon("alpha", DaemonState::Running, 7_200, &["links", "notes"], 16),
            daemon("bravo", DaemonState::Silent, 18_000, &["repology"], 0),
            daemon("charlie\u{1b}", DaemonState::Stopped, 60, &[], 0),
            daemon("delta", DaemonState::Draining, 30, &[], 2),
        ];
        let expected = "\
Daemon         state             version  jobs  fetchers      where
alpha          running for 2h    0.1.0    16    links, notes  pid 711 on mill:/srv/in
bravo          SILENT for 5h     0.1.0    0     repology      mill:/srv/in
charlie\\u{1b}  stopped 1m ago    0.1.0    0     -             -
delta          draining for 30s  0.1.0    2     -             mill:/srv/in
delta found 10s ago that the queue went back to an older state than it had written: what happened between is done again.
bravo is gone for good? `shiftboss forget --daemon bravo` takes its lists out of the queue, and frees its fetchers.
";
        assert_eq!(render(&daemons, 1_000_000), expected);
        assert_eq!(render(&[], 1_000_000), "");
        assert!(!render(&daemons[1..3], 1_000_000).contains("forget"));
        assert_eq!(summary(&daemons), "2 of 4 running");
        let trouble: Vec<_> = silent(&daemons, 1_000_000).collect();
        assert_eq!(trouble, ["bravo has not been heard of for 5h, and was not stopped"]);
    }
}
