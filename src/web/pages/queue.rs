//! The next jobs, in the order in which they would be handed out.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use askama::Template;
use shiftboss_queue::answers::Next;
use shiftboss_queue::reader::ReadResult;

use super::asked::Count;
use super::parts::{Frame, KeyLink, text};
use super::payload::{self, Part};
use super::{Sight, show};
use crate::standing::last_run;
use crate::standing::turns::Turns;
use crate::web::Page;

pub(super) async fn get(
    request: HttpRequest,
    page: web::Data<Page>,
    asked: web::Query<Count>,
) -> HttpResponse {
    let count = asked.count;
    let ask = move |sight: &Sight<'_>| Ok((StatusCode::OK, Queue::ask(sight, count)?));
    show(&request, page, format!("queue {count}"), ask).await
}

#[derive(Template)]
#[template(path = "queue.html")]
struct Queue {
    frame: Frame,
    jobs: Vec<Job>,
    truncated: bool,
    /// There are no more.
    is_all: bool,
    /// Keys that are held, and so are not among them.
    held: i64,
    /// Tasks that wait to be tried again.
    delayed: i64,
}

struct Job {
    place: usize,
    key: KeyLink,
    fetcher: String,
    last_run: String,
    expected: String,
    payload: Vec<Part>,
}

impl Queue {
    fn ask(sight: &Sight<'_>, count: usize) -> ReadResult<Self> {
        let Sight { reader, now, .. } = *sight;
        let found = reader.next_jobs(now, count)?;
        let status = reader.status(now)?;
        let turns = Turns::of(&status, sight.is_down(&status));
        let jobs = found.keys.iter().enumerate();
        let jobs = jobs.map(|(before, next)| Job::of(next, before, turns.words(before), now));
        Ok(Self {
            frame: sight.frame("Next jobs", &status).at("queue"),
            jobs: jobs.collect(),
            truncated: found.truncated,
            is_all: found.keys.len() < count,
            held: status.held.saturating_add(status.backed_off),
            delayed: status.delayed,
        })
    }
}

impl Job {
    fn of(next: &Next, before: usize, expected: String, now: i64) -> Self {
        Self {
            place: before + 1,
            key: KeyLink::to(&next.key),
            fetcher: text(&next.fetcher),
            last_run: last_run(next, now),
            expected,
            payload: payload::parts(&next.payload),
        }
    }
}
