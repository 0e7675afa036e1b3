//! What can be asked for in an address, of pages and of objects alike, and its bounds. What is out of bounds is refused by
//! [`refused`](super::super::refused) with the sentence that stands here.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use shiftboss_queue::answers::TaskStatus;
use shiftboss_queue::reader::{EndedAttempts, Grouping, TasksWith};

use crate::runner::log_directory::is_day;
use crate::stores::outcome_words::known;

/// The longest key that there is.
const KEY_BYTES_MAX: usize = 4_096;
/// A fetcher's name is part of a file's.
const NAME_BYTES_MAX: usize = 255;
/// Rows where no number is given, and at the most.
const COUNT: usize = 100;
pub(super) const COUNT_MAX: usize = 1_000;
/// Keys before a key that are counted.
pub(in crate::web) const KEYS_BEFORE_MAX: usize = 10_000;
/// Keys that a search lists.
pub(in crate::web) const FOUND_MAX: usize = 100;
/// Attempts among which those are searched for that are asked for: what is rare is far back.
pub(in crate::web) const AMONG: usize = 10_000;
/// Hours that are summed up where no number is given, and at the most: those that are kept.
const HOURS: u64 = 24;
const HOURS_MAX: u64 = 90 * 24;
/// The newest day that has any output.
pub(super) const LATEST: &str = "latest";

/// The key that something is asked about.
#[derive(Deserialize)]
pub(in crate::web) struct OfKey {
    #[serde(rename = "k", deserialize_with = "key")]
    pub(in crate::web) key: String,
}

#[derive(Deserialize)]
pub(super) struct OfFetcher {
    #[serde(rename = "f", deserialize_with = "name")]
    pub name: String,
}

/// What is listed: each listing takes of it what it can. A form sends what was not filled in as well, empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::web) struct Asked {
    #[serde(rename = "k", deserialize_with = "key")]
    pub(in crate::web) key: String,
    #[serde(rename = "q", deserialize_with = "prefix")]
    pub(in crate::web) prefix: String,
    #[serde(rename = "n", deserialize_with = "count")]
    count: Option<usize>,
    #[serde(deserialize_with = "name")]
    pub(super) fetcher: String,
    #[serde(deserialize_with = "outcome")]
    pub(super) outcome: String,
    #[serde(deserialize_with = "status")]
    status: Option<TaskStatus>,
    before: Option<i64>,
    since: Option<i64>,
    #[serde(deserialize_with = "hours")]
    hours: Option<u64>,
    pub(in crate::web) by: Option<Grouping>,
    /// Rows that have this text.
    #[serde(deserialize_with = "key")]
    pub(super) text: String,
    /// The column by which rows are sorted.
    #[serde(deserialize_with = "name")]
    pub(super) sort: String,
    /// 1: the last one first.
    pub(super) desc: u8,
}

impl Asked {
    /// What was given, as an address has it; what is empty was not.
    pub(super) fn given(&self) -> Vec<(&'static str, String)> {
        let number = |number: Option<i64>| number.map_or_else(String::new, |it| it.to_string());
        let status = STATUSES.iter().find(|it| Some(it.2) == self.status).map_or("", |it| it.0);
        vec![
            ("q", self.prefix.clone()),
            ("n", self.count.map_or_else(String::new, |count| count.to_string())),
            ("status", status.to_owned()),
            ("fetcher", self.fetcher.clone()),
            ("outcome", self.outcome.clone()),
            ("before", number(self.before)),
            ("text", self.text.clone()),
            ("sort", self.sort.clone()),
            ("desc", if self.desc == 1 { "1" } else { "" }.to_owned()),
        ]
    }

    pub(in crate::web) fn count(&self) -> usize {
        self.count.unwrap_or(COUNT)
    }

    pub(in crate::web) fn hours(&self) -> u64 {
        self.hours.unwrap_or(HOURS)
    }

