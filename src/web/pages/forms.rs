//! Pages that ask before something is changed: whether handing out is to be paused, and how long a key is to be held.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use askama::Template;

use super::asked::Asked;
use super::parts::{Frame, in_address, text};
use super::{Sight, show};
use crate::web::Page;

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
struct Pause {
    frame: Frame,
    in_flight: i64,
}

pub(super) async fn pause(request: HttpRequest, page: web::Data<Page>) -> HttpResponse {
    let ask = |sight: &Sight<'_>| {
        let in_flight = sight.snapshot.queue.rows.in_flight;
        Ok((StatusCode::OK, Pause { frame: sight.frame("Pause"), in_flight }))
    };
    show(&request, page, "pause".to_owned(), ask).await
}

#[derive(Template)]
#[template(path = "hold.html")]
struct Hold {
    frame: Frame,
    key: String,
    /// The key's page.
    back: String,
    times: [(&'static str, &'static str); 5],
}

pub(super) async fn hold(
    request: HttpRequest,
    page: web::Data<Page>,
    asked: Asked,
) -> HttpResponse {
    let key = asked.get("k").to_owned();
    let question = format!("hold {key}");
    let ask = move |sight: &Sight<'_>| {
        let (frame, back) =
            (sight.frame(&format!("Hold {}", text(&key))), format!("key?k={}", in_address(&key)));
        Ok((StatusCode::OK, Hold { frame, back, key, times: TIMES }))
    };
    show(&request, page, question, ask).await
}
