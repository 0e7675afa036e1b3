//! Pages that ask before something is changed: whether handing out is to be paused, and how long a key or a group is to be held.

use actix_web::http::StatusCode;
use askama::Template;
use shiftboss_queue::reader::ReadResult;

use super::Sight;
use super::asked::Asked;
use super::parts::{Frame, group_address, in_address, text};

/// Seconds of a hold, and what they are called.
const TIMES: [(&str, &str); 5] = [
    ("", "until somebody ends it"),
    ("3600", "an hour"),
    ("86400", "a day"),
    ("604800", "a week"),
    ("2592000", "30 days"),
];

#[derive(Template)]
#[template(path = "pause.html")]
pub(super) struct Pause {
    frame: Frame,
    in_flight: i64,
}

pub(super) fn pause(sight: &Sight<'_>, _: &Asked) -> ReadResult<(StatusCode, Pause)> {
    let in_flight = sight.snapshot.queue.rows.in_flight;
    Ok((StatusCode::OK, Pause { frame: sight.frame("Pause"), in_flight }))
}

#[derive(Template)]
#[template(path = "hold.html")]
pub(super) struct Hold {
    frame: Frame,
    /// `k`: a key; `g`: a group, which may be held already.
    of: &'static str,
    name: String,
    back: String,
    times: [(&'static str, &'static str); 5],
}

pub(super) fn hold(sight: &Sight<'_>, asked: &Asked) -> ReadResult<(StatusCode, Hold)> {
    let (of, name, back) = match (asked.get("g"), asked.get("k")) {
        ("", key) => ("k", key, format!("key?k={}", in_address(key))),
        (group, _) => ("g", group, group_address(group)),
    };
    let frame = sight.frame(&format!("Hold {}", text(name)));
    Ok((StatusCode::OK, Hold { frame, of, name: name.to_owned(), back, times: TIMES }))
}
