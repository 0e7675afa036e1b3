//! The families of metrics, in the text format OpenMetrics (docs/metrics.md lists them). No key, worker or exit code is a label.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType::{self, Counter, Gauge};
use prometheus_client::registry::{Registry, Unit};
use shiftboss_protocol::answers::metrics::{
    ByWord, Counted, FetcherJobs, Histogram, OTHER_FETCHERS,
};
use shiftboss_protocol::answers::{
    DaemonState, FetcherStatus, GroupCount, GroupState, RelayStatus,
};

use super::Scrape;
use crate::view::health::{Severity, Snapshot};

/// Fetchers that have series of their own; the smaller ones are summed up.
const FETCHERS_MAX: usize = 100;
/// Fetchers that were gone when a job of theirs ended.
const GONE_FETCHERS: &str = "(gone)";

pub(super) fn text(scrape: Scrape) -> String {
    let mut registry = Registry::with_prefix("shiftboss");
    registry.register_collector(Box::new(scrape));
    let mut text = String::new();
    // A string takes all that is written to it.
    let _ = encode(&mut text, &registry);
    text
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Writer(encoder);
        self.daemon(&mut out)?;
        self.queue(&mut out)?;
        self.machines(&mut out)?;
        self.fetchers(&mut out)?;
        self.daemon.iter().try_for_each(|daemon| self.counted(&daemon.counted, &mut out))
    }
}

/// A whole number as a value: exact up to 2^53.
#[allow(clippy::cast_precision_loss)]
fn value(number: i64) -> f64 {
    number as f64
}

fn unsigned(number: u64) -> f64 {
    value(i64::try_from(number).unwrap_or(i64::MAX))
}

struct Writer<'a>(DescriptorEncoder<'a>);

type Labels<'a> = Vec<(&'static str, &'a str)>;

impl Writer<'_> {
    fn gauge(&mut self, name: &str, help: &str, unit: Option<Unit>, value: f64) -> fmt::Result {
        self.0.encode_descriptor(name, help, unit.as_ref(), Gauge)?.encode_gauge(&value)
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        count(&mut self.0.encode_descriptor(name, help, None, Counter)?, value)
    }

    /// A gauge of several series; none at all without any.
    fn gauges<'l>(
        &mut self,
        (name, help, unit): (&str, &str, Option<Unit>),
        series: impl Iterator<Item = (Labels<'l>, f64)>,
    ) -> fmt::Result {
        let mut series = series.peekable();
        if series.peek().is_none() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, unit.as_ref(), Gauge)?;
        for (labels, value) in series {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// A gauge with a series for each of these words, unless there is nothing to count.
    fn by_kind(
        &mut self,
        (name, help): (&str, &str),
        label: &'static str,
        is_none: bool,
        counts: impl IntoIterator<Item = (&'static str, usize)>,
    ) -> fmt::Result {
        let counts = counts.into_iter().filter(|_| !is_none);
        let series = counts.map(|(word, count)| (vec![(label, word)], unsigned(count as u64)));
        self.gauges((name, help, None), series)
    }

    fn counters<'l>(
        &mut self,
        name: &str,
        help: &str,
        series: impl Iterator<Item = (Labels<'l>, u64)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, Counter)?;
        for (labels, value) in series {
            count(&mut family.encode_family(&labels)?, value)?;
        }
        Ok(())
    }

    fn by_word(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        words: &ByWord,
    ) -> fmt::Result {
        let series = words.iter().map(|(word, count)| (vec![(label, &**word)], *count));
        self.counters(name, help, series)
    }

    fn histograms<'l>(
        &mut self,
        (name, help, unit): (&str, &str, Option<Unit>),
        series: impl Iterator<Item = (Labels<'l>, &'l Histogram)>,
    ) -> fmt::Result {
        let kind = MetricType::Histogram;
        let mut family = self.0.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (labels, histogram) in series {
            histogram_of(&mut family.encode_family(&labels)?, histogram)?;
        }
        Ok(())
    }
}

fn count(metric: &mut MetricEncoder<'_>, value: u64) -> fmt::Result {
    metric.encode_counter::<NoLabelSet, _, f64>(&value, None)
}

fn histogram_of(metric: &mut MetricEncoder<'_>, histogram: &Histogram) -> fmt::Result {
    let bounds = histogram.bounds.iter().copied().chain([f64::INFINITY]);
    let ranges: Vec<(f64, u64)> = bounds.zip(histogram.counts.iter().copied()).collect();
    let count = histogram.counts.iter().sum();
    metric.encode_histogram::<NoLabelSet>(histogram.sum, count, &ranges, None)
}

