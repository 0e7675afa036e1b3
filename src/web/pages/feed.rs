//! The attempts of a key as a feed (Atom), for those who subscribe to a key.

use actix_web::http::StatusCode;
use askama::Template;
use shiftboss_queue::reader::ReadResult;

use super::Sight;
use super::asked::Asked;
use super::key::ended_of;
use super::parts::{in_address, text};
use crate::stores::outcome_words::in_words;
use crate::text::{timestamp, took};

pub(super) const ATOM: &str = "application/atom+xml; charset=utf-8";

#[derive(Template)]
#[template(path = "key.xml")]
pub(super) struct Feed {
    site: String,
    key: String,
    address: String,
    updated: String,
    entries: Vec<Entry>,
}

struct Entry {
    /// Of its end, which no other one has.
    number: i64,
    words: String,
    ended: String,
    text: String,
}

pub(super) fn ask(sight: &Sight<'_>, asked: &Asked) -> ReadResult<(StatusCode, Feed)> {
    let key = asked.get("k");
    let ended = ended_of(sight, key)?;
    let entries = ended.iter().map(|ended| {
        let took = took(ended.took_ms, ended.duration_seconds);
        let worker = ended.worker.as_deref().map_or("a classic worker".to_owned(), text);
        Entry {
            number: ended.ended,
            words: in_words(&ended.outcome, ended.exit_code),
            ended: timestamp(ended.finished),
            text: format!("Attempt {} by {worker}, took {took}.", ended.attempt),
        }
    });
    let last = ended.iter().map(|ended| ended.finished).max();
    let feed = Feed {
        site: sight.page.settings.title.clone(),
        key: text(key),
        address: in_address(key),
        updated: timestamp(last.unwrap_or(0)),
        entries: entries.collect(),
    };
    Ok((StatusCode::OK, feed))
}
