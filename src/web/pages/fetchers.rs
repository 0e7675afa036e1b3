//! The fetchers: their lists, how their jobs went, and the runs of those that the daemon runs itself. One of them: its days, too.

use std::time::Duration;

use actix_web::http::StatusCode;
use askama::Template;
use shiftboss_protocol::answers::QueueStatus;
use shiftboss_queue::reader::{Grouping, ReadResult, StatsOf};

use super::Sight;
use super::asked::Asked;
use super::bars::{Picture, Unit};
use super::parts::{Frame, Grid, in_address, text};
use super::sparkline::DAYS;
use crate::view::machines::{self, failed_run};
use crate::view::table::Table;

const DAY: Duration = Duration::from_secs(24 * 3_600);
/// Fetchers that have a line of their days, where no more are listed.
const LINES_MAX: usize = 100;
const FETCHERS_MAX: usize = 1_000;
const REJECTED_MAX: usize = 100;

#[derive(Template)]
#[template(path = "fetchers.html")]
pub(super) struct All {
    frame: Frame,
    fetchers: Grid,
    truncated: bool,
    runs: Grid,
    rejected: Grid,
}

#[derive(Template)]
#[template(path = "fetcher.html")]
pub(super) struct One {
    frame: Frame,
    has_list: bool,
    list: Grid,
    runs: Grid,
    has_failed: bool,
    ended: Picture,
    /// Where its attempts are.
    log: String,
}

pub(super) fn all(sight: &Sight<'_>, asked: &Asked) -> ReadResult<(StatusCode, All)> {
    let queue = &sight.snapshot.queue;
    let files = &queue.rejected_files[..queue.rejected_files.len().min(REJECTED_MAX)];
    let mut fetchers = listed(sight, queue.clone(), FETCHERS_MAX)?;
    let all = All {
        frame: sight.frame("Fetchers").at("fetchers"),
        fetchers: Grid::sorted(&mut fetchers, asked, "fetchers", sight),
        truncated: queue.fetchers.len() > FETCHERS_MAX,
        runs: runs(sight, queue),
        rejected: Grid::of(&machines::rejected(files, sight.now()), sight),
    };
    Ok((StatusCode::OK, all))
}

pub(super) fn one(sight: &Sight<'_>, asked: &Asked) -> ReadResult<(StatusCode, One)> {
    let name = asked.get("f");
    let mut queue = sight.snapshot.queue.clone();
    queue.fetchers.retain(|fetcher| fetcher.name == name);
    queue.managed_fetchers.retain(|record| &*record.name == name);
    let days = StatsOf {
        fetchers: vec![name.to_owned()],
        ..StatsOf::last(DAY * DAYS, Grouping::Day, sight.now())
    };
    let one = One {
        frame: sight.frame(&format!("Fetcher {}", text(name))),
        has_list: !queue.fetchers.is_empty(),
        has_failed: queue.managed_fetchers.iter().any(|it| failed_run(it).is_some()),
        runs: runs(sight, &queue),
        list: Grid::of(&listed(sight, queue, 1)?, sight),
        ended: Picture::ended(&sight.reader.stats(&days)?, Unit::Day, sight.now()),
        log: format!("log?fetcher={}", in_address(name)),
    };
    let is_known = !one.list.rows.is_empty() || !one.ended.bars.is_empty();
    Ok((if is_known { StatusCode::OK } else { StatusCode::NOT_FOUND }, one))
}

fn runs(sight: &Sight<'_>, queue: &QueueStatus) -> Grid {
    let table = machines::runs(&queue.managed_fetchers, sight.snapshot.up(), sight.now());
    Grid::of(&table, sight)
}

/// The first fetchers, with how their jobs went.
pub(super) fn listed(sight: &Sight<'_>, mut queue: QueueStatus, count: usize) -> ReadResult<Table> {
    let cut = queue.fetchers.split_off(count.min(queue.fetchers.len()));
    let is_cut = |name: &str| cut.iter().any(|list| list.name == name);
    queue.managed_fetchers.retain(|record| !is_cut(&record.name));
    let names: Vec<String> = queue.fetchers.iter().map(|fetcher| fetcher.name.clone()).collect();
    let sums = |time, by| {
        let of = StatsOf { fetchers: names.clone(), ..StatsOf::last(time, by, sight.now()) };
        sight.reader.stats(&of).map(|sums| sums.groups)
    };
    if names.is_empty() {
        return Ok(machines::fetchers(&queue, Some(&[]), &[], sight.snapshot.up(), sight.now()));
    }
    let last_day = sums(DAY, Grouping::Fetcher)?;
    let has_lines = names.len() <= LINES_MAX;
    let days = has_lines.then(|| sums(DAY * DAYS, Grouping::FetcherDay)).transpose()?;
    let days = days.unwrap_or_default();
    let up = sight.snapshot.up();
    let mut table = machines::fetchers(&queue, Some(&last_day), &days, up, sight.now());
    table.rows.truncate(count);
    Ok(table)
}
