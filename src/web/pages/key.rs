//! A key: where it stands, its rows, and what became of its last jobs.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use askama::Template;
use shiftboss_queue::answers::{Ended, KeyRow, RowState, Why};
use shiftboss_queue::reader::{EndedAttempts, ReadResult};

use super::asked::{ENDS, KEYS_BEFORE_MAX, OfKey};
use super::parts::{Attempt, Frame, in_address, output, text};
use super::payload::{self, Part};
use super::{Sight, show};
use crate::standing::{row_state, sentences};
use crate::web::Page;

pub(super) async fn get(
    request: HttpRequest,
    page: web::Data<Page>,
    asked: web::Query<OfKey>,
) -> HttpResponse {
    let key = asked.into_inner().key;
    let question = format!("key {key}");
    let ask = move |sight: &Sight<'_>| {
        let page = KeyPage::ask(sight, &key)?;
        let status = if page.is_known { StatusCode::OK } else { StatusCode::NOT_FOUND };
        Ok((status, page))
    };
    show(&request, page, question, ask).await
}

#[derive(Template)]
#[template(path = "key.html")]
struct KeyPage {
    frame: Frame,
    is_known: bool,
    /// The key itself, for what is done about it.
    key: String,
    can_retry: bool,
    can_bump: bool,
    /// Where it is asked how long it is to be held.
    hold: Option<String>,
    can_unhold: bool,
    feed: String,
    sentences: Vec<(&'static str, String)>,
    /// Where that is shown which its job in flight has written so far.
    output: Option<String>,
    rows: Vec<Row>,
    attempts: Vec<Attempt>,
}

struct Row {
    fetcher: String,
    run: i64,
    state: &'static str,
    payload: Vec<Part>,
}

impl KeyPage {
    fn ask(sight: &Sight<'_>, key: &str) -> ReadResult<Self> {
        let Sight { reader, now, .. } = *sight;
        let mut why = reader.why(now, key, KEYS_BEFORE_MAX)?;
        let status = reader.status(now)?;
        if let Some(why) = why.as_mut().filter(|_| sight.is_down(&status)) {
            why.expected_in_seconds = None;
        }
        let ended = ended_of(sight, key)?;
        let attempts = ended.iter().map(|ended| Attempt::of(ended, sight));
        let frame = sight.frame(&text(key), &status);
        let rows = || why.iter().flat_map(|Why { rows, .. }| rows);
        let is_ended = |row: &KeyRow| {
            matches!(row.state, RowState::Dispatched | RowState::Delayed | RowState::DeadLetter)
        };
        let is_held = why.as_ref().is_some_and(|why| why.hold.is_some());
        let is_bumped = why.as_ref().is_some_and(|why| why.bump.is_some());
        let can_hold = frame.can_act && why.is_some() && !is_held;
        Ok(Self {
            can_retry: frame.can_act && !is_held && rows().any(is_ended),
            can_bump: frame.can_act && !is_held && !is_bumped && rows().next().is_some(),
            hold: can_hold.then(|| format!("hold?k={}", in_address(key))),
            can_unhold: frame.can_act && is_held,
            frame,
            is_known: why.is_some(),
            key: key.to_owned(),
            feed: format!("key.atom?k={}", in_address(key)),
            sentences: why.as_ref().map(|why| sentences(why, now)).unwrap_or_default(),
            output: why
                .as_ref()
                .and_then(|why| why.in_flight.as_ref())
                .and_then(|out| output(key, out.since, out.attempt, sight)),
            rows: rows().map(row).collect(),
            attempts: attempts.collect(),
        })
    }
}

/// The attempts of a key, the last one first.
pub(super) fn ended_of(sight: &Sight<'_>, key: &str) -> ReadResult<Vec<Ended>> {
    let key = Some(key.to_owned());
    let asked = EndedAttempts { key, count: ENDS, ..EndedAttempts::default() };
    Ok(sight.reader.ended_attempts(&asked)?.attempts)
}

fn row(row: &KeyRow) -> Row {
    Row {
        fetcher: text(&row.fetcher),
        run: row.run,
        state: row_state(row),
        payload: payload::parts(&row.payload),
    }
}
