//! What may be changed from here: requests of protocol 2, each asked about before it is sent. [`CHANGES`] is the table of their keys.

use std::time::Duration;

use serde_json::Value;
use shiftboss_protocol::model::Key;

use crate::client::{Session, this_user};
use crate::exit::Failure;
use crate::lock::LockState;
use crate::target::Target;
use crate::text::{cut_middle, shown};

/// How long the daemon may take.
const PATIENCE: Duration = Duration::from_secs(4);
/// Columns of a key in a question.
const KEY_WIDTH: usize = 60;

/// A key that changes something.
#[derive(Debug)]
pub struct Change {
    pub key: char,
    pub help: &'static str,
    /// What it asks for; `None`: there is nothing that it could change.
    pub order: fn(&Subject<'_>) -> Option<Order>,
}

/// In the order in which they are shown.
pub const CHANGES: &[Change] = &[
    Change { key: 'P', help: "pause: or resume", order: pause },
    Change { key: 'R', help: "retry: run the key again", order: retry },
    Change { key: 'B', help: "bump: run the key soon", order: bump },
    Change { key: 'H', help: "hold: or unhold the key", order: hold },
];

/// Why there is none of them: for who asked for none, or is not the daemon's operator.
pub fn why_not(may_change: bool) -> &'static str {
    match may_change {
        false => "Nothing can be changed: this is read-only.",
        true => "Nothing can be changed: no daemon answers, or you are not one of its operators.",
    }
}

/// What is selected, and how the queue is.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub is_paused: bool,
    pub key: Option<&'a str>,
    pub is_held: bool,
}

/// A change that is asked for.
#[derive(Debug, Clone)]
pub struct Order {
    /// A line of protocol 2.
    request: String,
    pub question: String,
    pub is_about_key: bool,
    /// What was done, by the daemon's answer and what it is about.
    done: fn(&Value, &str) -> String,
    /// The key, as it is shown.
    subject: String,
}

fn pause(subject: &Subject<'_>) -> Option<Order> {
    let (request, question, done): (_, _, fn(&Value, &str) -> String) = match subject.is_paused {
        true => ("RESUME", "Resume: hand jobs out again?", |_, _| {
            "Jobs are handed out again.".to_owned()
        }),
        false => ("PAUSE", "Pause: hand nothing out?", |_, _| "Paused.".to_owned()),
    };
    let (request, question) = (request.to_owned(), question.to_owned());
    Some(Order { request, question, is_about_key: false, done, subject: String::new() })
}

fn retry(subject: &Subject<'_>) -> Option<Order> {
    about_key(subject, "Retry", "RETRY", "", |answer, key| match answer["rows"].as_i64() {
        Some(1..) => format!("{key} waits again."),
        _ => format!("Nothing of {key} was to be put back."),
    })
}

fn bump(subject: &Subject<'_>) -> Option<Order> {
    about_key(subject, "Bump", "BUMP", "", |_, key| format!("{key} is handed out soon."))
}

fn hold(subject: &Subject<'_>) -> Option<Order> {
    match subject.is_held {
        true => {
            about_key(subject, "Unhold", "UNHOLD", "", |_, key| format!("{key} is no longer held."))
        }
        false => about_key(subject, "Hold", "HOLD", " -", |_, key| {
            format!("{key} is held until it is unheld.")
        }),
    }
}

/// An order about the selected key. What is no key, whoever put it into the database, would be another request.
fn about_key(
    subject: &Subject<'_>,
    verb: &str,
    request: &str,
    behind: &str,
    done: fn(&Value, &str) -> String,
) -> Option<Order> {
    let key = Key::new(subject.key?).ok()?;
    let subject = cut_middle(key.as_str(), KEY_WIDTH);
    let question = format!("{verb} {subject}?");
    let request = format!("{request} {key}{behind}");
    Some(Order { request, question, is_about_key: true, done, subject })
}

/// Has the daemon do it; what came of it.
pub fn tell(target: Result<Target, Failure>, order: &Order) -> String {
    let daemon = match target.map(|target| target.daemon) {
        Ok(LockState::By(daemon)) => daemon,
        Ok(LockState::Free) => return "Not done: no daemon runs.".to_owned(),
        Ok(LockState::Unknown(why)) => return format!("Not done: {why}."),
        Err(failure) => return format!("Not done: {failure}"),
    };
    let request = format!("{}\n", order.request);
    let answer = Session::begin_as(&daemon.socket, &this_user(), "top", &request, PATIENCE)
        .and_then(|mut session| session.answer());
    match answer {
        Ok(answer) => (order.done)(&answer.object, &order.subject),
        Err(failure) => format!("Not done: {}", shown(&failure.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(key: char, subject: Subject<'_>) -> Option<String> {
        let change = CHANGES.iter().find(|change| change.key == key).unwrap();
        (change.order)(&subject).map(|order| order.request)
    }

    /// The state decides which way; without a key, or with what is none, there is no order about one.
    #[test]
    fn orders_are_requests() {
        let subject = Subject { is_paused: false, key: Some("a"), is_held: false };
        let other = Subject { is_paused: true, is_held: true, ..subject };
        for (key, one, another) in [
            ('P', "PAUSE", "RESUME"),
            ('R', "RETRY a", "RETRY a"),
            ('B', "BUMP a", "BUMP a"),
            ('H', "HOLD a -", "UNHOLD a"),
        ] {
            assert_eq!(request(key, subject).as_deref(), Some(one));
            assert_eq!(request(key, other).as_deref(), Some(another));
        }
        for no_key in [None, Some("a\nPAUSE"), Some("a b"), Some("")] {
            let subject = Subject { key: no_key, ..subject };
            for key in ['R', 'B', 'H'] {
                assert_eq!(request(key, subject), None, "{key} {no_key:?}");
            }
        }
    }
}
