//! The fetchers: their lists, how their jobs went, and the runs of those that the daemon runs itself. One of them: its days, too.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use askama::Template;
use shiftboss_queue::answers::FetcherRecord;
use shiftboss_queue::answers::{FetcherStatus, QueueStatus, RejectedFile, Stats, StatsGroup};
use shiftboss_queue::reader::{Grouping, ReadResult, StatsOf};

use super::asked::OfFetcher;
use super::bars::{Ended, Unit};
use super::parts::{Frame, Moment, in_address, text};
use super::sparkline::{DAYS, Sparkline};
use super::{Sight, show};
use crate::standing::fetchers::{failed_run, last_run, next_run, result, state};
use crate::stores::outcome_words::of_code;
use crate::text::{TEXT_WIDTH, span, took};
use crate::web::Page;

const DAY: Duration = Duration::from_secs(24 * 3_600);
/// Fetchers that have a line of their days, where no more are listed.
const LINES_MAX: usize = 100;
/// Fetchers that are listed on their own page.
const FETCHERS_MAX: usize = 1_000;
/// Rejected files that are listed.
const REJECTED_MAX: usize = 100;

pub(super) async fn all(request: HttpRequest, page: web::Data<Page>) -> HttpResponse {
    show(&request, page, "fetchers".to_owned(), |sight| Ok((StatusCode::OK, All::ask(sight)?)))
        .await
}

pub(super) async fn one(
    request: HttpRequest,
    page: web::Data<Page>,
    asked: web::Query<OfFetcher>,
) -> HttpResponse {
    let name = asked.into_inner().name;
    let question = format!("fetcher {name}");
    let ask = move |sight: &Sight<'_>| {
        let one = One::ask(sight, &name)?;
        let is_known = one.list.is_some() || one.run.is_some() || one.ended.most > 0;
        Ok((if is_known { StatusCode::OK } else { StatusCode::NOT_FOUND }, one))
    };
    show(&request, page, question, ask).await
}

#[derive(Template)]
#[template(path = "fetchers.html")]
struct All {
    frame: Frame,
    fetchers: Vec<Fetcher>,
    runs: Vec<Run>,
    truncated: bool,
    rejected: Vec<Rejected>,
}

/// A file of the input directory that is no list.
struct Rejected {
    name: String,
    reason: String,
    since: Moment,
}

#[derive(Template)]
#[template(path = "fetcher.html")]
struct One {
    frame: Frame,
    list: Option<Fetcher>,
    run: Option<Run>,
    ended: Ended,
    /// Where its attempts are.
    log: String,
}

/// A fetcher that has a list.
pub(super) struct Fetcher {
    pub name: String,
    pub address: String,
    pub age: String,
    pub lines: i64,
    /// Its file grows still.
    pub is_growing: bool,
    pub pending: i64,
    pub skipped: i64,
    pub dead_letters: i64,
    /// Of the last day.
    pub jobs: i64,
    pub success: String,
    pub mean: String,
    pub cycle: String,
    pub line: Option<Sparkline>,
    pub next_run: String,
}

/// A run of a fetcher that the daemon runs.
pub(super) struct Run {
    pub name: String,
    pub address: String,
    pub state: String,
    pub last: String,
    pub result: String,
    /// The outcome's word, for its colour.
    pub outcome: &'static str,
    pub next: String,
}

impl All {
    fn ask(sight: &Sight<'_>) -> ReadResult<Self> {
        let status = sight.reader.status(sight.now)?;
        let runs = status.managed_fetchers.iter().map(|record| Run::of(record, &status, sight));
        let rejected = |file: &RejectedFile| Rejected {
            name: text(&file.name),
            reason: text(&file.reason),
            since: Moment::new(file.since, sight.now),
        };
        Ok(Self {
            frame: sight.frame("Fetchers", &status).at("fetchers"),
            fetchers: listed(sight, &status, FETCHERS_MAX)?,
            runs: runs.collect(),
            truncated: status.fetchers.len() > FETCHERS_MAX,
            rejected: status.rejected_files.iter().take(REJECTED_MAX).map(rejected).collect(),
        })
    }
}

