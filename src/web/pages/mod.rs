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
use crate::view::health::Snapshot;
use asked::Asked;
use parts::Frame;

const HTML: &str = "text/html; charset=utf-8";

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
        self.snapshot.up().is_down()
    }

    fn frame(&self, title: &str) -> Frame {
        Frame::new(self.page, title, self.now()).about(self)
    }
}

pub(super) fn routes(config: &mut web::ServiceConfig) {
    config
        .configure(page("/", HTML, home::ask))
        .configure(page("/key", HTML, key::ask))
        .configure(page("/key.atom", feed::ATOM, feed::ask))
        .configure(page("/fetchers", HTML, fetchers::all))
        .configure(page("/fetcher", HTML, fetchers::one))
        .configure(page("/hold", HTML, forms::hold))
        .configure(page("/pause", HTML, forms::pause))
        .route("/output", crate::web::get().to(output::get))
        .configure(assets::routes);
    for path in listings::PAGES {
        let ask = move |sight: &Sight<'_>, asked: &Asked| listings::ask(sight, asked, path);
        config.configure(page(path, HTML, ask));
    }
}

/// A page at that address; `ask` makes its template of what it finds.
fn page<T: Template + 'static>(
    path: &'static str,
    content_type: &'static str,
    ask: impl Fn(&Sight<'_>, &Asked) -> ReadResult<(StatusCode, T)> + Copy + Send + 'static,
) -> impl FnOnce(&mut web::ServiceConfig) {
    let answer = move |request: HttpRequest, page: web::Data<Page>, asked: Asked| async move {
        let question = format!("{path} {asked:?}");
        show(&request, page, &question, content_type, move |sight| ask(sight, &asked)).await
    };
    move |config| _ = config.route(path, crate::web::get().to(answer))
}

/// Answers with a page; `question` tells it from all others.
async fn show<T: Template>(
    request: &HttpRequest,
    page: web::Data<Page>,
    question: &str,
    content_type: &'static str,
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
    answer(&page.queries, request, question, make).await
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

fn message(page: &Page, status: StatusCode, title: &str, text: &str) -> Made {
    let frame = Frame::new(page, title, SystemClock.now());
    let html = Message { frame, text }.render().unwrap_or_else(|_| text.to_owned());
    Made { status, content_type: HTML, body: html.into() }
}

pub(super) fn bad_request(request: &HttpRequest, page: &Page, text: &str) -> HttpResponse {
    message(page, StatusCode::BAD_REQUEST, "Bad request", text).send(request)
}
