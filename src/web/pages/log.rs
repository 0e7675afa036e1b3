//! Attempts that ended, the last one first, a hundred on a page; those of an outcome, or of a fetcher.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use askama::Template;
use shiftboss_queue::reader::ReadResult;

use super::asked::{AMONG, ENDS, Ends};
use super::parts::{Attempt, Frame, in_address};
use super::{Sight, show};
use crate::web::Page;

/// What can be chosen.
const OUTCOMES: [(&str, &str); 8] = [
    ("", "all outcomes"),
    ("failed", "failure and timeout"),
    ("success", "success"),
    ("failure", "failure"),
    ("timeout", "timeout"),
    ("released", "released"),
    ("undone", "undone"),
    ("expired", "expired"),
];

pub(super) async fn get(
    request: HttpRequest,
    page: web::Data<Page>,
    asked: web::Query<Ends>,
) -> HttpResponse {
    let asked = asked.into_inner();
    let question = format!("log {asked:?}");
    let ask = move |sight: &Sight<'_>| Ok((StatusCode::OK, Log::ask(sight, asked)?));
    show(&request, page, question, ask).await
}

#[derive(Template)]
#[template(path = "log.html")]
struct Log {
    frame: Frame,
    outcomes: Vec<Choice>,
    fetcher: String,
    attempts: Vec<Attempt>,
    /// Attempts that were looked at, if there are more.
    among: Option<usize>,
    /// Where earlier ones are, if there are some.
    next: Option<String>,
}

struct Choice {
    word: &'static str,
    text: &'static str,
    is_chosen: bool,
}

impl Log {
    fn ask(sight: &Sight<'_>, asked: Ends) -> ReadResult<Self> {
        let Sight { reader, now, .. } = *sight;
        let found = reader.ended_attempts(&asked.attempts())?;
        let last = found.attempts.last().filter(|_| found.attempts.len() == ENDS);
        let before = last.map(|ended| ended.ended).or(found.looked_to);
        let Ends { outcome, fetcher, .. } = asked;
        let earlier = |before| {
            format!("log?outcome={outcome}&fetcher={}&before={before}", in_address(&fetcher))
        };
        let (here, title) = if outcome == "failed" { ("failed", "Failed") } else { ("log", "Log") };
        let choice = |(word, text)| Choice { word, text, is_chosen: word == outcome };
        Ok(Self {
            frame: sight.frame(title, &reader.status(now)?).at(here),
            outcomes: OUTCOMES.map(choice).into(),
            next: before.map(earlier),
            among: found.looked_to.filter(|_| last.is_none()).map(|_| AMONG),
            attempts: found.attempts.iter().map(|ended| Attempt::of(ended, sight)).collect(),
            fetcher,
        })
    }
}