impl One {
    fn ask(sight: &Sight<'_>, name: &str) -> ReadResult<Self> {
        let mut status = sight.reader.status(sight.now)?;
        status.fetchers.retain(|fetcher| fetcher.name == name);
        let run = status.managed_fetchers.iter().find(|record| &*record.name == name);
        let days = StatsOf {
            fetchers: vec![name.to_owned()],
            ..StatsOf::last(DAY * DAYS, Grouping::Day, sight.now)
        };
        Ok(Self {
            frame: sight.frame(&format!("Fetcher {}", text(name)), &status),
            run: run.map(|record| Run::of(record, &status, sight)),
            list: listed(sight, &status, 1)?.pop(),
            ended: Ended::of(&sight.reader.stats(&days)?, Unit::Day, sight.now),
            log: format!("log?fetcher={}", in_address(name)),
        })
    }
}

impl Run {
    fn of(record: &FetcherRecord, status: &QueueStatus, sight: &Sight<'_>) -> Self {
        let now = sight.now;
        let last = record.last_run.as_ref();
        // Without a daemon nothing runs, whatever was planned.
        let unless_down = |text: String| if sight.is_down(status) { "-".to_owned() } else { text };
        Self {
            name: text(&record.name),
            address: address(&record.name),
            state: unless_down(state(record, now)),
            last: last.map_or("none yet".to_owned(), |last| last_run(last, now)),
            result: last.map_or("-".to_owned(), |last| result(last, TEXT_WIDTH)),
            outcome: last.map_or("", |last| of_code(last.exit_code.into())),
            next: unless_down(next_run(record.next_run, now)),
        }
    }
}

/// The fetchers whose last run failed.
pub(super) fn failing(sight: &Sight<'_>, status: &QueueStatus) -> Vec<Run> {
    let failing = status.managed_fetchers.iter().filter(|record| failed_run(record).is_some());
    failing.map(|record| Run::of(record, status, sight)).collect()
}

fn address(name: &str) -> String {
    format!("fetcher?f={}", in_address(name))
}

/// The first fetchers of those that have a list, with how their jobs went.
pub(super) fn listed(
    sight: &Sight<'_>,
    status: &QueueStatus,
    count: usize,
) -> ReadResult<Vec<Fetcher>> {
    let shown = &status.fetchers[..status.fetchers.len().min(count)];
    if shown.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<String> = shown.iter().map(|fetcher| fetcher.name.clone()).collect();
    let sums = |time, by| {
        sight
            .reader
            .stats(&StatsOf { fetchers: names.clone(), ..StatsOf::last(time, by, sight.now) })
    };
    let last_day = sums(DAY, Grouping::Fetcher)?;
    let has_lines = shown.len() <= LINES_MAX;
    let days = has_lines.then(|| sums(DAY * DAYS, Grouping::FetcherDay)).transpose()?;
    let days = days.map_or_else(Vec::new, |days| days.groups);
    let fetcher = |it| Fetcher::of(it, &last_day, &days, status, sight.now);
    Ok(shown.iter().map(fetcher).collect())
}

impl Fetcher {
    fn of(
        list: &FetcherStatus,
        last_day: &Stats,
        days: &[StatsGroup],
        status: &QueueStatus,
        now: i64,
    ) -> Self {
        let of_it = |group: &&StatsGroup| group.fetcher.as_deref() == Some(&*list.name);
        let group = last_day.groups.iter().find(of_it).cloned().unwrap_or_default();
        let share = (group.jobs > 0)
            .then(|| format!("{} %", group.success.saturating_mul(100) / group.jobs));
        let managed = status.managed_fetchers.iter().find(|record| *record.name == *list.name);
        Self {
            name: text(&list.name),
            address: address(&list.name),
            age: list.age_seconds.map_or("-".to_owned(), span),
            lines: list.lines,
            is_growing: !list.complete,
            pending: list.pending,
            skipped: list.skipped,
            dead_letters: list.dead_letters,
            jobs: group.jobs,
            success: share.unwrap_or("-".to_owned()),
            mean: group.mean_ms.map_or("-".to_owned(), |ms| took(Some(ms), 0)),
            cycle: group.cycle_seconds.map_or("-".to_owned(), span),
            line: Sparkline::of(days.iter().filter(of_it), now),
            next_run: managed.map_or("-".to_owned(), |record| next_run(record.next_run, now)),
        }
    }
}
