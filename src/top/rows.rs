//! The rows of the four lists, as far as a picture has them. Pure.
//!
//! Texts from outside are cut here, and what would steer a terminal is shown by its number.

use std::collections::HashSet;

use shiftboss_queue::answers::FetcherRecord;
use shiftboss_queue::answers::{Ended, FetcherStatus, Holding, Next, StatsGroup};

use super::picture::{Attempt, Picture};
use super::tabs::Tab;
use crate::standing::fetchers::{failed_run, next_run};
use crate::standing::held_for;
use crate::standing::turns::Turns;
use crate::stores::outcome_words::in_words;
use crate::text::{TEXT_WIDTH, cut, span, took};

/// A row of a list.
#[derive(Debug)]
pub struct Row {
    /// It is the same row as long as this is the same.
    pub id: String,
    pub part: Part,
    /// What can be asked about, and changed.
    pub key: Option<String>,
    /// What may have written something.
    pub attempt: Option<Attempt>,
    pub cells: Vec<Cell>,
}

/// Lists may have parts, one behind the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    First,
    Delayed,
    Held,
}

/// Of a row, what can be opened, and changed.
#[derive(Debug, Clone)]
pub struct Picked {
    pub id: String,
    pub key: Option<String>,
    pub attempt: Option<Attempt>,
}

impl Row {
    pub fn picked(&self) -> Picked {
        let Self { id, key, attempt, .. } = self;
        Picked { id: id.clone(), key: key.clone(), attempt: attempt.clone() }
    }
}

#[derive(Debug)]
pub struct Cell {
    pub text: String,
    /// What it is sorted by, before its text.
    pub value: Option<i64>,
    pub tone: Tone,
}

/// How it is with what is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Good,
    Warning,
    Bad,
}

impl Cell {
    /// A text from outside.
    fn outside(text: &str) -> Self {
        Self::word(cut(text, TEXT_WIDTH))
    }

    fn word(text: impl Into<String>) -> Self {
        Self { text: text.into(), value: None, tone: Tone::Plain }
    }

    fn number(number: i64) -> Self {
        Self { value: Some(number), ..Self::word(number.to_string()) }
    }

    /// A number that is better 0.
    fn fault(number: i64) -> Self {
        Self::number(number).with(if number > 0 { Tone::Warning } else { Tone::Plain })
    }

    fn optional(number: Option<i64>, text: impl FnOnce(i64) -> String) -> Self {
        let shown = number.map_or("-".to_owned(), text);
        Self { value: number, ..Self::word(shown) }
    }

    fn seconds(seconds: Option<i64>) -> Self {
        Self::optional(seconds, span)
    }

    fn with(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }
}

/// A tab's rows, in the order of the queue; `None`: they were not asked for.
pub fn rows(tab: Tab, picture: &Picture) -> Option<Vec<Row>> {
    let held = picture.lists.held.iter().flat_map(|held| &held.keys);
    let held: HashSet<&str> = held.map(|held| &*held.key).collect();
    Some(match tab {
        Tab::Fetchers => {
            let groups = &picture.lists.last_day.as_ref()?.groups;
            fetchers(groups, picture)
        }
        Tab::InFlight => {
            let holders = picture.queue.holders.iter();
            holders.map(|job| in_flight(job, &held, picture)).collect()
        }
        Tab::Next => {
            let next = picture.lists.next.as_ref()?.keys.iter().enumerate();
            let turns = Turns::of(&picture.queue, !picture.has_daemon());
            let next = next.map(|(before, next)| waiting(before, next, &turns, picture.at));
            next.chain(delayed(&held, picture)).chain(held_ones(picture)).collect()
        }
        Tab::Ended => {
            let ended = picture.lists.ended.as_ref()?.attempts.iter();
            ended.map(|attempt| self::ended(attempt, &held, picture.at)).collect()
        }
    })
}

