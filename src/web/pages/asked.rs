//! What can be asked for in an address, and its bounds. What is out of bounds is refused by [`refused`](super::super::refused) with the
//! sentence that stands here.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use shiftboss_queue::reader::EndedAttempts;

use crate::runner::log_directory::is_day;
use crate::stores::outcome_words::known;

/// The longest key that there is.
const KEY_BYTES_MAX: usize = 4_096;
/// A fetcher's name is part of a file's.
const NAME_BYTES_MAX: usize = 255;
/// Jobs that are listed where no number is given, and at the most.
const COUNT: usize = 100;
pub(super) const COUNT_MAX: usize = 1_000;
/// Keys before a key that are counted.
pub(in crate::web) const KEYS_BEFORE_MAX: usize = 10_000;
/// Keys that a search lists.
pub(in crate::web) const FOUND_MAX: usize = 100;
/// Attempts on a page.
pub(in crate::web) const ENDS: usize = 100;
/// Attempts among which those are searched for that are asked for: what is rare is far back.
pub(in crate::web) const AMONG: usize = 10_000;
/// The newest day that has any output.
pub(super) const LATEST: &str = "latest";

#[derive(Deserialize)]
pub(in crate::web) struct OfKey {
    #[serde(rename = "k", deserialize_with = "key")]
    pub(in crate::web) key: String,
}

#[derive(Deserialize)]
pub(in crate::web) struct Count {
    #[serde(rename = "n", default = "usual_count", deserialize_with = "count")]
    pub(in crate::web) count: usize,
}

/// Tasks that are set apart.
#[derive(Debug, Deserialize)]
pub(super) struct TasksApart {
    #[serde(deserialize_with = "apart")]
    pub status: Apart,
    #[serde(rename = "n", default = "usual_count", deserialize_with = "count")]
    pub count: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Apart {
    Delayed,
    DeadLetter,
}

#[derive(Deserialize)]
pub(in crate::web) struct Prefix {
    #[serde(rename = "q", default, deserialize_with = "prefix")]
    pub(in crate::web) prefix: String,
}

#[derive(Deserialize)]
pub(super) struct OfFetcher {
    #[serde(rename = "f", deserialize_with = "name")]
    pub name: String,
}

/// Attempts that ended. A form sends what was not filled in as well, empty.
#[derive(Debug, Deserialize)]
pub(in crate::web) struct Ends {
    #[serde(default, deserialize_with = "outcome")]
    pub outcome: String,
    #[serde(default, deserialize_with = "name")]
    pub fetcher: String,
    before: Option<i64>,
}

impl Ends {
    pub(in crate::web) fn attempts(&self) -> EndedAttempts {
        EndedAttempts {
            outcomes: match known(&self.outcome) {
                None if self.outcome == "failed" => EndedAttempts::FAILED.to_vec(),
                word => word.into_iter().collect(),
            },
            fetcher: (!self.fetcher.is_empty()).then(|| self.fetcher.clone()),
            before: self.before,
            among: Some(AMONG),
            count: ENDS,
            ..EndedAttempts::default()
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

fn usual_count() -> usize {
    COUNT
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

fn count<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    let refused = || D::Error::custom("n is a number from 1 to 1000.");
    let text = String::deserialize(from)?;
    text.parse().ok().filter(|count| (1..=COUNT_MAX).contains(count)).ok_or_else(refused)
}

fn apart<'de, D: Deserializer<'de>>(from: D) -> Result<Apart, D::Error> {
    match &*String::deserialize(from)? {
        "delayed" => Ok(Apart::Delayed),
        "dead_letter" => Ok(Apart::DeadLetter),
        _ => Err(D::Error::custom("status is delayed or dead_letter.")),
    }
}

fn outcome<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let word = String::deserialize(from)?;
    if word.is_empty() || word == "failed" || known(&word).is_some() {
        return Ok(word);
    }
    let words = "outcome is failed, success, failure, timeout, released, undone or expired.";
    Err(D::Error::custom(words))
}

fn day<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let day = String::deserialize(from)?;
    let is_one = day == LATEST || is_day(&day);
    if is_one {
        Ok(day)
    } else {
        Err(D::Error::custom("day is a date such as 2026-11-21, or latest."))
    }
}