const SECONDS: Option<Unit> = Some(Unit::Seconds);
const BYTES: Option<Unit> = Some(Unit::Bytes);

impl Scrape {
    fn daemon(&self, out: &mut Writer<'_>) -> fmt::Result {
        let is_up = self.snapshot.is_served().into();
        out.gauge("up", "Whether a daemon runs and answers.", None, is_up)?;
        let health = self.snapshot.health();
        let kinds = [("error", Severity::Error), ("warning", Severity::Warning)];
        let counts = kinds.map(|(word, severity)| (word, health.count(severity)));
        out.by_kind(("troubles", "What is wrong."), "severity", false, counts)?;
        let took = self.took.as_secs_f64();
        out.gauge("scrape_duration", "How long these were gathered.", SECONDS, took)?;
        if let Some([database, log]) = self.files {
            let help = "The database's file.";
            out.gauge("database", help, BYTES, unsigned(database))?;
            out.gauge("wal", "The database's write-ahead log.", BYTES, unsigned(log))?;
        }
        let Some(daemon) = &self.daemon else {
            return Ok(());
        };
        let version = ("version", &*daemon.version);
        let sqlite = ("sqlite", rusqlite::version());
        let build = std::iter::once((vec![version, sqlite], 1.0));
        out.gauges(("build_info", "The daemon's version, and SQLite's.", None), build)?;
        let started = unsigned(daemon.started);
        out.gauge("daemon_start_timestamp", "When the daemon started.", SECONDS, started)?;
        let help = "Lines of the daemon's log that nobody read in time.";
        out.counter("dropped_log_lines", help, daemon.dropped_log_lines)?;
        let Some(usage) = daemon.usage else {
            return Ok(());
        };
        let resident = unsigned(usage.resident_bytes);
        out.gauge("daemon_resident_memory", "Memory of the daemon.", BYTES, resident)?;
        let help = "Processor time of the daemon.";
        let mut cpu = out.0.encode_descriptor("daemon_cpu", help, SECONDS.as_ref(), Counter)?;
        cpu.encode_counter::<NoLabelSet, _, f64>(&usage.cpu_seconds, None)
    }

    fn queue(&self, out: &mut Writer<'_>) -> fmt::Result {
        let Snapshot { queue, at: now, .. } = &self.snapshot;
        out.gauge("paused", "Whether nothing is handed out.", None, queue.paused.into())?;
        let is_lost = queue.directory_lost_since.is_some().into();
        out.gauge("input_directory_lost", "Whether the input directory is gone.", None, is_lost)?;
        let rejected = queue.rejected_files.len() as u64;
        out.gauge("rejected_files", "Input files that are left out.", None, unsigned(rejected))?;
        let classic = queue.rows.in_flight.saturating_sub(queue.rows.leased);
        let protocols = [("classic", classic), ("2", queue.rows.leased)];
        let in_flight = protocols
            .into_iter()
            .map(|(protocol, jobs)| (vec![("protocol", protocol)], value(jobs.max(0))));
        out.gauges(("in_flight_jobs", "Jobs that are out.", None), in_flight)?;
        let kinds = [("hold", queue.held), ("backoff", queue.backed_off)];
        let held = kinds.map(|(kind, keys)| (vec![("kind", kind)], value(keys)));
        out.gauges(("held_keys", "Keys that are not handed out.", None), held.into_iter())?;
        let of_state = |count: fn(&GroupCount) -> i64| {
            GroupState::ALL.into_iter().map(move |state| {
                let found = queue.groups.iter().find(|it| it.state == state);
                (vec![("state", state.word())], value(found.map_or(0, count)))
            })
        };
        out.gauges(("groups", "Groups of keys.", None), of_state(|it| it.groups))?;
        let help = "Keys that wait, by the state of their groups.";
        out.gauges(("group_waiting_keys", help, None), of_state(|it| it.waiting))?;
        let help = "Tasks that failed, and are tried again.";
        out.gauge("delayed_tasks", help, None, value(queue.delayed))?;
        let help = "Keys that are to run soon, and wait.";
        out.gauge("bumped_keys", help, None, value(queue.bumped))?;
        let since =
            |then: Option<i64>| then.map_or(0.0, |then| value(now.saturating_sub(then).max(0)));
        let longest = queue.longest_wait.as_ref().and_then(|waiting| waiting.last_started);
        let help =
            "Since the last start of the key that ran before and waits longest; 0: none waits.";
        out.gauge("oldest_wait", help, SECONDS, since(longest))?;
        let oldest = queue.holders.first().map(|held| held.since);
        let help = "Since the hand-out of the job that is out longest; 0: none is.";
        out.gauge("oldest_in_flight", help, SECONDS, since(oldest))
    }

