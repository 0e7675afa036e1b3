//! For programs: the JSON objects of the commands that look (docs/json.md), at `api/v1/`.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use shiftboss_protocol::model::UnixSeconds;
use shiftboss_queue::reader::{Grouping, ReadError, ReadResult, Reader, StatsOf};
use tracing::warn;

use super::Page;
use super::answers::{Made, turned_away};
use super::pages::asked::{Asked, FOUND_MAX, KEYS_BEFORE_MAX};
use crate::exit::Failure;
use crate::live;
use crate::target::Target;
use crate::view::health::Object;

/// What all addresses of objects begin with.
pub(super) const PREFIX: &str = "/api/v1/";
const JSON: &str = "application/json";

/// What an object is made of.
struct Question<'a> {
    target: &'a Target,
    reader: &'a dyn Reader,
    now: UnixSeconds,
    asked: &'a Asked,
}

impl Question<'_> {
    fn object(&self, found: &impl Serialize) -> ReadResult<Option<String>> {
        let failed = |failure: Failure| ReadError::Failed(failure.to_string());
        self.target.json(found).map(Some).map_err(failed)
    }
}

/// Makes an object as a line; `None`: what is asked for is not known.
type Make = fn(&Question<'_>) -> ReadResult<Option<String>>;

const OBJECTS: [(&str, Make); 8] = [
    ("status", |it| {
        let queue = it.reader.status(it.now)?;
        it.object(&Object::from(&live::snapshot(it.target.clone(), queue, it.now)))
    }),
    ("why", |it| match it.reader.why(it.now, &it.asked.key, KEYS_BEFORE_MAX)? {
        Some(why) => it.object(&why),
        None => Ok(None),
    }),
    ("queue", |it| it.object(&it.reader.next_jobs(it.now, it.asked.count())?)),
    ("tasks", |it| it.object(&it.reader.tasks(it.now, &it.asked.tasks())?)),
    ("held", |it| it.object(&it.reader.held(it.asked.count())?)),
    ("log", |it| it.object(&it.reader.ended_attempts(&it.asked.attempts())?)),
    ("stats", |it| {
        let time = Duration::from_secs(it.asked.hours() * 3_600);
        let by = it.asked.by.unwrap_or(Grouping::All);
        it.object(&it.reader.stats(&StatsOf::last(time, by, it.now))?)
    }),
    ("search", |it| it.object(&it.reader.search(&it.asked.prefix, FOUND_MAX)?)),
];

pub(super) fn routes(config: &mut web::ServiceConfig) {
    for (name, make) in OBJECTS {
        let answer = move |request, page, asked| answer(request, page, asked, name, make);
        config.route(&format!("{PREFIX}{name}"), super::get().to(answer));
    }
}

async fn answer(
    request: HttpRequest,
    page: web::Data<Page>,
    asked: web::Query<Asked>,
    name: &'static str,
    make: Make,
) -> HttpResponse {
    let asked = asked.into_inner();
    if name == "why" && asked.key.is_empty() {
        return bad_request("k is missing: the key.");
    }
    let view = page.pages.of(&format!("api {name} {asked:?}"));
    let shared = page.clone();
    let make = move || {
        made(
            shared
                .look(|target, reader, now| make(&Question { target, reader, now, asked: &asked })),
        )
    };
    match page.queries.answer(&view, make).await {
        Ok(made) => made.send(&request),
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
