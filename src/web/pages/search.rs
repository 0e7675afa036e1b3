//! Keys by how they begin: what is typed into the field on each page.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use askama::Template;
use shiftboss_queue::answers::KnownKey;
use shiftboss_queue::reader::ReadResult;

use super::asked::{FOUND_MAX, Prefix};
use super::parts::{Frame, KeyLink, text};
use super::{Sight, show};
use crate::stores::outcome_words::{in_words, of_code};
use crate::text::ago;
use crate::web::Page;

pub(super) async fn get(
    request: HttpRequest,
    page: web::Data<Page>,
    asked: web::Query<Prefix>,
) -> HttpResponse {
    let prefix = asked.into_inner().prefix;
    let question = format!("search {prefix}");
    let ask = move |sight: &Sight<'_>| Ok((StatusCode::OK, Search::ask(sight, prefix)?));
    show(&request, page, question, ask).await
}

#[derive(Template)]
#[template(path = "search.html")]
struct Search {
    frame: Frame,
    prefix: String,
    keys: Vec<Found>,
    truncated: bool,
}

struct Found {
    key: KeyLink,
    last_run: String,
    /// The outcome's word, for its colour, and in full.
    outcome: &'static str,
    words: String,
}

impl Search {
    fn ask(sight: &Sight<'_>, prefix: String) -> ReadResult<Self> {
        let Sight { reader, now, .. } = *sight;
        let found = reader.search(&prefix, FOUND_MAX)?;
        Ok(Self {
            frame: sight.frame("Keys", &reader.status(now)?),
            prefix: text(&prefix),
            keys: found.keys.iter().map(|known| Found::of(known, now)).collect(),
            truncated: found.truncated,
        })
    }
}

impl Found {
    fn of(known: &KnownKey, now: i64) -> Self {
        let outcome = known.exit_code.map_or("", of_code);
        let words = match known.last_started {
            None => "-".to_owned(),
            Some(_) if outcome.is_empty() => "in flight".to_owned(),
            Some(_) => in_words(outcome, known.exit_code),
        };
        let last = known
            .last_started
            .map_or("never".to_owned(), |started| ago(now.saturating_sub(started)));
        Self { key: KeyLink::to(&known.key), last_run: last, outcome, words }
    }
}
