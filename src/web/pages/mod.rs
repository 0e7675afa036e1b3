//! Pages for people, made on the server: they need no script, and what a picture shows stands in a table below it, too.
//!
//! What lists keys is one kind of page, in [`listings`]; each other page has a file, with what it asks of the queue and what its template
//! shows of that. What may be asked for is in [`asked`]. [`parts`] are what pages share, [`bars`] and [`sparkline`] draw. Routes and
//! headers are the [module](super)'s above.

pub(super) mod asked;
mod assets;
mod bars;
mod feed;
mod fetchers;
mod forms;
mod home;
mod key;
mod listings;
mod output;
mod parts;
mod payload;
mod sparkline;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use askama::Template;
use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_queue::reader::{ReadResult, Reader};
use tracing::warn;

use super::Page;
use super::answers::{Made, answer};
use crate::exit::{ExitCode, Failure};
use crate::live;
use crate::view::health::{Snapshot, Up};
use parts::Frame;

const HTML: &str = "text/html; charset=utf-8";

/// What a page is made of.
struct Sight<'a> {
    page: &'a Page,
    snapshot: Snapshot,
    reader: &'a dyn Reader,
}

impl Sight<'_> {
    fn now(&self) -> i64 {
        self.snapshot.at
    }

    /// No daemon runs: nothing comes of what waits.
    fn is_down(&self) -> bool {
        self.snapshot.up() == Up::Down
    }

    fn frame(&self, title: &str) -> Frame {
        Frame::new(self.page, title, self.now()).about(self)
    }
}

/// The routes of all pages.
pub(super) fn routes(config: &mut web::ServiceConfig) {
    config
        .route("/", crate::web::get().to(home::get))
        .route("/key", crate::web::get().to(key::get))
        .route("/key.atom", crate::web::get().to(feed::get))
        .route("/fetchers", crate::web::get().to(fetchers::all))
        .route("/fetcher", crate::web::get().to(fetchers::one))
        .route("/output", crate::web::get().to(output::get))
        .route("/hold", crate::web::get().to(forms::hold))
        .route("/pause", crate::web::get().to(forms::pause))
        .configure(listings::routes)
        .configure(assets::routes);
}

/// Answers with a page; `question` tells it from all others.
async fn show<T: Template>(
    request: &HttpRequest,
    page: web::Data<Page>,
    question: String,
    ask: impl FnOnce(&Sight<'_>) -> ReadResult<(StatusCode, T)> + Send + 'static,
) -> HttpResponse {
    show_as(HTML, request, page, question, ask).await
}

/// The same with a content of another type.
async fn show_as<T: Template>(
    content_type: &'static str,
    request: &HttpRequest,
    page: web::Data<Page>,
    question: String,
    ask: impl FnOnce(&Sight<'_>) -> ReadResult<(StatusCode, T)> + Send + 'static,
) -> HttpResponse {
    let shared = page.clone();
    let make = move || {
        make(&shared, content_type, ask).unwrap_or_else(|failure| {
            warn!("A page cannot be made: {failure}");
            let text = "The database cannot be read. The log of shiftboss web says why.";
            message(&shared, StatusCode::SERVICE_UNAVAILABLE, "Not available", text)
        })
    };
    answer(&page.queries, request, &question, make).await
}

fn make<T: Template>(
    page: &Page,
    content_type: &'static str,
    ask: impl FnOnce(&Sight<'_>) -> ReadResult<(StatusCode, T)>,
) -> Result<Made, Failure> {
    let (status, template) = page.look(|target, reader, now| {
        let snapshot = live::snapshot(target.clone(), reader.status(now)?, now);
        ask(&Sight { page, snapshot, reader })
    })?;
    let body = template.render().map_err(Failure::of(ExitCode::Internal))?.into();
    Ok(Made { status, content_type, body })
}

#[derive(Template)]
#[template(path = "message.html")]
struct Message<'a> {
    frame: Frame,
    text: &'a str,
}

/// A sentence in the place of a page.
fn message(page: &Page, status: StatusCode, title: &str, text: &str) -> Made {
    let frame = Frame::new(page, title, SystemClock.now());
    let html = Message { frame, text }.render().unwrap_or_else(|_| text.to_owned());
    Made { status, content_type: HTML, body: html.into() }
}

/// What was asked for is out of bounds.
pub(super) fn bad_request(request: &HttpRequest, page: &Page, text: &str) -> HttpResponse {
    message(page, StatusCode::BAD_REQUEST, "Bad request", text).send(request)
}
