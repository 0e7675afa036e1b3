//! What is listed of fetchers, their runs and files, of daemons, relays and workers: one builder a listing, as in
//! [`listings`](super::listings). Pure.

use std::collections::{BTreeMap, BTreeSet};

use shiftboss_protocol::answers::live::{BrokerLive, Live};
use shiftboss_protocol::answers::{
    DaemonState, DaemonStatus, EndedRun, FetcherRecord, FetcherStatus, QueueStatus, RejectedFile,
    RelayStatus, StatsGroup,
};

use super::health::Up;
use super::table::{Cell, Column, Kind, Row, Table, Tone, column, number, table, text};
use crate::stores::outcome_words::of_code;
use crate::text::{TEXT_WIDTH, ago, cut, shown, span, took};

const FETCHERS: &[Column] = &[
    text("fetcher", 0, 16),
    number("run", 8),
    column("state", 4),
    number("lines", 3),
    number("waiting", 1),
    number("failed", 5),
    number("skipped", 6),
    number("dead letters", 7),
    column("age", 5),
    number("older runs", 9),
    number("done in 24 h", 4),
    number("success", 2),
    number("took", 6),
    column("cycle time", 3),
    column("next run", 7),
    column("failed with", 1),
];
const RUNS: &[Column] = &[
    text("run by the daemon", 0, 16),
    column("state", 1),
    column("last run", 2),
    text("result", 1, 10),
    column("next run", 2),
];
const REJECTED: &[Column] = &[text("file", 0, 16), text("reason", 1, 10), column("since", 2)];
const DAEMONS: &[Column] = &[
    text("daemon", 0, 12),
    column("state", 1),
    column("version", 3),
    number("jobs", 1),
    text("fetchers", 2, 10),
    text("where", 2, 10),
];
const RELAYS: &[Column] =
    &[text("relay", 0, 12), column("state", 1), number("jobs", 1), text("fetchers", 2, 10)];
const WORKERS: &[Column] = &[
    text("worker", 0, 12),
    number("jobs", 1),
    column("oldest", 2),
    number("connections", 3),
    column("last sign of life", 3),
];

/// Without a daemon, whatever was planned.
const NOTHING_RUNS: &str = "-";

fn row(id: &str, cells: Vec<Cell>) -> Row {
    Row { id: id.to_owned(), cells, ..Row::default() }
}

/// Those that have a list, then those that the daemon runs and that have none yet; with how their jobs went in the last day, if that was
/// asked for, and their cycle times by day.
pub fn fetchers(
    queue: &QueueStatus,
    last_day: Option<&[StatsGroup]>,
    days: &[StatsGroup],
    up: Up,
    now: i64,
) -> Table {
    let record = |name: &str| queue.managed_fetchers.iter().find(|record| &*record.name == name);
    let has_list = |name: &str| queue.fetchers.iter().any(|list| list.name == name);
    let without = queue.managed_fetchers.iter().filter(|record| !has_list(&record.name));
    let lists = queue.fetchers.iter();
    let lists = lists.map(|list| (&*list.name, Some(list), record(&list.name)));
    let all = lists.chain(without.map(|record| (&*record.name, None, Some(record))));
    let rows = all.map(|(name, list, record)| {
        let of_it = |group: &&StatsGroup| group.fetcher.as_deref() == Some(name);
        let group = last_day.map(|day| day.iter().find(of_it).cloned().unwrap_or_default());
        let days: Vec<(i64, i64)> =
            days.iter().filter(of_it).filter_map(|day| day.since.zip(day.cycle_seconds)).collect();
        let mut cells = vec![Cell::fetcher(name)];
        cells.extend(of_list(list));
        cells.extend(of_jobs(group.as_ref(), days));
        let failed = record.and_then(failed_run);
        let has_records = !queue.managed_fetchers.is_empty();
        let next = record.map_or(if has_records { "-" } else { "" }.to_owned(), |record| {
            next_run(record, up, now)
        });
        cells.extend([
            Cell { value: record.and_then(|record| record.next_run), ..Cell::word(next) },
            Cell::word(failed.map_or(String::new(), |it| format!("exit code {}", it.exit_code)))
                .with(Tone::Bad),
        ]);
        row(name, cells)
    });
    table("Fetchers", FETCHERS, "There is no fetcher.", rows)
}

fn of_list(list: Option<&FetcherStatus>) -> [Cell; 9] {
    let state = list.map_or("no list", |it| if it.complete { "complete" } else { "growing" });
    let number =
        |of: fn(&FetcherStatus) -> i64| list.map_or(Cell::word("-"), |it| Cell::number(of(it)));
    let fault =
        |of: fn(&FetcherStatus) -> i64| list.map_or(Cell::word("-"), |it| Cell::fault(of(it)));
    [
        number(|it| it.run),
        Cell::word(state),
        number(|it| it.lines),
        number(|it| it.pending),
        fault(|it| it.failed),
        fault(|it| it.skipped),
        fault(|it| it.dead_letters),
        Cell::seconds(list.and_then(|it| it.age_seconds)),
        number(|it| it.older_runs),
    ]
}

