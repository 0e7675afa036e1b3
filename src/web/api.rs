//! For programs: the JSON objects of the commands that look (docs/json.md), at `api/v1/`.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use shiftboss_protocol::model::UnixSeconds;
use shiftboss_queue::reader::{KEYS_BEFORE_IN_VIEWS, ReadError, ReadResult, Reader};
use tracing::warn;

use super::Page;
use super::answers::{self, Made};
use super::pages::asked::Asked;
use crate::exit::Failure;
use crate::live;
use crate::target::Target;
use crate::view::health::{Object, Up};
use crate::view::key;

/// What all addresses of objects begin with.
pub(super) const PREFIX: &str = "/api/v1/";
const JSON: &str = "application/json";

/// The objects; those of listings are asked for as their pages are.
const OBJECTS: [&str; 9] =
    ["status", "why", "queue", "tasks", "held", "groups", "log", "stats", "search"];

/// An object as a line; `None`: what is asked for is not known.
fn object(
    name: &str,
    asked: &Asked,
    target: &Target,
    reader: &dyn Reader,
    now: UnixSeconds,
) -> ReadResult<Option<String>> {
    let line = match (name, asked.question(name, now)) {
        (_, Some(question)) => target.json(&question.ask(reader, now)?),
        ("why", _) => {
            let up = Up::of(target, &reader.status(now)?);
            match key::find(reader, up, asked.get("k"), KEYS_BEFORE_IN_VIEWS, now)? {
                Some(why) => target.json(&why),
                None => return Ok(None),
            }
        }
        _ => {
            let snapshot = live::snapshot(target.clone(), reader.status(now)?, now);
            target.json(&Object::from(&snapshot))
        }
    };
    line.map(Some).map_err(|failure| ReadError::Failed(failure.to_string()))
}

pub(super) fn routes(config: &mut web::ServiceConfig) {
    for name in OBJECTS {
        let answer = move |request, page, asked| answer(request, page, asked, name);
        config.route(&format!("{PREFIX}{name}"), super::get().to(answer));
    }
}

async fn answer(
    request: HttpRequest,
    page: web::Data<Page>,
    asked: Asked,
    name: &'static str,
) -> HttpResponse {
    let question = format!("api {name} {asked:?}");
    let shared = page.clone();
    let look =
        move || made(shared.look(|target, reader, now| object(name, &asked, target, reader, now)));
    answers::answer(&page.queries, &request, &question, look).await
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