    /// The daemons of a queue on a server, relays, and the broker as this daemon sees it.
    fn machines(&self, out: &mut Writer<'_>) -> fmt::Result {
        let (daemons, relays) = (&self.snapshot.queue.daemons, &self.snapshot.queue.relays);
        let states = [
            ("running", DaemonState::Running),
            ("draining", DaemonState::Draining),
            ("stopped", DaemonState::Stopped),
            ("silent", DaemonState::Silent),
        ];
        let count = |state| daemons.iter().filter(|daemon| daemon.state == state).count();
        let series = states.map(|(word, state)| (word, count(state)));
        out.by_kind(("daemons", "Daemons of the queue."), "state", daemons.is_empty(), series)?;
        let count = |is_so: fn(&&RelayStatus) -> bool| relays.iter().filter(is_so).count();
        let series = [
            ("joined", count(|it| !it.gone)),
            ("stopped", count(|it| it.gone && !it.silent)),
            ("silent", count(|it| it.gone && it.silent)),
        ];
        out.by_kind(("relays", "Relays of the queue."), "state", relays.is_empty(), series)?;
        let Some(broker) = self.daemon.as_ref().and_then(|daemon| daemon.broker.as_ref()) else {
            return Ok(());
        };
        let help = "Whether the daemon can use the broker.";
        out.gauge("broker_connected", help, None, broker.connected.into())?;
        let Some((requests, refused)) = broker.requests.zip(broker.dead_letters) else {
            return Ok(());
        };
        let rows: usize = broker.ranges.iter().map(|range| range.messages as usize).sum();
        let waiting =
            [("request", requests as usize), ("rows", rows), ("dead_letter", refused as usize)];
        let help = "Messages that wait on the broker.";
        out.by_kind(("broker_messages", help), "kind", false, waiting)?;
        let untaken = broker.ranges.iter().filter(|range| range.consumers == 0).count() as u64;
        let help = "Ranges of keys whose rows no daemon takes.";
        out.gauge("broker_untaken_ranges", help, None, unsigned(untaken))
    }

    fn counted(&self, counted: &Counted, out: &mut Writer<'_>) -> fmt::Result {
        let now = [
            ("connections", "Connections of workers and operators.", counted.connections),
            ("waiting_requests", "Workers that wait for a job.", counted.waiting_requests),
        ];
        for (name, help, number) in now {
            out.gauge(name, help, None, unsigned(number))?;
        }
        let since_start = [
            ("connections_opened", "Connections that were accepted.", counted.connections_opened),
            ("connections_refused", "Connections beyond the limit.", counted.connections_refused),
            ("stale_results", "Results of attempts that were over.", counted.stale_results),
        ];
        for (name, help, number) in since_start {
            out.counter(name, help, number)?;
        }
        out.by_word("requests", "Requests, by their first word.", "request", &counted.requests)?;
        let (name, help) = ("request_errors", "Requests that were refused.");
        out.by_word(name, help, "code", &counted.request_errors)?;
        let (name, help) = ("storage_errors", "Requests to the database that failed.");
        out.by_word(name, help, "kind", &counted.storage_errors)?;
        let (name, help) = ("leases_expired", "Leases of protocol 2 that expired.");
        out.by_word(name, help, "result", &counted.leases_expired)?;
        if let Some(last) = counted.last_job_end {
            let help = "When a job was done last.";
            out.gauge("last_job_end_timestamp", help, SECONDS, value(last))?;
        }
        let commits = std::iter::once((Vec::new(), &counted.commit_seconds));
        out.histograms(("commit_duration", "How long commits took.", SECONDS), commits)?;
        let commits = std::iter::once((Vec::new(), &counted.commit_mutations));
        out.histograms(("commit_mutations", "Requests that shared a commit.", None), commits)
    }
}

