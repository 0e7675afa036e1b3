//! What is sent: answers that many may be given, each only once to who has it; and to machines metrics, health, and what robots are
//! told. Statuses say what went wrong; none shows a path of this machine beyond what the command line names.

use std::hash::{DefaultHasher, Hash, Hasher};

use actix_web::http::StatusCode;
use actix_web::http::header::{ETAG, IF_NONE_MATCH};
use actix_web::{HttpRequest, HttpResponse, web};
use shiftboss_protocol::verbs;
use tracing::warn;

use super::Page;
use super::queries::{Overloaded, Queries};
use crate::client;
use crate::exit::{ExitCode, Failure};
use crate::live;
use crate::lock::LockState;
use crate::metrics::{CLASSIC, PATIENCE, Scrape};
use crate::target::{self, Target};
use crate::view::health::Up;

pub(super) const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Seconds after which who was turned away may ask again.
const RETRY_AFTER: &str = "2";

/// An answer as it is sent to everybody who asks the same within a second.
#[derive(Debug, Clone)]
pub(super) struct Made {
    pub(super) status: StatusCode,
    pub(super) content_type: &'static str,
    /// Shared by all to whom it is being sent.
    pub(super) body: web::Bytes,
}

impl Made {
    pub(super) fn text(text: impl Into<web::Bytes>) -> Self {
        Self { status: StatusCode::OK, content_type: TEXT, body: text.into() }
    }

    fn unavailable(text: impl Into<web::Bytes>) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, ..Self::text(text) }
    }

    /// It is not sent again to who has it.
    pub(super) fn send(&self, request: &HttpRequest) -> HttpResponse {
        let mut hasher = DefaultHasher::new();
        self.body.hash(&mut hasher);
        let tag = format!("\"{:016x}\"", hasher.finish());
        let has = request.headers().get(IF_NONE_MATCH).is_some_and(|known| *known == tag);
        if has && self.status.is_success() {
            return HttpResponse::NotModified().insert_header((ETAG, tag)).finish();
        }
        HttpResponse::build(self.status)
            .content_type(self.content_type)
            .insert_header((ETAG, tag))
            .body(self.body.clone())
    }
}

/// Answers with what `make` makes, or with what was made for others; `question` tells it from all else.
pub(super) async fn answer(
    queries: &Queries,
    request: &HttpRequest,
    question: &str,
    make: impl FnOnce() -> Made + Send + 'static,
) -> HttpResponse {
    match queries.answer(question, make).await {
        Ok(made) => made.send(request),
        Err(overloaded) => turned_away(overloaded),
    }
}

pub(super) async fn metrics(request: HttpRequest, page: web::Data<Page>) -> HttpResponse {
    let shared = page.clone();
    let make = move || match shared.find().and_then(Scrape::take) {
        Ok(scrape) => Made { content_type: METRICS, ..Made::text(scrape.text()) },
        Err(failure) => {
            warn!("There are no metrics: {failure}");
            let text = "the database cannot be read; the log of `shiftboss web` says why\n";
            Made::unavailable(text)
        }
    };
    answer(&page.queries, &request, "metrics", make).await
}

pub(super) async fn healthz(request: HttpRequest, page: web::Data<Page>) -> HttpResponse {
    let shared = page.clone();
    let make = move || match shared.find().and_then(health) {
        Ok(()) => Made::text("ok\n"),
        Err(why) => Made::unavailable(format!("{why}\n")),
    };
    answer(&page.health_queries, &request, "health", make).await
}

/// Whether a daemon is up and can reach its database. Of one that cannot be asked that, under `--classic` or on another machine, that it
/// takes connections, or says in the database that it lives.
fn health(target: Target) -> Result<(), Failure> {
    let asked = match &target.daemon {
        LockState::By(daemon) => client::ask(&daemon.socket, verbs::Health {}, PATIENCE).map(drop),
        LockState::Free | LockState::Unknown(_) => Ok(()),
    };
    if matches!(target.daemon, LockState::By(_)) && asked.is_ok() {
        return Ok(());
    }
    let (queue, at) = target::ask(&target.database, |reader, now| Ok((reader.status(now)?, now)))?;
    let is_classic = queue.policy.as_deref() == Some(CLASSIC);
    let snapshot = live::snapshot(target, queue, at);
    match (asked, snapshot.up()) {
        (Err(failure), _) if !is_classic => Err(failure),
        (_, Up::Running) if snapshot.is_served() => Ok(()),
        (_, Up::Unknown(why)) => Err(Failure::new(ExitCode::Unavailable, why)),
        _ => {
            let troubles = snapshot.health().troubles;
            let why = troubles.first().map_or_else(String::new, ToString::to_string);
            Err(Failure::new(ExitCode::Unavailable, why))
        }
    }
}

pub(super) async fn no_such_page() -> HttpResponse {
    HttpResponse::NotFound().content_type(TEXT).body("there is no such page\n")
}

/// Pages of a queue are nobody's to index.
pub(super) async fn robots() -> HttpResponse {
    HttpResponse::Ok().content_type(TEXT).body("User-agent: *\nDisallow: /\n")
}

pub(super) fn turned_away(overloaded: Overloaded) -> HttpResponse {
    let text = match overloaded {
        Overloaded::Full => "too many ask at once: try again\n",
        Overloaded::Late => "it took too long: try again\n",
    };
    HttpResponse::ServiceUnavailable()
        .content_type(TEXT)
        .insert_header(("Retry-After", RETRY_AFTER))
        .body(text)
}