fn of_jobs(group: Option<&StatsGroup>, days: Vec<(i64, i64)>) -> [Cell; 4] {
    let Some(group) = group else { return [""; 4].map(Cell::word) };
    let share = (group.jobs > 0).then(|| group.success.saturating_mul(100) / group.jobs);
    let tone = match share {
        Some(..50) => Tone::Bad,
        Some(50..90) => Tone::Warning,
        _ => Tone::Plain,
    };
    [
        Cell::number(group.jobs),
        Cell::optional(share, |share| format!("{share} %")).with(tone),
        Cell::optional(group.mean_ms, |ms| took(Some(ms), 0)),
        Cell::seconds(group.cycle_seconds).of(Kind::Days(days)),
    ]
}

/// The runs of the fetchers that the daemon runs itself.
pub fn runs(fetchers: &[FetcherRecord], up: Up, now: i64) -> Table {
    let rows = fetchers.iter().map(|fetcher| {
        let last = fetcher.last_run.as_ref();
        let came = last.map_or(Cell::word("-"), |last| {
            let cell = Cell::outcome(of_code(last.exit_code.into()), result(last, TEXT_WIDTH));
            if last.exit_code == 0 { cell.with(Tone::Plain) } else { cell }
        });
        let when = last.map_or("none yet".to_owned(), |last| last_run(last, now));
        let cells = vec![
            Cell::fetcher(&fetcher.name),
            Cell::word(state(fetcher, up, now)),
            Cell { value: last.map(|last| last.ended), ..Cell::word(when) },
            came,
            Cell { value: fetcher.next_run, ..Cell::word(next_run(fetcher, up, now)) },
        ];
        row(&fetcher.name, cells)
    });
    table("Runs", RUNS, "The daemon runs no fetcher.", rows)
}

/// How a fetcher is that the daemon runs: `idle`, `running for 5m`; `running for 5m, pending` if another run is to follow.
fn state(fetcher: &FetcherRecord, up: Up, now: i64) -> String {
    if up.runs_no_fetcher() {
        return NOTHING_RUNS.to_owned();
    }
    let state = shown(&fetcher.state);
    let Some(started) = fetcher.run_started else {
        return state;
    };
    let (doing, more) = state.split_at(state.find(',').unwrap_or(state.len()));
    format!("{doing} for {}{more}", span(now.saturating_sub(started)))
}

fn last_run(run: &EndedRun, now: i64) -> String {
    let took = span(run.ended.saturating_sub(run.started));
    format!("{}, took {took}", ago(now.saturating_sub(run.ended)))
}

/// What came of a run, in at most so many columns.
fn result(run: &EndedRun, width: usize) -> String {
    let end = match run.exit_code {
        0 => "ok".to_owned(),
        code => format!("exit code {code}"),
    };
    match &*run.message {
        "" => end,
        // It was said already.
        message if run.exit_code != 0 && message.contains(&end) => cut(message, width),
        message => cut(&format!("{end}: {message}"), width),
    }
}

pub fn failed_run(fetcher: &FetcherRecord) -> Option<&EndedRun> {
    fetcher.last_run.as_ref().filter(|run| run.exit_code != 0)
}

fn next_run(fetcher: &FetcherRecord, up: Up, now: i64) -> String {
    match fetcher.next_run {
        _ if up.runs_no_fetcher() => NOTHING_RUNS.to_owned(),
        None => "on change".to_owned(),
        Some(at) if at <= now => "now".to_owned(),
        Some(at) => format!("in {}", span(at.saturating_sub(now))),
    }
}

pub fn rejected(files: &[RejectedFile], now: i64) -> Table {
    let rows = files.iter().map(|file| {
        let reason = Cell::words(&file.reason);
        row(&file.name, vec![Cell::outside(&file.name), reason, Cell::since(Some(file.since), now)])
    });
    table("Rejected files", REJECTED, "No file is left out.", rows)
}

fn joined(names: &[String]) -> Cell {
    Cell::name(Some(&*names.join(", ")).filter(|names| !names.is_empty()))
}