impl Scrape {
    fn fetchers(&self, out: &mut Writer<'_>) -> fmt::Result {
        let named = self.named();
        self.lists(&named, out)?;
        self.managed(&named, out)?;
        let Some(daemon) = &self.daemon else {
            return Ok(());
        };
        let mut jobs: BTreeMap<&str, FetcherJobs> = BTreeMap::new();
        for (name, ended) in &daemon.counted.fetchers {
            jobs.entry(label(&named, name)).or_default().merge(ended);
        }
        let outcomes = jobs.iter().flat_map(|(name, jobs)| {
            jobs.outcomes
                .iter()
                .map(|(outcome, count)| (vec![fetcher(name), ("outcome", &**outcome)], *count))
        });
        out.counters("jobs", "Attempts that ended.", outcomes)?;
        let took = jobs.iter().map(|(name, jobs)| (vec![fetcher(name)], &jobs.job_seconds));
        out.histograms(("job_duration", "How long jobs took that were done.", SECONDS), took)?;
        let revisits = jobs.iter().map(|(name, jobs)| (vec![fetcher(name)], &jobs.revisit_seconds));
        let help = "Between two starts of a key: the cycle time.";
        out.histograms(("revisit_interval", help, SECONDS), revisits)
    }

    /// The largest fetchers, by lines and by jobs.
    fn named(&self) -> BTreeSet<&str> {
        let lists = self.snapshot.queue.fetchers.iter();
        let mut sizes: BTreeMap<&str, u64> =
            lists.map(|list| (&*list.name, list.lines.max(0).cast_unsigned())).collect();
        for (name, jobs) in self.daemon.iter().flat_map(|daemon| &daemon.counted.fetchers) {
            let size = sizes.entry(name).or_default();
            *size = (*size).max(jobs.outcomes.values().sum());
        }
        let mut largest: Vec<(&str, u64)> = sizes.into_iter().collect();
        largest.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
        largest.into_iter().take(FETCHERS_MAX).map(|(name, _)| name).collect()
    }

    fn lists(&self, named: &BTreeSet<&str>, out: &mut Writer<'_>) -> fmt::Result {
        type Count = fn(&FetcherStatus) -> i64;
        let sums = |count: Count| {
            let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
            for list in &self.snapshot.queue.fetchers {
                *sums.entry(label(named, &list.name)).or_default() += count(list);
            }
            sums
        };
        let statuses: [(&str, Count); 3] = [
            ("waiting", |list| list.pending),
            ("failed", |list| list.failed),
            ("dead_letter", |list| list.dead_letters),
        ];
        let tasks = statuses.into_iter().flat_map(|(status, count)| {
            let series =
                move |(name, tasks)| (vec![fetcher(name), ("status", status)], value(tasks));
            sums(count).into_iter().map(series)
        });
        out.gauges(("tasks", "Tasks, by status.", None), tasks)?;
        let lists: [(&str, &str, Count); 2] = [
            ("fetcher_list_lines", "Lines of the newest list.", |list| list.lines),
            ("fetcher_skipped_lines", "Faulty lines of the newest list.", |list| list.skipped),
        ];
        for (name, help, count) in lists {
            let series = sums(count).into_iter();
            let series = series.map(|(name, lines)| (vec![fetcher(name)], value(lines)));
            out.gauges((name, help, None), series)?;
        }
        let made = self.snapshot.queue.fetchers.iter().filter_map(|list| {
            let is_named = list.age_seconds.is_some() && named.contains(&*list.name);
            is_named.then(|| (vec![fetcher(&list.name)], value(list.run)))
        });
        out.gauges(("fetcher_list_timestamp", "When the newest list was begun.", SECONDS), made)
    }

    /// The runs of fetchers that the daemon runs itself.
    fn managed(&self, named: &BTreeSet<&str>, out: &mut Writer<'_>) -> fmt::Result {
        let runs: Vec<_> = self
            .snapshot
            .queue
            .managed_fetchers
            .iter()
            .filter(|record| named.len() < FETCHERS_MAX || named.contains(&*record.name))
            .filter_map(|record| Some((vec![fetcher(&record.name)], record.last_run.as_ref()?)))
            .collect();
        let each = |value: fn(&shiftboss_protocol::answers::EndedRun) -> f64| {
            runs.iter().map(move |(labels, run)| (labels.clone(), value(run)))
        };
        let success = each(|run| f64::from(run.exit_code == 0));
        out.gauges(
            ("fetcher_last_run_success", "Whether the last run made a list.", None),
            success,
        )?;
        let ended = each(|run| value(run.ended));
        out.gauges(("fetcher_last_run_timestamp", "When the last run ended.", SECONDS), ended)?;
        let took = each(|run| value(run.ended.saturating_sub(run.started).max(0)));
        out.gauges(("fetcher_last_run_duration", "How long the last run took.", SECONDS), took)
    }
}

