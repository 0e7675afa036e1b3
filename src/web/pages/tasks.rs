//! Tasks that are set apart: those that failed and wait to be tried again, and dead letters, each with the reason. Failed ones are in
//! the log.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use askama::Template;
use shiftboss_queue::answers::{Task, TaskStatus};
use shiftboss_queue::reader::{ReadResult, TasksWith};

use super::asked::{Apart, COUNT_MAX, TasksApart};
use super::parts::{Frame, KeyLink, Moment, text};
use super::{Sight, show};
use crate::web::Page;

pub(super) async fn get(
    request: HttpRequest,
    page: web::Data<Page>,
    asked: web::Query<TasksApart>,
) -> HttpResponse {
    let asked = asked.into_inner();
    let question = format!("tasks {asked:?}");
    let ask = move |sight: &Sight<'_>| Ok((StatusCode::OK, Tasks::ask(sight, &asked)?));
    show(&request, page, question, ask).await
}

#[derive(Template)]
#[template(path = "tasks.html")]
struct Tasks {
    frame: Frame,
    /// What they are, and what becomes of them.
    about: &'static str,
    tasks: Vec<Row>,
    /// Where more of them are.
    more: Option<&'static str>,
    /// It is known since when.
    has_times: bool,
}

struct Row {
    key: KeyLink,
    fetcher: String,
    since: Option<Moment>,
    reason: String,
}

impl Tasks {
    fn ask(sight: &Sight<'_>, asked: &TasksApart) -> ReadResult<Self> {
        let Sight { reader, now, .. } = *sight;
        let (status, title, about, all) = match asked.status {
            Apart::Delayed => (
                TaskStatus::Delayed,
                "Delayed tasks",
                "They failed. Each is tried again by itself soon after its time, unless its key is held; what a list named may be replaced by a newer list before.",
                "tasks?status=delayed&n=1000",
            ),
            Apart::DeadLetter => (
                TaskStatus::DeadLetter,
                "Dead letters",
                "Too many of their leases expired. They run again by a retry, and what a list named with the next list, too.",
                "tasks?status=dead_letter&n=1000",
            ),
        };
        let with =
            TasksWith { status: Some(status), fetcher: None, since: None, count: asked.count };
        let found = reader.tasks(now, &with)?;
        let row = |task: &Task| Row {
            key: KeyLink::to(&task.key),
            fetcher: text(&task.fetcher),
            since: task.since.map(|since| Moment::new(since, now)),
            reason: text(&task.reason),
        };
        Ok(Self {
            frame: sight.frame(title, &reader.status(now)?),
            about,
            tasks: found.tasks.iter().map(row).collect(),
            more: (found.truncated && asked.count < COUNT_MAX).then_some(all),
            has_times: asked.status == Apart::Delayed,
        })
    }
}
