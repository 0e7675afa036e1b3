//! What can be asked for in an address, of pages and of objects alike, and its bounds. What is out of bounds is refused, on a page or, for
//! programs, in an object, with the sentence that stands here.

use std::collections::BTreeMap;
use std::future::{Ready, ready};
use std::ops::RangeInclusive;
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::error::InternalError;
use actix_web::{Error, FromRequest, HttpRequest, web};
use serde::de::DeserializeOwned;
use shiftboss_protocol::answers::TaskStatus;
use shiftboss_protocol::model::KEY_MAX_BYTES;
use shiftboss_queue::reader::{EndedAttempts, Grouping, StatsOf, TasksWith};

use super::bad_request;
use crate::runner::log_directory::is_day;
use crate::stores::outcome_words::known;
use crate::text::shown;
use crate::view::question::Question;
use crate::web::{Page, api};

/// A fetcher's name is part of a file's.
const NAME_BYTES_MAX: usize = 255;
/// Rows where no number is given, and the most.
const COUNT: usize = 100;
pub(super) const COUNT_MAX: usize = 1_000;
/// Keys that a search lists.
pub(super) const FOUND_MAX: usize = 100;
/// Attempts among which those are searched for that are asked for: what is rare is far back.
pub(super) const AMONG: usize = 10_000;
/// Hours that are summed up where no number is given, and the most: those that are kept.
const HOURS: u64 = 24;
const HOURS_MAX: u64 = 90 * 24;
/// The newest day that has any output.
pub(super) const LATEST: &str = "latest";

/// The statuses of tasks, as they are asked for and as people read them.
pub(super) const STATUSES: [(&str, &str, TaskStatus); 5] = [
    ("failed", "failed", TaskStatus::Failed),
    ("dead_letter", "dead letters", TaskStatus::DeadLetter),
    ("delayed", "delayed", TaskStatus::Delayed),
    ("waiting", "waiting", TaskStatus::Waiting),
    ("in_flight", "in flight", TaskStatus::InFlight),
];

/// Names of what can be given, what it may be, and what is said of all else.
type Bounds = (&'static [&'static str], fn(&str) -> bool, &'static str);

const BOUNDS: [Bounds; 11] = [
    (&["k", "q", "text"], |it| it.len() <= KEY_MAX_BYTES, "No key has more than 4096 bytes."),
    (
        &["f", "fetcher", "sort"],
        |it| it.len() <= NAME_BYTES_MAX,
        "No fetcher's name has more than 255 bytes.",
    ),
    (&["g", "group"], |it| it.len() <= NAME_BYTES_MAX, "No group's name has more than 255 bytes."),
    (&["n"], |it| is_in(it, 1..=COUNT_MAX as u64), "n is a number from 1 to 1000."),
    (&["hours"], |it| is_in(it, 1..=HOURS_MAX), "hours is a number from 1 to 2160."),
    (
        &["status"],
        |it| status(it).is_some(),
        "status is failed, dead_letter, delayed, waiting or in_flight.",
    ),
    (
        &["outcome"],
        |it| it == "failed" || known(it).is_some(),
        "outcome is failed, success, failure, timeout, released, undone, expired or cancelled.",
    ),
    (&["by"], |it| word::<Grouping>(it).is_some(), "by is all, fetcher, hour, day or fetcher_day."),
    (&["day"], |it| it == LATEST || is_day(it), "day is a date such as 2026-11-21, or latest."),
    (
        &["before", "since", "attempt"],
        |it| it.parse::<i64>().is_ok(),
        "before, since and attempt are numbers.",
    ),
    (&["desc", "raw"], |it| ["0", "1"].contains(&it), "desc and raw are 0 or 1."),
];

fn is_in(text: &str, bounds: RangeInclusive<u64>) -> bool {
    text.parse().is_ok_and(|number| bounds.contains(&number))
}

fn status(word: &str) -> Option<TaskStatus> {
    STATUSES.iter().find(|it| it.0 == word).map(|it| it.2)
}

