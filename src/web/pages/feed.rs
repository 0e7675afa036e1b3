//! The attempts of a key as a feed (Atom), for who wants to be told of them.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use askama::Template;
use shiftboss_queue::reader::ReadResult;

use super::asked::Asked;
use super::key::ended_of;
use super::parts::{in_address, text};
use super::{Sight, show_as};
use crate::stores::outcome_words::in_words;
use crate::text::{timestamp, took};
use crate::web::Page;

const ATOM: &str = "application/atom+xml; charset=utf-8";

pub(super) async fn get(request: HttpRequest, page: web::Data<Page>, asked: Asked) -> HttpResponse {
    let key = asked.get("k").to_owned();
    let question = format!("feed {key}");
    show_as(ATOM, &request, page, question, move |sight| Feed::ask(sight, &key)).await
}

#[derive(Template)]
#[template(path = "key.xml")]
struct Feed {
    site: String,
    key: String,
    /// The key as part of an address.
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

impl Feed {
    fn ask(sight: &Sight<'_>, key: &str) -> ReadResult<(StatusCode, Self)> {
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
        let feed = Self {
            site: sight.page.settings.title.clone(),
            key: text(key),
            address: in_address(key),
            updated: timestamp(last.unwrap_or(0)),
            entries: entries.collect(),
        };
        Ok((StatusCode::OK, feed))
    }
}