/// Those that have a list, then those that the daemon runs and that have none yet.
fn fetchers(groups: &[StatsGroup], picture: &Picture) -> Vec<Row> {
    let queue = &picture.queue;
    let record = |name: &str| queue.managed_fetchers.iter().find(|record| &*record.name == name);
    let has_list = |name: &str| queue.fetchers.iter().any(|list| list.name == name);
    let without = queue.managed_fetchers.iter().filter(|record| !has_list(&record.name));
    let lists = queue.fetchers.iter();
    let lists = lists.map(|list| (&*list.name, Some(list), record(&list.name)));
    let all = lists.chain(without.map(|record| (&*record.name, None, Some(record))));
    all.map(|(name, list, record)| {
        let group = groups.iter().find(|group| group.fetcher.as_deref() == Some(name));
        fetcher(name, list, record, &group.cloned().unwrap_or_default(), picture.at)
    })
    .collect()
}

fn fetcher(
    name: &str,
    list: Option<&FetcherStatus>,
    record: Option<&FetcherRecord>,
    group: &StatsGroup,
    now: i64,
) -> Row {
    let share = (group.jobs > 0).then(|| group.success.saturating_mul(100) / group.jobs);
    let tone = match share {
        Some(..50) => Tone::Bad,
        Some(50..90) => Tone::Warning,
        _ => Tone::Plain,
    };
    let next = record.map_or("-".to_owned(), |record| next_run(record.next_run, now));
    let failed = record.and_then(failed_run);
    let state = list.map_or("no list", |it| if it.complete { "complete" } else { "growing" });
    let number =
        |of: fn(&FetcherStatus) -> i64| list.map_or(Cell::word("-"), |it| Cell::number(of(it)));
    Row {
        id: name.to_owned(),
        part: Part::First,
        key: None,
        attempt: None,
        cells: vec![
            Cell::outside(name),
            number(|it| it.run),
            Cell::word(state),
            number(|it| it.lines),
            number(|it| it.pending),
            list.map_or(Cell::word("-"), |it| Cell::fault(it.skipped)),
            Cell::seconds(list.and_then(|it| it.age_seconds)),
            number(|it| it.older_runs),
            Cell::optional(share, |share| format!("{share} %")).with(tone),
            Cell::seconds(group.cycle_seconds),
            Cell { value: record.and_then(|record| record.next_run), ..Cell::word(next) },
            Cell::word(failed.map_or(String::new(), |it| format!("exit code {}", it.exit_code)))
                .with(Tone::Bad),
        ],
    }
}

/// The row of a key, its cells yet to come.
fn of_key(id: String, key: &str) -> Row {
    Row { id, part: Part::First, key: Some(key.to_owned()), attempt: None, cells: Vec::new() }
}

fn key_cell(key: &str, held: &HashSet<&str>) -> Cell {
    let cell = Cell::outside(key);
    if !held.contains(key) {
        return cell;
    }
    Cell { text: cell.text + " (held)", ..cell }.with(Tone::Warning)
}

fn in_flight(job: &Holding, held: &HashSet<&str>, picture: &Picture) -> Row {
    let row = of_key(job.key.clone(), &job.key);
    let daemon = job.daemon.as_deref();
    Row {
        attempt: Some(Attempt { key: job.key.clone(), started: job.since, number: job.attempt }),
        cells: vec![
            job.worker.as_deref().map_or(Cell::word("(classic)"), Cell::outside),
            key_cell(&job.key, held),
            Cell::optional(job.attempt, |attempt| attempt.to_string()),
            Cell::seconds(Some(picture.at.saturating_sub(job.since))),
            Cell::seconds(job.lease_seconds.or(picture.queue.lease_seconds)),
            daemon.map_or(Cell::word(""), Cell::outside),
        ],
        ..row
    }
}