/// What a word stands for in JSON.
fn word<T: DeserializeOwned>(word: &str) -> Option<T> {
    serde_json::from_value(word.into()).ok()
}

/// What is given, within its bounds; what is empty is not given: a form sends that, too.
#[derive(Debug, Clone, Default)]
pub(in crate::web) struct Asked(BTreeMap<String, String>);

impl Asked {
    pub(super) fn read(path: &str, query: &str) -> Result<Self, String> {
        let pairs = web::Query::<Vec<(String, String)>>::from_query(query);
        let pairs = pairs.map_err(|error| error.to_string())?.into_inner();
        let mut given = BTreeMap::new();
        for (name, value) in pairs.into_iter().filter(|(_, value)| !value.is_empty()) {
            let bounds = BOUNDS.iter().find(|(names, ..)| names.contains(&&*name));
            let Some((_, fits, refusal)) = bounds else { continue };
            if !fits(&value) {
                return Err((*refusal).to_owned());
            }
            given.insert(name, value);
        }
        let (needed, what) = match path {
            "/hold" if given.contains_key("g") => return Ok(Self(given)),
            "/key" | "/key.atom" | "/hold" | "/output" | "/api/v1/why" => ("k", "the key"),
            "/fetcher" => ("f", "the fetcher"),
            _ => return Ok(Self(given)),
        };
        let is_there = given.contains_key(needed);
        is_there.then_some(Self(given)).ok_or_else(|| format!("{needed} is missing: {what}."))
    }

    /// Empty: it is not given.
    pub(in crate::web) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// The same, unless something else is given.
    pub(super) fn with_default(mut self, name: &str, value: &str) -> Self {
        self.0.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        self
    }

    /// All that is given, but for its empty values.
    pub(super) fn given(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    fn text(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }

    pub(super) fn number(&self, name: &str) -> Option<i64> {
        self.get(name).parse().ok()
    }

    pub(super) fn status(&self) -> Option<TaskStatus> {
        status(self.get("status"))
    }

    pub(super) fn count(&self) -> usize {
        self.get("n").parse().unwrap_or(COUNT)
    }

    /// What is asked for at an address, if it lists something.
    pub(in crate::web) fn question(&self, path: &str, now: i64) -> Option<Question> {
        let (count, since) = (self.count(), self.number("since"));
        Some(match path {
            "queue" => Question::Next(count),
            "tasks" => Question::Tasks(TasksWith {
                status: self.status(),
                fetcher: self.text("fetcher"),
                group: self.text("group"),
                since,
                count,
            }),
            "groups" => Question::Groups(count),
            "held" => Question::Held(count),
            "log" => Question::Log(EndedAttempts {
                outcomes: match (self.get("outcome"), known(self.get("outcome"))) {
                    ("failed", _) => EndedAttempts::FAILED.to_vec(),
                    (_, word) => word.into_iter().collect(),
                },
                fetcher: self.text("fetcher"),
                before: self.number("before"),
                since,
                among: self.get("k").is_empty().then_some(AMONG),
                key: self.text("k"),
                count,
            }),
            "search" => Question::Keys(self.get("q").trim().to_owned(), FOUND_MAX),
            "stats" => {
                let hours: u64 = self.get("hours").parse().unwrap_or(HOURS);
                let by = word(self.get("by")).unwrap_or(Grouping::All);
                Question::Sums(StatsOf::last(Duration::from_secs(hours * 3_600), by, now))
            }
            _ => return None,
        })
    }
}

impl FromRequest for Asked {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Self::read(request.path(), request.query_string()).map_err(|why| {
            let refused = match request.app_data::<web::Data<Page>>() {
                Some(page) if !request.path().starts_with(api::PREFIX) => {
                    bad_request(request, page, &shown(&why))
                }
                _ => api::bad_request(&shown(&why)),
            };
            InternalError::from_response(why, refused).into()
        }))
    }
}
