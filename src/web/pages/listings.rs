//! Pages that list keys: the next jobs, attempts, tasks with a status, held keys, and keys that were looked for. All have one template,
//! which sorts and filters by the address alone; a script only saves the way.

use std::collections::HashSet;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use askama::Template;
use shiftboss_queue::answers::TaskStatus;
use shiftboss_queue::reader::{ReadResult, TasksWith};

use super::asked::{AMONG, Asked, COUNT_MAX, FOUND_MAX, STATUSES};
use super::parts::{Frame, Grid, address, text};
use super::{Sight, show};
use crate::view::listings;
use crate::view::table::{Table, capitalized};
use crate::view::turns::Turns;
use crate::web::Page;

/// What can be chosen of outcomes.
const OUTCOMES: [(&str, &str); 8] = [
    ("", "all"),
    ("failed", "failure and timeout"),
    ("success", "success"),
    ("failure", "failure"),
    ("timeout", "timeout"),
    ("released", "released"),
    ("undone", "undone"),
    ("expired", "expired"),
];

/// What a page lists.
struct Listed {
    title: &'static str,
    here: &'static str,
    about: String,
    table: Table,
    /// Said below the table: a sentence, and where a link in it leads, with its words.
    notes: Vec<Note>,
}

struct Note {
    text: String,
    link: Option<(String, String)>,
}

impl Note {
    fn new(text: impl Into<String>, link: Option<(String, &str)>) -> Self {
        Self { text: text.into(), link: link.map(|(address, words)| (address, words.to_owned())) }
    }
}

type Make = fn(&Sight<'_>, &Asked) -> ReadResult<Listed>;

const PAGES: [(&str, Make); 5] =
    [("queue", queue), ("log", log), ("tasks", tasks), ("held", held), ("search", search)];

pub(super) fn routes(config: &mut web::ServiceConfig) {
    for (path, make) in PAGES {
        let answer = move |request, page, asked| answer(request, page, asked, path, make);
        config.route(&format!("/{path}"), crate::web::get().to(answer));
    }
}

async fn answer(
    request: HttpRequest,
    page: web::Data<Page>,
    asked: web::Query<Asked>,
    path: &'static str,
    make: Make,
) -> HttpResponse {
    let asked = asked.into_inner();
    let question = format!("{path} {asked:?}");
    let ask = move |sight: &Sight<'_>| {
        let listed = make(sight, &asked)?;
        Ok((StatusCode::OK, Listing::of(listed, &asked, path, sight)))
    };
    show(&request, page, question, ask).await
}