pub fn daemons(daemons: &[DaemonStatus], now: i64) -> Table {
    let rows = daemons.iter().map(|daemon| {
        let seconds = now.saturating_sub(daemon.since);
        let state = match daemon.state {
            DaemonState::Running => format!("running for {}", span(seconds)),
            DaemonState::Draining => format!("draining for {}", span(seconds)),
            DaemonState::Stopped => format!("stopped {}", ago(seconds)),
            DaemonState::Silent => format!("SILENT for {}", span(seconds)),
        };
        let is_bad = daemon.state == DaemonState::Silent;
        let cells = vec![
            Cell::outside(&daemon.name),
            Cell::word(state).with(if is_bad { Tone::Bad } else { Tone::Plain }),
            Cell::outside(&daemon.version),
            Cell::number(daemon.in_flight),
            joined(&daemon.fetchers),
            Cell::word(place(daemon)),
        ];
        row(&daemon.name, cells)
    });
    table("Daemons", DAEMONS, "No daemon has joined.", rows)
}

/// Its process, its machine and its input directory, as far as they are known.
fn place(daemon: &DaemonStatus) -> String {
    let pid = daemon.pid.map_or_else(String::new, |pid| format!("pid {pid} on "));
    match (&daemon.host, &daemon.input_dir) {
        (Some(host), Some(directory)) => format!("{pid}{}:{}", shown(host), shown(directory)),
        _ => pid + "-",
    }
}

pub fn relays(relays: &[RelayStatus], broker: Option<&BrokerLive>, now: i64) -> Table {
    let heard = |relay: &RelayStatus| {
        let broker = broker.filter(|broker| broker.connected)?;
        let heard = broker.relays.iter().find(|heard| heard.name == relay.name)?;
        Some(ago(i64::try_from(heard.silent_seconds).unwrap_or(i64::MAX)))
    };
    let rows = relays.iter().map(|relay| {
        let joined_since = format!("joined {}", ago(now.saturating_sub(relay.joined_since)));
        let state = match (relay.gone, relay.silent, heard(relay)) {
            (true, true, _) => format!("SILENT, {joined_since}"),
            (true, false, _) => format!("gone, {joined_since}"),
            (false, _, Some(heard)) => format!("heard of {heard}, {joined_since}"),
            (false, _, None) => joined_since,
        };
        let cells = vec![
            Cell::outside(&relay.name),
            Cell::word(state).with(if relay.silent { Tone::Bad } else { Tone::Plain }),
            Cell::number(relay.in_flight),
            joined(&relay.fetchers),
        ];
        row(&relay.name, cells)
    });
    table("Relays", RELAYS, "No relay has joined.", rows)
}

#[derive(Default)]
struct Worker<'a> {
    jobs: i64,
    oldest: Option<i64>,
    connected: Option<(u64, u64)>,
    daemons: BTreeSet<&'a str>,
}

pub fn workers(queue: &QueueStatus, live: Option<&Live>, now: i64) -> Table {
    let mut by_name: BTreeMap<Option<&str>, Worker<'_>> = BTreeMap::new();
    for held in &queue.holders {
        let worker = by_name.entry(held.worker.as_deref()).or_default();
        worker.jobs += 1;
        worker.oldest = worker.oldest.into_iter().chain([held.since]).min();
        worker.daemons.extend(held.daemon.as_deref());
    }
    for connected in live.into_iter().flat_map(|live| &live.workers) {
        let worker = by_name.entry(Some(&connected.name)).or_default();
        worker.connected = Some((connected.connections, connected.silent_seconds));
    }
    let several = queue.daemons.len() > 1;
    let rows = by_name.into_iter().map(|(name, worker)| {
        let daemons: Vec<String> = worker.daemons.iter().map(|name| shown(name)).collect();
        let at = match several && !daemons.is_empty() {
            true => format!(" at {}", daemons.join(", ")),
            false => String::new(),
        };
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let (connections, silent) = worker.connected.unzip();
        let cells = vec![
            Cell::word(name.map_or("(classic)".to_owned(), shown) + &at),
            Cell::number(worker.jobs),
            Cell::since(worker.oldest, now),
            Cell::optional(connections.map(signed), |count| count.to_string()),
            Cell::optional(silent.map(signed), ago),
        ];
        row(name.unwrap_or_default(), cells)
    });
    table("Workers", WORKERS, "No worker is known.", rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exit code is said once, and a good run is one whatever its list is called.
    #[test]
    fn results_are_said_once() {
        let run = |exit_code, message: &str| {
            result(&EndedRun { started: 0, ended: 0, exit_code, message: message.to_owned() }, 80)
        };
        assert_eq!(run(0, "2 lines, 0 faulty: book.1.txt"), "ok: 2 lines, 0 faulty: book.1.txt");
        assert_eq!(
            run(3, "the command ended with exit code 3"),
            "the command ended with exit code 3"
        );
        assert_eq!(run(127, "cannot run it"), "exit code 127: cannot run it");
        assert_eq!((run(0, ""), run(1, "")), ("ok".to_owned(), "exit code 1".to_owned()));
    }
}