    pub(super) fn status(&self) -> TaskStatus {
        self.status.unwrap_or(TaskStatus::Failed)
    }

    pub(in crate::web) fn tasks(&self) -> TasksWith {
        let fetcher = (!self.fetcher.is_empty()).then(|| self.fetcher.clone());
        TasksWith { status: self.status, fetcher, since: self.since, count: self.count() }
    }

    pub(in crate::web) fn attempts(&self) -> EndedAttempts {
        let given = |text: &String| (!text.is_empty()).then(|| text.clone());
        let key = given(&self.key);
        EndedAttempts {
            outcomes: match known(&self.outcome) {
                None if self.outcome == "failed" => EndedAttempts::FAILED.to_vec(),
                word => word.into_iter().collect(),
            },
            fetcher: given(&self.fetcher),
            before: self.before,
            since: self.since,
            among: key.is_none().then_some(AMONG),
            key,
            count: self.count(),
        }
    }
}

/// What was written by the jobs of a key.
#[derive(Deserialize)]
pub(super) struct OutputOf {
    #[serde(default = "latest", deserialize_with = "day")]
    pub day: String,
    pub attempt: Option<i64>,
    /// 1: as a text.
    #[serde(default)]
    pub raw: u8,
}

fn latest() -> String {
    LATEST.to_owned()
}

/// A text of so many bytes at the most.
fn bounded<'de, D: Deserializer<'de>>(
    from: D,
    bytes_max: usize,
    too_long: &str,
) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    if text.len() > bytes_max { Err(D::Error::custom(too_long)) } else { Ok(text) }
}

fn key<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    bounded(from, KEY_BYTES_MAX, "No key has more than 4096 bytes.")
}

fn prefix<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    key(from).map(|text| text.trim().to_owned())
}

fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    bounded(from, NAME_BYTES_MAX, "No fetcher's name has more than 255 bytes.")
}

/// What `read` makes of a text; nothing of an empty one.
fn read<'de, D: Deserializer<'de>, T>(
    from: D,
    read: impl FnOnce(&str) -> Option<T>,
    refused: &str,
) -> Result<Option<T>, D::Error> {
    match &*String::deserialize(from)? {
        "" => Ok(None),
        text => read(text).map(Some).ok_or_else(|| D::Error::custom(refused)),
    }
}

fn count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    let fits = |text: &str| text.parse().ok().filter(|count| (1..=COUNT_MAX).contains(count));
    read(from, fits, "n is a number from 1 to 1000.")
}

fn hours<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let fits = |text: &str| text.parse().ok().filter(|hours| (1..=HOURS_MAX).contains(hours));
    read(from, fits, "hours is a number from 1 to 2160.")
}

/// The statuses of tasks, as they are asked for and as people read them.
pub(super) const STATUSES: [(&str, &str, TaskStatus); 5] = [
    ("failed", "failed", TaskStatus::Failed),
    ("dead_letter", "dead letters", TaskStatus::DeadLetter),
    ("delayed", "delayed", TaskStatus::Delayed),
    ("waiting", "waiting", TaskStatus::Waiting),
    ("in_flight", "in flight", TaskStatus::InFlight),
];

fn status<'de, D: Deserializer<'de>>(from: D) -> Result<Option<TaskStatus>, D::Error> {
    let known = |text: &str| STATUSES.iter().find(|it| it.0 == text).map(|it| it.2);
    read(from, known, "status is failed, dead_letter, delayed, waiting or in_flight.")
}

fn outcome<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let is_known =
        |word: &str| (word == "failed" || known(word).is_some()).then(|| word.to_owned());
    let words = "outcome is failed, success, failure, timeout, released, undone or expired.";
    Ok(read(from, is_known, words)?.unwrap_or_default())
}

fn day<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let is_one = |day: &str| (day == LATEST || is_day(day)).then(|| day.to_owned());
    Ok(read(from, is_one, "day is a date such as 2026-11-21, or latest.")?.unwrap_or_else(latest))
}
