//! The keys that operators or backoff hold; and a page that asks how long, before one is held.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use askama::Template;
use shiftboss_queue::answers::HeldKey;
use shiftboss_queue::reader::ReadResult;

use super::asked::{Count, OfKey};
use super::parts::{Frame, KeyLink, Moment, in_address, text};
use super::{Sight, show};
use crate::standing::held_for;
use crate::web::Page;

pub(super) async fn all(
    request: HttpRequest,
    page: web::Data<Page>,
    asked: web::Query<Count>,
) -> HttpResponse {
    let count = asked.count;
    let ask = move |sight: &Sight<'_>| Ok((StatusCode::OK, Held::ask(sight, count)?));
    show(&request, page, format!("held {count}"), ask).await
}

#[derive(Template)]
#[template(path = "held.html")]
struct Held {
    frame: Frame,
    keys: Vec<Row>,
    truncated: bool,
}

struct Row {
    key: KeyLink,
    since: Moment,
    lasts: String,
    by: String,
    reason: String,
}

impl Held {
    fn ask(sight: &Sight<'_>, count: usize) -> ReadResult<Self> {
        let Sight { reader, now, .. } = *sight;
        let found = reader.held(count)?;
        let row = |HeldKey { key, hold }: &HeldKey| Row {
            key: KeyLink::to(key),
            since: Moment::new(hold.since, now),
            lasts: held_for(hold, now),
            by: text(&hold.by),
            reason: text(&hold.reason),
        };
        Ok(Self {
            frame: sight.frame("Held keys", &reader.status(now)?),
            keys: found.keys.iter().map(row).collect(),
            truncated: found.truncated,
        })
    }
}

pub(super) async fn ask(
    request: HttpRequest,
    page: web::Data<Page>,
    asked: web::Query<OfKey>,
) -> HttpResponse {
    let key = asked.into_inner().key;
    let question = format!("hold {key}");
    let ask = move |sight: &Sight<'_>| Ok((StatusCode::OK, Ask::about(sight, key)?));
    show(&request, page, question, ask).await
}

/// The form of a hold.
#[derive(Template)]
#[template(path = "hold.html")]
struct Ask {
    frame: Frame,
    key: String,
    /// The key's page.
    back: String,
    /// Seconds, and what they are called.
    times: [(&'static str, &'static str); 5],
}

impl Ask {
    fn about(sight: &Sight<'_>, key: String) -> ReadResult<Self> {
        let title = format!("Hold {}", text(&key));
        Ok(Self {
            frame: sight.frame(&title, &sight.reader.status(sight.now)?),
            back: format!("key?k={}", in_address(&key)),
            key,
            times: [
                ("", "until somebody ends it"),
                ("3600", "an hour"),
                ("86400", "a day"),
                ("604800", "a week"),
                ("2592000", "30 days"),
            ],
        })
    }
}
