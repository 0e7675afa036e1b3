//! A key: where it stands, its rows, and what became of its last jobs.

use actix_web::http::StatusCode;
use askama::Template;
use shiftboss_protocol::answers::{Ended, KeyRow, RowState, Why};
use shiftboss_queue::reader::{EndedAttempts, KEYS_BEFORE_IN_VIEWS, ReadResult};

use super::Sight;
use super::asked::Asked;
use super::parts::{Frame, Grid, hold_address, in_address, output, text};
use crate::view::key::{find, sentences};
use crate::view::listings::{self, HeldSet};
use crate::view::table::Attempt;

const ENDS: usize = 100;

#[derive(Template)]
#[template(path = "key.html")]
pub(super) struct KeyPage {
    frame: Frame,
    is_known: bool,
    /// The key itself, for what is done about it.
    key: String,
    can_retry: bool,
    can_bump: bool,
    can_cancel: bool,
    /// Where it is asked how long it is to be held.
    hold: Option<String>,
    can_unhold: bool,
    feed: String,
    sentences: Vec<(&'static str, String)>,
    /// Where that is shown which its job in flight has written so far.
    output: Option<String>,
    rows: Grid,
    attempts: Grid,
}

pub(super) fn ask(sight: &Sight<'_>, asked: &Asked) -> ReadResult<(StatusCode, KeyPage)> {
    let key = asked.get("k");
    let now = sight.now();
    let why = find(sight.reader, sight.snapshot.up(), key, KEYS_BEFORE_IN_VIEWS, now)?;
    let attempts = listings::log(&ended_of(sight, key)?, &HeldSet::new(), now);
    let frame = sight.frame(&text(key));
    let rows = || why.iter().flat_map(|Why { rows, .. }| rows);
    let is_ended = |row: &KeyRow| {
        matches!(
            row.state,
            RowState::Dispatched | RowState::Failed | RowState::Delayed | RowState::DeadLetter
        )
    };
    let is_held = why.as_ref().is_some_and(|why| why.hold.is_some());
    let is_bumped = why.as_ref().is_some_and(|why| why.bump.is_some());
    let delivery = why.as_ref().and_then(|why| why.in_flight.as_ref());
    let can_stop = delivery.is_some_and(|it| it.lease_seconds.is_some() && !it.stopping);
    let can_hold = frame.can_act && why.is_some() && !is_held;
    let status = if why.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
    let page = KeyPage {
        can_retry: frame.can_act && !is_held && rows().any(is_ended),
        can_bump: frame.can_act && !is_held && !is_bumped && rows().next().is_some(),
        can_cancel: frame.can_act && can_stop,
        hold: can_hold.then(|| hold_address("k", key)),
        can_unhold: frame.can_act && is_held,
        frame,
        is_known: why.is_some(),
        key: key.to_owned(),
        feed: format!("key.atom?k={}", in_address(key)),
        sentences: why.as_ref().map(|why| sentences(why, now)).unwrap_or_default(),
        output: delivery.and_then(|out| {
            let (key, started, number) = (key.to_owned(), out.since, out.attempt);
            output(Some(&Attempt { key, started, number }), sight)
        }),
        rows: Grid::of(&listings::rows(why.as_ref().map_or(&[][..], |why| &why.rows[..])), sight),
        attempts: Grid::of(&attempts, sight),
    };
    Ok((status, page))
}

pub(super) fn ended_of(sight: &Sight<'_>, key: &str) -> ReadResult<Vec<Ended>> {
    let key = Some(key.to_owned());
    let asked = EndedAttempts { key, count: ENDS, ..EndedAttempts::default() };
    Ok(sight.reader.ended_attempts(&asked)?.attempts)
}
