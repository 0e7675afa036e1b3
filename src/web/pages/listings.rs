//! Pages that list keys: the next jobs, attempts, tasks with a status or of a group, held keys, groups, and keys that were looked for. All have one template,
//! which sorts and filters by the address alone; a script only saves the way.

use actix_web::http::StatusCode;
use askama::Template;
use shiftboss_protocol::answers::{QueueStatus, TaskStatus};
use shiftboss_queue::reader::ReadResult;

use super::Sight;
use super::asked::{AMONG, Asked, COUNT_MAX, FOUND_MAX, STATUSES};
use super::parts::{Frame, Grid, address, hold_address, text};
use crate::text::counted;
use crate::view::listings::HeldSet;
use crate::view::question::{Listed, Question, Turns};
use crate::view::table::{Table, capitalized};

const OUTCOMES: [(&str, &str); 9] = [
    ("", "all"),
    ("failed", "failure and timeout"),
    ("success", "success"),
    ("failure", "failure"),
    ("timeout", "timeout"),
    ("released", "released"),
    ("undone", "undone"),
    ("expired", "expired"),
    ("cancelled", "cancelled"),
];

#[derive(Default)]
struct Words {
    title: &'static str,
    here: &'static str,
    about: String,
    /// Said below the table: a sentence, and where a link in it leads, with its words.
    notes: Vec<Note>,
}

type Note = (String, Option<(String, String)>);

pub(super) const PAGES: [&str; 6] = ["/queue", "/log", "/tasks", "/held", "/groups", "/search"];

#[derive(Template)]
#[template(path = "listing.html")]
pub(super) struct Listing {
    frame: Frame,
    path: &'static str,
    about: String,
    /// What was given and has no field of its own.
    kept: Vec<(String, String)>,
    text: String,
    /// `None`: these rows have none.
    fetcher: Option<String>,
    choices: Vec<Field>,
    is_reversed: bool,
    grid: Grid,
    notes: Vec<Note>,
}

struct Field {
    name: &'static str,
    label: &'static str,
    /// Each with its word in the address, what people read, and whether it is chosen.
    choices: Vec<(String, String, bool)>,
}

impl Field {
    fn new<'a>(
        name: &'static str,
        label: &'static str,
        choices: impl Iterator<Item = (&'a str, String)>,
        asked: &Asked,
    ) -> Self {
        let chosen = asked.get(name);
        let choice = |(word, text): (&str, String)| (word.to_owned(), text, word == chosen);
        Self { name, label, choices: choices.map(choice).collect() }
    }
}

pub(super) fn ask(
    sight: &Sight<'_>,
    asked: &Asked,
    path: &'static str,
) -> ReadResult<(StatusCode, Listing)> {
    let path = path.trim_start_matches('/');
    let asked = &match path {
        "tasks" => asked.clone().with_default("status", "failed"),
        _ => asked.clone(),
    };
    let (queue, now) = (&sight.snapshot.queue, sight.now());
    let question = asked.question(path, now).unwrap_or(Question::Next(asked.count()));
    let found = question.ask(sight.reader, now)?;
    let Words { title, here, about, notes } = words(&found, asked, path, queue);
    let turns = Turns::of(queue, sight.is_down());
    let mut table = found.table(&HeldSet::new(), &turns, now);
    let has_fetcher = table.column("fetcher").is_some();
    let fetcher = asked.get("fetcher");
    if has_fetcher && !fetcher.is_empty() {
        table.retain_fetcher(fetcher);
    }
    let kept = asked.given().filter(|(name, _)| ["q", "n", "before", "group"].contains(name));
    let kept = kept.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let listing = Listing {
        frame: sight.frame(title).at(here),
        path,
        about,
        kept: kept.collect(),
        text: asked.get("text").to_owned(),
        fetcher: has_fetcher.then(|| fetcher.to_owned()),
        choices: choices(asked, path, &table),
        is_reversed: asked.get("desc") == "1",
        grid: Grid::sorted(&mut table, asked, path, sight),
        notes,
    };
    Ok((StatusCode::OK, listing))
}

fn choices(asked: &Asked, path: &str, table: &Table) -> Vec<Field> {
    let mut choices = Vec::new();
    if path == "log" {
        let outcomes = OUTCOMES.iter().map(|(word, text)| (*word, (*text).to_owned()));
        choices.push(Field::new("outcome", "Outcome", outcomes, asked));
    }
    if path == "tasks" {
        let statuses = STATUSES.iter().map(|(word, text, _)| (*word, (*text).to_owned()));
        choices.push(Field::new("status", "Status", statuses, asked));
    }
    let columns = table.columns.iter().map(|column| (column.name, capitalized(column.name)));
    let orders = std::iter::once(("", "as listed".to_owned())).chain(columns);
    choices.push(Field::new("sort", "Order", orders, asked));
    choices
}