/// As whom a fetcher is counted.
fn label<'a>(named: &BTreeSet<&'a str>, name: &'a str) -> &'a str {
    match name {
        "" => GONE_FETCHERS,
        name if named.contains(name) => name,
        _ => OTHER_FETCHERS,
    }
}

fn fetcher(name: &str) -> (&'static str, &str) {
    ("fetcher", name)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shiftboss_protocol::answers::QueueStatus;
    use shiftboss_protocol::answers::live::{BrokerLive, DaemonMetrics, RangeLive};

    use super::*;
    use crate::lock::LockState;
    use crate::stores::Database;
    use crate::target::Target;

    fn scrape(queue: QueueStatus, daemon: Option<DaemonMetrics>) -> Scrape {
        let database = Database::File("state.db".into());
        let target = Target { database, daemon: LockState::Free };
        let snapshot = Snapshot { at: 1_700_002_000, target, queue, live: Ok(None) };
        Scrape { snapshot, daemon, files: None, took: Duration::ZERO }
    }

    /// Who shares a queue, and what waits on a broker; nothing of that where there is none.
    #[test]
    fn machines_are_counted() {
        let relay = |gone, silent| RelayStatus { gone, silent, ..RelayStatus::default() };
        let relays = vec![relay(false, false), relay(true, true), relay(true, true)];
        let ranges = vec![
            RangeLive { range: 0, messages: 3, consumers: 1 },
            RangeLive { range: 1, messages: 4, consumers: 0 },
        ];
        let (connected, requests, dead_letters) = (true, Some(1), Some(2));
        let broker =
            BrokerLive { connected, requests, dead_letters, ranges, ..BrokerLive::default() };
        let daemon = DaemonMetrics { broker: Some(broker), ..DaemonMetrics::default() };
        let scrape =
            |relays, daemon| scrape(QueueStatus { relays, ..QueueStatus::default() }, daemon);
        let full = text(scrape(relays, Some(daemon)));
        for line in [
            "shiftboss_relays{state=\"joined\"} 1.0",
            "shiftboss_relays{state=\"stopped\"} 0.0",
            "shiftboss_relays{state=\"silent\"} 2.0",
            "shiftboss_broker_connected 1.0",
            "shiftboss_broker_messages{kind=\"rows\"} 7.0",
            "shiftboss_broker_messages{kind=\"dead_letter\"} 2.0",
            "shiftboss_broker_untaken_ranges 1.0",
        ] {
            assert!(full.lines().any(|found| found == line), "{line} of {full}");
        }
        let none = text(scrape(Vec::new(), None));
        assert!(!none.contains("relays") && !none.contains("daemons") && !none.contains("broker"));
    }

    /// Of a thousand fetchers the largest hundred are named, by lines or by jobs, and the others are one.
    #[test]
    fn the_smallest_fetchers_are_summed_up() {
        let list = |number: i64| FetcherStatus {
            name: format!("f{number}"),
            run: 1_700_000_000 + number,
            complete: true,
            lines: number,
            pending: 1,
            age_seconds: Some(1),
            ..FetcherStatus::default()
        };
        let jobs = |count| FetcherJobs {
            outcomes: ByWord::from([("success".into(), count)]),
            ..FetcherJobs::default()
        };
        let counted = Counted {
            fetchers: [("f1".into(), jobs(5_000)), ("f2".into(), jobs(7)), ("".into(), jobs(3))]
                .into(),
            ..Counted::default()
        };
        let daemon = DaemonMetrics { counted, ..DaemonMetrics::default() };
        let fetchers = (1..=1_000).map(list).collect();
        let text = text(scrape(QueueStatus { fetchers, ..QueueStatus::default() }, Some(daemon)));
        for line in [
            "shiftboss_tasks{fetcher=\"(other)\",status=\"waiting\"} 900.0",
            "shiftboss_tasks{fetcher=\"f1\",status=\"waiting\"} 1.0",
            "shiftboss_fetcher_list_timestamp_seconds{fetcher=\"f902\"} 1700000902.0",
            "shiftboss_jobs_total{fetcher=\"f1\",outcome=\"success\"} 5000",
            "shiftboss_jobs_total{fetcher=\"(other)\",outcome=\"success\"} 7",
            "shiftboss_jobs_total{fetcher=\"(gone)\",outcome=\"success\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} of {text}");
        }
        let is_of_tasks =
            |line: &&str| line.starts_with("shiftboss_tasks{") && line.contains("waiting");
        assert_eq!(text.lines().filter(is_of_tasks).count(), FETCHERS_MAX + 1);
    }
}