fn waiting(before: usize, next: &Next, turns: &Turns, now: i64) -> Row {
    let ago = next.last_started.map(|started| now.saturating_sub(started));
    let last = ago.map_or("never".to_owned(), |seconds| format!("{} ago", span(seconds)));
    let last = if next.again { last + ", lost" } else { last };
    let last = if next.bumped { last + ", ahead" } else { last };
    let place = i64::try_from(before).unwrap_or(i64::MAX).saturating_add(1);
    Row {
        cells: vec![
            Cell::number(place),
            Cell::outside(&next.key),
            Cell { value: next.last_started, ..Cell::word(last) },
            Cell::outside(&next.fetcher),
            Cell { value: turns.seconds(before), ..Cell::word(turns.words(before)) },
            Cell::outside(&next.payload),
        ],
        ..of_key(next.key.clone(), &next.key)
    }
}

/// Tasks that are tried again have no place before their time; they stand behind those that have one, the first one first.
fn delayed(held: &HashSet<&str>, picture: &Picture) -> impl Iterator<Item = Row> {
    let tasks = picture.lists.delayed.iter().flat_map(|delayed| &delayed.tasks);
    tasks.map(|task| {
        let left = task.due.map(|due| due.saturating_sub(picture.at).max(0));
        let again = match left {
            Some(left @ 1..) => format!("due in {}", span(left)),
            _ => "due".to_owned(),
        };
        let ago = task.since.map(|since| picture.at.saturating_sub(since));
        let since = ago.map_or("-".to_owned(), |ago| format!("{} ago", span(ago)));
        Row {
            cells: vec![
                Cell { value: Some(i64::MAX - 1), ..Cell::word("delayed") }.with(Tone::Warning),
                key_cell(&task.key, held),
                Cell { value: task.since, ..Cell::word(since) },
                Cell::outside(&task.fetcher),
                Cell { value: left, ..Cell::word(again) },
                Cell::outside(&task.reason),
            ],
            part: Part::Delayed,
            attempt: task.since.map(|since| Attempt {
                key: task.key.clone(),
                started: since,
                number: None,
            }),
            // When its time comes it waits, and is selected still.
            ..of_key(task.key.clone(), &task.key)
        }
    })
}

/// Keys that are held have no place, either.
fn held_ones(picture: &Picture) -> impl Iterator<Item = Row> {
    let held = picture.lists.held.iter().flat_map(|held| &held.keys);
    held.map(|held| Row {
        part: Part::Held,
        cells: vec![
            Cell { value: Some(i64::MAX), ..Cell::word("held") }.with(Tone::Warning),
            Cell::outside(&held.key),
            Cell::word(""),
            Cell::word(""),
            Cell::word(match held.hold.until {
                None => "until unheld".to_owned(),
                Some(_) => held_for(&held.hold, picture.at),
            }),
            Cell::outside(
                format!("by {}: {}", held.hold.by, held.hold.reason).trim_end_matches(": "),
            ),
        ],
        ..of_key(held.key.clone(), &held.key)
    })
}

fn ended(ended: &Ended, held: &HashSet<&str>, now: i64) -> Row {
    let tone = match &*ended.outcome {
        "success" => Tone::Good,
        "failure" | "timeout" => Tone::Bad,
        _ => Tone::Warning,
    };
    let name = |name: &Option<String>| name.as_deref().map_or(Cell::word("-"), Cell::outside);
    let row = of_key(ended.ended.to_string(), &ended.key);
    let (key, number) = (ended.key.clone(), Some(ended.attempt));
    let ms = ended.took_ms.unwrap_or(ended.duration_seconds.saturating_mul(1_000));
    let took = took(ended.took_ms, ended.duration_seconds);
    Row {
        attempt: Some(Attempt { key, started: ended.started, number }),
        cells: vec![
            key_cell(&ended.key, held),
            Cell::word(in_words(&ended.outcome, ended.exit_code)).with(tone),
            Cell { value: Some(ms), ..Cell::word(took) },
            name(&ended.worker),
            Cell::seconds(Some(now.saturating_sub(ended.finished))),
            name(&ended.fetcher),
            Cell::number(ended.attempt),
        ],
        ..row
    }
}