/// What is said of a listing, and where there is more.
fn words(found: &Listed, asked: &Asked, path: &str, status: &QueueStatus) -> Words {
    let all = |has_more: bool, words: &str| {
        let link = (address(path, asked, &[("n", "1000")]), words.to_owned());
        let is_cut = has_more && asked.count() < COUNT_MAX;
        let note = || ("There are more.".to_owned(), Some(link));
        is_cut.then(note).into_iter().collect::<Vec<Note>>()
    };
    match found {
        Listed::Next(queue) => {
            let has_more = queue.keys.len() == asked.count() && !queue.truncated;
            let too_long = "There are more: their payloads are too long to be listed at once.";
            let mut notes = all(has_more, "The next 1000");
            notes.extend(queue.truncated.then(|| (too_long.to_owned(), None)));
            let apart = [
                (status.held.saturating_add(status.backed_off), "held", "held key"),
                (status.delayed, "tasks?status=delayed", "delayed task"),
            ];
            let apart = apart.into_iter().filter(|(count, ..)| *count > 0);
            notes.extend(apart.map(|(count, list, what)| {
                ("Not among them:".to_owned(), Some((list.to_owned(), counted(count, what))))
            }));
            Words { title: "Next jobs", here: "queue", notes, ..Words::default() }
        }
        Listed::Log(log) => {
            let (here, title) = match asked.get("outcome") {
                "failed" => ("failed", "Failed"),
                _ => ("log", "Log"),
            };
            let last = log.attempts.last().filter(|_| log.attempts.len() == asked.count());
            let before = last.map(|ended| ended.ended).or(log.looked_to);
            let among = log.looked_to.filter(|_| last.is_none());
            let among = among.map(|_| (format!("Of {AMONG} attempts."), None));
            let earlier = before.map(|before| {
                let address = address("log", asked, &[("before", &before.to_string())]);
                (String::new(), Some((address, "Earlier ones".to_owned())))
            });
            let notes = among.into_iter().chain(earlier).collect();
            Words { title, here, notes, ..Words::default() }
        }
        Listed::Tasks(tasks) => {
            let (title, about) = of_status(asked.status());
            let mut notes = all(tasks.truncated, "The first 1000");
            let group = Some(asked.get("group")).filter(|it| !it.is_empty());
            notes.extend(group.map(|group| {
                let hold = Some((hold_address("g", group), "Hold it, or end its hold".to_owned()));
                (format!("Of the group {}.", text(group)), hold)
            }));
            Words { title, about: about.to_owned(), notes, ..Words::default() }
        }
        Listed::Groups(groups) => {
            let about = "What keys have in common, and when the next job of each may start.";
            let notes = all(groups.truncated, "The first 1000");
            Words { title: "Groups", about: about.to_owned(), notes, ..Words::default() }
        }
        Listed::Held(held) => {
            let notes = all(held.truncated, "The last 1000");
            Words { title: "Held keys", notes, ..Words::default() }
        }
        _ => {
            let what = match asked.get("q").trim() {
                "" => "All keys".to_owned(),
                prefix => format!("Keys that begin with {}; capitals count", text(prefix)),
            };
            let more = found.has_more();
            let first = if more { format!(": the first {FOUND_MAX}") } else { String::new() };
            Words { title: "Keys", about: format!("{what}{first}."), ..Words::default() }
        }
    }
}

fn of_status(status: Option<TaskStatus>) -> (&'static str, &'static str) {
    match status {
        Some(TaskStatus::Delayed) => (
            "Delayed tasks",
            "They failed. Each is tried again by itself soon after its time, unless its key is held; what a list named may be replaced by a newer list before.",
        ),
        Some(TaskStatus::DeadLetter) => (
            "Dead letters",
            "Too many of their leases expired. They run again by a retry, and what a list named with the next list, too.",
        ),
        Some(TaskStatus::Failed) => (
            "Failed tasks",
            "Their last attempt failed. They run again by a retry, and what a list named with the next list, too.",
        ),
        Some(TaskStatus::Waiting) => ("Waiting tasks", ""),
        Some(TaskStatus::InFlight) => ("Tasks in flight", ""),
        None => ("Tasks", ""),
    }
}
