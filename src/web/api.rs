//! For programs: the JSON objects of the commands that look (docs/json.md), at `api/v1/`.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use serde::{Deserialize, Serialize};
use shiftboss_actors::live::LiveStatus;
use shiftboss_protocol::model::UnixSeconds;
use shiftboss_queue::reader::{Grouping, ReadError, ReadResult, Reader, StatsOf};
use tracing::warn;

use super::Page;
use super::answers::{Made, turned_away};
use super::pages::asked::{self, Ends};
use crate::exit::Failure;
use crate::live;
use crate::target::Target;

/// What all addresses of objects begin with.
pub(super) const PREFIX: &str = "/api/v1/";
const JSON: &str = "application/json";
/// Hours that are summed up where no number is given, and at the most: those that are kept.
const HOURS: u64 = 24;
const HOURS_MAX: u64 = 90 * 24;

pub(super) fn routes(config: &mut web::ServiceConfig) {
    config
        .route("/api/v1/status", crate::web::get().to(status))
        .route("/api/v1/why", crate::web::get().to(why))
        .route("/api/v1/queue", crate::web::get().to(queue))
        .route("/api/v1/log", crate::web::get().to(log))
        .route("/api/v1/stats", crate::web::get().to(stats))
        .route("/api/v1/search", crate::web::get().to(search))
        .route("/api/v1/held", crate::web::get().to(held));
}

async fn status(request: HttpRequest, page: web::Data<Page>) -> HttpResponse {
    answer(&request, page, "status".to_owned(), |target, reader, now| {
        let queue = reader.status(now)?;
        let live = live::ask(target, &queue).unwrap_or(None);
        Ok(Some(LiveStatus { queue, live }))
    })
    .await
}

async fn why(
    request: HttpRequest,
    page: web::Data<Page>,
    asked: web::Query<asked::OfKey>,
) -> HttpResponse {
    let key = asked.into_inner().key;
    answer(&request, page, format!("why {key}"), move |_, reader, now| {
        reader.why(now, &key, asked::KEYS_BEFORE_MAX)
    })
    .await
}

async fn queue(
    request: HttpRequest,
    page: web::Data<Page>,
    asked: web::Query<asked::Count>,
) -> HttpResponse {
    let count = asked.count;
    answer(&request, page, format!("queue {count}"), move |_, reader, now| {
        reader.next_jobs(now, count).map(Some)
    })
    .await
}

async fn log(request: HttpRequest, page: web::Data<Page>, asked: web::Query<Ends>) -> HttpResponse {
    let ends = asked.attempts();
    answer(&request, page, format!("log {ends:?}"), move |_, reader, _| {
        reader.ended_attempts(&ends).map(Some)
    })
    .await
}

#[derive(Deserialize)]
struct Sums {
    hours: Option<u64>,
    by: Option<Grouping>,
}

async fn stats(
    request: HttpRequest,
    page: web::Data<Page>,
    asked: web::Query<Sums>,
) -> HttpResponse {
    let hours = asked.hours.unwrap_or(HOURS);
    if !(1..=HOURS_MAX).contains(&hours) {
        return bad_request("hours is a number from 1 to 2160.");
    }
    let (by, time) = (asked.by.unwrap_or(Grouping::All), Duration::from_secs(hours * 3_600));
    answer(&request, page, format!("stats {hours} {by:?}"), move |_, reader, now| {
        reader.stats(&StatsOf::last(time, by, now)).map(Some)
    })
    .await
}

async fn search(
    request: HttpRequest,
    page: web::Data<Page>,
    asked: web::Query<asked::Prefix>,
) -> HttpResponse {
    let prefix = asked.into_inner().prefix;
    answer(&request, page, format!("search {prefix}"), move |_, reader, _| {
        reader.search(&prefix, asked::FOUND_MAX).map(Some)
    })
    .await
}

async fn held(
    request: HttpRequest,
    page: web::Data<Page>,
    asked: web::Query<asked::Count>,
) -> HttpResponse {
    let count = asked.count;
    answer(&request, page, format!("held {count}"), move |_, reader, _| {
        reader.held(count).map(Some)
    })
    .await
}

/// Answers with an object; `question` tells it from all others. `None`: what is asked for is not known.
async fn answer<T: Serialize>(
    request: &HttpRequest,
    page: web::Data<Page>,
    question: String,
    ask: impl FnOnce(&Target, &dyn Reader, UnixSeconds) -> ReadResult<Option<T>> + Send + 'static,
) -> HttpResponse {
    let view = page.pages.of(&format!("api {question}"));
    let shared = page.clone();
    let make = move || {
        let found = shared.look(|target, reader, now| {
            let Some(found) = ask(target, reader, now)? else { return Ok(None) };
            target.json(&found).map(Some).map_err(|failure| ReadError::Failed(failure.to_string()))
        });
        made(found)
    };
    match page.queries.answer(&view, make).await {
        Ok(made) => made.send(request),
        Err(overloaded) => turned_away(overloaded),
    }
}

fn made(found: Result<Option<String>, Failure>) -> Made {
    let (status, body) = match found {
        Ok(Some(line)) => (StatusCode::OK, line),
        Ok(None) => (StatusCode::NOT_FOUND, error("nothing is known of this key")),
        Err(failure) => {
            warn!("A question has no answer: {failure}");
            let text = "the database cannot be read; the log of shiftboss web says why";
            (StatusCode::SERVICE_UNAVAILABLE, error(text))
        }
    };
    Made { status, content_type: JSON, body: body.into() }
}

pub(super) fn bad_request(why: &str) -> HttpResponse {
    HttpResponse::BadRequest().content_type(JSON).body(error(why))
}

fn error(text: &str) -> String {
    serde_json::json!({ "error": text }).to_string() + "\n"
}
