//! Changes from here: requests of protocol 2, each of which must be confirmed before it is sent. [`CHANGES`] is the
//! table of their keys.

use shiftboss_protocol::model::Key;
use shiftboss_protocol::verbs::{
    Bump, CancelRunning, Hold, HoldGroup, HoldTime, Name, Pause, Reason, Request, Resume, Retry,
    Unhold, UnholdGroup, checked,
};

use crate::client::this_user;
use crate::exit::Failure;
use crate::orders;
use crate::target::Target;
use crate::text::cut_middle;

const KEY_WIDTH: usize = 60;

#[derive(Debug)]
pub struct Change {
    pub key: char,
    pub help: &'static str,
    /// The order; `None`: there is nothing to change.
    pub order: fn(&Subject<'_>) -> Option<Order>,
}

/// In the order in which they are shown.
pub const CHANGES: &[Change] = &[
    Change { key: 'P', help: "pause: or resume", order: pause },
    Change { key: 'R', help: "retry: run the key again", order: retry },
    Change { key: 'B', help: "bump: run the key soon", order: bump },
    Change { key: 'C', help: "cancel: stop the running job", order: cancel },
    Change { key: 'H', help: "hold: or unhold key or group", order: hold },
];

/// Why changes are not available: the user asked for none, or is not the daemon's operator.
pub fn why_not(may_change: bool) -> &'static str {
    match may_change {
        false => "Nothing can be changed: this is read-only.",
        true => "Nothing can be changed: no daemon answers, or you are not one of its operators.",
    }
}

/// The selection, and the state of the queue.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub is_paused: bool,
    pub key: Option<&'a str>,
    pub group: Option<&'a str>,
    pub is_held: bool,
}

#[derive(Debug, Clone)]
pub struct Order {
    request: Request,
    pub question: String,
    pub is_about_key: bool,
}

fn pause(subject: &Subject<'_>) -> Option<Order> {
    let (request, question) = match subject.is_paused {
        true => (Resume {}.into(), "Resume: hand jobs out again?".to_owned()),
        false => (Pause {}.into(), "Pause: hand nothing out?".to_owned()),
    };
    Some(Order { request, question, is_about_key: false })
}

fn retry(subject: &Subject<'_>) -> Option<Order> {
    about_key(subject, "Retry", |key| Retry { key }.into())
}

fn bump(subject: &Subject<'_>) -> Option<Order> {
    about_key(subject, "Bump", |key| Bump { key }.into())
}

fn cancel(subject: &Subject<'_>) -> Option<Order> {
    about_key(subject, "Cancel the running job of", |key| CancelRunning { key }.into())
}

fn hold(subject: &Subject<'_>) -> Option<Order> {
    if let Some(group) = subject.group {
        return hold_group(group, subject.is_held);
    }
    match subject.is_held {
        true => about_key(subject, "Unhold", |key| Unhold { key }.into()),
        false => about_key(subject, "Hold", |key| {
            Hold { key, seconds: HoldTime::UNTIL_UNHELD, reason: Reason::default() }.into()
        }),
    }
}

fn hold_group(name: &str, is_held: bool) -> Option<Order> {
    let group = checked::<Name>(name).ok()?;
    let verb = if is_held { "Unhold" } else { "Hold" };
    let question = format!("{verb} the group {}?", cut_middle(name, KEY_WIDTH));
    let request = match is_held {
        true => UnholdGroup { group }.into(),
        false => {
            let (seconds, reason) = (HoldTime::UNTIL_UNHELD, Reason::default());
            HoldGroup { group, seconds, reason }.into()
        }
    };
    Some(Order { request, question, is_about_key: true })
}

/// An order about the selected key. An invalid key in the database would make another request of it.
fn about_key(
    subject: &Subject<'_>,
    verb: &str,
    request: impl FnOnce(Key) -> Request,
) -> Option<Order> {
    let key = Key::new(subject.key?).ok()?;
    let question = format!("{verb} {}?", cut_middle(key.as_str(), KEY_WIDTH));
    Some(Order { request: request(key), question, is_about_key: true })
}

/// Sends the order to the daemon; returns the result as a text.
pub fn tell(target: Result<Target, Failure>, order: &Order) -> String {
    let given = target.and_then(|it| orders::give(&it, this_user(), order.request.clone()));
    given.unwrap_or_else(|failure| format!("Not done: {failure}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(key: char, subject: Subject<'_>) -> Option<&'static str> {
        let change = CHANGES.iter().find(|change| change.key == key).unwrap();
        (change.order)(&subject).map(|order| order.request.name())
    }

    /// The state decides which order it is; without a valid key, there is no order about one.
    #[test]
    fn orders_are_requests() {
        let subject = Subject { is_paused: false, key: Some("a"), group: None, is_held: false };
        let other = Subject { is_paused: true, is_held: true, ..subject };
        for (key, one, another) in [
            ('P', "PAUSE", "RESUME"),
            ('R', "RETRY", "RETRY"),
            ('B', "BUMP", "BUMP"),
            ('C', "CANCEL-RUNNING", "CANCEL-RUNNING"),
            ('H', "HOLD", "UNHOLD"),
        ] {
            assert_eq!(request(key, subject), Some(one));
            assert_eq!(request(key, other), Some(another));
        }
        let group = Subject { key: None, group: Some("host:a"), ..subject };
        assert_eq!(request('H', group), Some("HOLD-GROUP"));
        assert_eq!(request('H', Subject { is_held: true, ..group }), Some("UNHOLD-GROUP"));
        assert_eq!(request('R', group), None);
        for no_key in [None, Some("a\nPAUSE"), Some("a b"), Some("")] {
            let subject = Subject { key: no_key, ..subject };
            for key in ['R', 'B', 'C', 'H'] {
                assert_eq!(request(key, subject), None, "{key} {no_key:?}");
            }
        }
    }
}