#[derive(Template)]
#[template(path = "listing.html")]
struct Listing {
    frame: Frame,
    path: &'static str,
    about: String,
    /// What was given and has no field of its own.
    kept: Vec<(&'static str, String)>,
    text: String,
    /// `None`: these rows have none.
    fetcher: Option<String>,
    choices: Vec<Field>,
    is_reversed: bool,
    grid: Grid,
    notes: Vec<Note>,
}

/// A field of the form in which one of several is chosen.
struct Field {
    name: &'static str,
    label: &'static str,
    choices: Vec<Choice>,
}

struct Choice {
    word: String,
    text: String,
    is_chosen: bool,
}

impl Field {
    fn new<'a>(
        name: &'static str,
        label: &'static str,
        choices: impl Iterator<Item = (&'a str, String)>,
        chosen: &str,
    ) -> Self {
        let choice = |(word, text): (&str, String)| Choice {
            word: word.to_owned(),
            text,
            is_chosen: word == chosen,
        };
        Self { name, label, choices: choices.map(choice).collect() }
    }
}

impl Listing {
    fn of(listed: Listed, asked: &Asked, path: &'static str, sight: &Sight<'_>) -> Self {
        let Listed { title, here, about, mut table, notes } = listed;
        let has_fetcher = table.column("fetcher").is_some();
        if has_fetcher && !asked.fetcher.is_empty() {
            table.retain_fetcher(&asked.fetcher);
        }
        let mut choices = Vec::new();
        if path == "log" {
            let outcomes = OUTCOMES.iter().map(|(word, text)| (*word, (*text).to_owned()));
            choices.push(Field::new("outcome", "Outcome", outcomes, &asked.outcome));
        }
        if path == "tasks" {
            let chosen = STATUSES.iter().find(|it| it.2 == asked.status()).map_or("", |it| it.0);
            let statuses = STATUSES.iter().map(|(word, text, _)| (*word, (*text).to_owned()));
            choices.push(Field::new("status", "Status", statuses, chosen));
        }
        let columns = table.columns.iter().map(|column| (column.name, capitalized(column.name)));
        let orders = std::iter::once(("", "as listed".to_owned())).chain(columns);
        choices.push(Field::new("sort", "Order", orders, &asked.sort));
        let kept = asked
            .given()
            .into_iter()
            .filter(|(name, value)| ["q", "n", "before"].contains(name) && !value.is_empty());
        Self {
            frame: sight.frame(title).at(here),
            path,
            about,
            kept: kept.collect(),
            text: asked.text.clone(),
            fetcher: has_fetcher.then(|| asked.fetcher.clone()),
            choices,
            is_reversed: asked.desc == 1,
            grid: Grid::sorted(&mut table, asked, path, sight),
            notes,
        }
    }
}

/// Where all are that are shown.
fn all(path: &str, asked: &Asked, has_more: bool, words: &str) -> Option<Note> {
    let link = Some((address(path, asked, &[("n", "1000")]), words));
    (has_more && asked.count() < COUNT_MAX).then(|| Note::new("There are more.", link))
}

fn queue(sight: &Sight<'_>, asked: &Asked) -> ReadResult<Listed> {
    let status = &sight.snapshot.queue;
    let found = sight.reader.next_jobs(sight.now(), asked.count())?;
    let has_more = found.keys.len() == asked.count() && !found.truncated;
    let too_long = "There are more: their payloads are too long to be listed at once.";
    let mut notes: Vec<Note> = all("queue", asked, has_more, "The next 1000").into_iter().collect();
    notes.extend(found.truncated.then(|| Note::new(too_long, None)));
    let apart = [
        (status.held.saturating_add(status.backed_off), "held", "keys are held"),
        (status.delayed, "tasks?status=delayed", "tasks are delayed"),
    ];
    let apart = apart.into_iter().filter(|(count, ..)| *count > 0);
    notes.extend(apart.map(|(count, list, are)| {
        Note::new("Not among them:", Some((list.to_owned(), &*format!("{count} {are}"))))
    }));
    let turns = Turns::of(status, sight.is_down());
    Ok(Listed {
        title: "Next jobs",
        here: "queue",
        about: String::new(),
        table: listings::next(&found, &turns, sight.now()),
        notes,
    })
}

fn log(sight: &Sight<'_>, asked: &Asked) -> ReadResult<Listed> {
    let found = sight.reader.ended_attempts(&asked.attempts())?;
    let last = found.attempts.last().filter(|_| found.attempts.len() == asked.count());
    let before = last.map(|ended| ended.ended).or(found.looked_to);
    let among = found.looked_to.filter(|_| last.is_none());
    let among = among.map(|_| Note::new(format!("Of {AMONG} attempts."), None));
    let earlier = before.map(|before| {
        let address = address("log", asked, &[("before", &before.to_string())]);
        Note::new("", Some((address, "Earlier ones")))
    });
    let is_failed = asked.outcome == "failed";
    let (here, title) = if is_failed { ("failed", "Failed") } else { ("log", "Log") };
    Ok(Listed {
        title,
        here,
        about: String::new(),
        table: listings::log(&found.attempts, &HashSet::new(), sight.now()),
        notes: among.into_iter().chain(earlier).collect(),
    })
}

fn tasks(sight: &Sight<'_>, asked: &Asked) -> ReadResult<Listed> {
    let (title, about) = match asked.status() {
        TaskStatus::Delayed => (
            "Delayed tasks",
            "They failed. Each is tried again by itself soon after its time, unless its key is held; what a list named may be replaced by a newer list before.",
        ),
        TaskStatus::DeadLetter => (
            "Dead letters",
            "Too many of their leases expired. They run again by a retry, and what a list named with the next list, too.",
        ),
        TaskStatus::Failed => (
            "Failed tasks",
            "Their last attempt failed. They run again by a retry, and what a list named with the next list, too.",
        ),
        TaskStatus::Waiting => ("Waiting tasks", ""),
        TaskStatus::InFlight => ("Tasks in flight", ""),
    };
    let asked_for = TasksWith { status: Some(asked.status()), ..asked.tasks() };
    let found = sight.reader.tasks(sight.now(), &asked_for)?;
    Ok(Listed {
        title,
        here: "",
        about: about.to_owned(),
        table: listings::tasks(&found, &HashSet::new(), sight.now()),
        notes: all("tasks", asked, found.truncated, "The first 1000").into_iter().collect(),
    })
}

fn held(sight: &Sight<'_>, asked: &Asked) -> ReadResult<Listed> {
    let found = sight.reader.held(asked.count())?;
    Ok(Listed {
        title: "Held keys",
        here: "",
        about: String::new(),
        table: listings::held(&found, sight.now()),
        notes: all("held", asked, found.truncated, "The last 1000").into_iter().collect(),
    })
}

fn search(sight: &Sight<'_>, asked: &Asked) -> ReadResult<Listed> {
    let found = sight.reader.search(&asked.prefix, FOUND_MAX)?;
    let what = match asked.prefix.is_empty() {
        true => "All keys".to_owned(),
        false => format!("Keys that begin with {}; capitals count", text(&asked.prefix)),
    };
    let first = if found.truncated { format!(": the first {FOUND_MAX}") } else { String::new() };
    Ok(Listed {
        title: "Keys",
        here: "",
        about: format!("{what}{first}."),
        table: listings::found(&found, sight.now()),
        notes: Vec::new(),
    })
}
