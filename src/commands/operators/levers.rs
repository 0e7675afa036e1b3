//! `shiftboss hold`, `unhold` and `bump`: keys that a running daemon does not hand out, or before others. Each is asked for in
//! somebody's name.

use std::fmt::Display;
use std::time::{Duration, UNIX_EPOCH};

use humantime::format_rfc3339_seconds;
use serde::de::DeserializeOwned;
use shiftboss_protocol::answers;
use shiftboss_protocol::model::{Key, UnixSeconds};
use shiftboss_protocol::verbs::{
    Bump, BumpAnswer, Hold, HoldAll, HoldAllAnswer, HoldAnswer, HoldTime, Unhold, UnholdAll,
    UnholdAllAnswer, UnholdAnswer, Verb,
};

use super::{key, show, text};
use crate::cli::{self, By, KeyArguments};
use crate::client::{self, this_user};
use crate::exit::Failure;
use crate::target::socket;
use crate::text::{counted, shown};

pub(super) fn hold(asked: cli::Hold) -> Result<(), Failure> {
    let cli::Hold { of, prefix, time, reason, by } = asked;
    let (seconds, reason) = (time.unwrap_or(HoldTime::UNTIL_UNHELD), reason.unwrap_or_default());
    if prefix {
        tell(of, by, |prefix| HoldAll { prefix, seconds, reason }, all_held)
    } else {
        tell(of, by, |key| Hold { key, seconds, reason }, held)
    }
}

pub(super) fn unhold(of: KeyArguments, prefix: bool, by: By) -> Result<(), Failure> {
    match prefix {
        true => tell(of, by, |prefix| UnholdAll { prefix }, all_unheld),
        false => tell(of, by, |key| Unhold { key }, unheld),
    }
}

pub(super) fn bump(of: KeyArguments, by: By) -> Result<(), Failure> {
    tell(of, by, |key| Bump { key }, bumped)
}

/// Sends a request in somebody's name.
fn tell<V: Verb<Answer: DeserializeOwned>>(
    of: KeyArguments,
    by: By,
    request: impl FnOnce(Key) -> V,
    render: impl FnOnce(&V::Answer) -> String,
) -> Result<(), Failure> {
    let (daemon, key) = key(of)?;
    let socket = socket(daemon.socket.clone(), &V::NAME.to_lowercase())?;
    let by = by.by.unwrap_or_else(this_user);
    show(&client::ask_as(&socket, by, request(key), daemon.timeout())?, daemon.json, render)
}

fn held(answer: &HoldAnswer) -> String {
    let until = answer.until.map_or("until `shiftboss unhold`".to_owned(), |until| {
        format!("until {}, or until `shiftboss unhold`", time(until))
    });
    let doubt = match answer.known {
        true => "",
        false => " No list has it now, and it never ran: is it spelled right?",
    };
    let replaced = answer.replaced.as_ref().map(replaced).unwrap_or_default();
    format!("Held {until}: {}.{replaced}{doubt}", text(&answer.key))
}

fn all_held(answer: &HoldAllAnswer) -> String {
    let replaced = match answer.replaced {
        0 => String::new(),
        some => format!(" It takes the place of {}.", counted(some, "earlier hold")),
    };
    format!(
        "{}; `shiftboss held` lists them. Keys that come later are not held.{replaced}",
        begin_so("Held", answer.held, &answer.prefix)
    )
}

fn all_unheld(answer: &UnholdAllAnswer) -> String {
    format!(
        "{}. What waits of them is at its old place.",
        begin_so("No longer held", answer.ended, &answer.prefix)
    )
}

fn begin_so(how: &str, count: u64, prefix: &Key) -> String {
    let begins = if count == 1 { "begins" } else { "begin" };
    format!("{how}: {} that {begins} with {}", counted(count, "key"), text(prefix))
}

/// An earlier hold, which is gone.
fn replaced(hold: &answers::Hold) -> String {
    let by = shown(&hold.by);
    let until = hold.until.map_or(String::new(), |until| format!(", until {}", time(until)));
    let reason = Some(&hold.reason).filter(|reason| !reason.is_empty());
    let reason = reason.map_or(String::new(), |reason| format!(": {}", shown(reason)));
    format!(" It takes the place of a hold by {by}{until}{reason}.")
}

fn time(second: UnixSeconds) -> impl Display {
    let since = Duration::from_secs(second.try_into().unwrap_or(0));
    format_rfc3339_seconds(UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH))
}

fn unheld(answer: &UnholdAnswer) -> String {
    let key = text(&answer.key);
    match answer.was_held {
        true => format!("No longer held: {key}. A task of it that waits is at its old place."),
        false => format!("{key} was not held."),
    }
}

fn bumped(answer: &BumpAnswer) -> String {
    let key = text(&answer.key);
    match answer.bumped_before {
        0 => {
            format!("Bumped: {key} is the next of the bumped keys; `shiftboss why` tells its turn.")
        }
        before => format!("Bumped: {key}, behind {}.", counted(before, "bumped key")),
    }
}

#[cfg(test)]
mod tests {
    use shiftboss_protocol::answers::HoldKind;

    use super::*;

    /// What a user sees, to the letter.
    #[test]
    fn the_answers_are_as_documented() {
        let key = |text: &str| Key::new(text).unwrap();
        let of = |until, known, replaced| HoldAnswer { key: key("a"), until, known, replaced };
        assert_eq!(
            held(&of(Some(1_000_000), true, None)),
            "Held until 1970-01-12T13:46:40Z, or until `shiftboss unhold`: a."
        );
        assert_eq!(
            held(&of(None, false, None)),
            "Held until `shiftboss unhold`: a. No list has it now, and it never ran: is it spelled right?"
        );
        let (by, reason) = ("eve".to_owned(), "a\tb".to_owned());
        let before = answers::Hold { kind: HoldKind::Hold, since: 0, until: Some(0), reason, by };
        assert_eq!(
            held(&of(None, true, Some(before))),
            "Held until `shiftboss unhold`: a. It takes the place of a hold by eve, until 1970-01-01T00:00:00Z: a\\tb."
        );
        assert_eq!(unheld(&UnholdAnswer { key: key("a"), was_held: false }), "a was not held.");
        let behind = |bumped_before| bumped(&BumpAnswer { key: key("a"), bumped_before });
        assert_eq!(
            behind(0),
            "Bumped: a is the next of the bumped keys; `shiftboss why` tells its turn."
        );
        assert_eq!(behind(2), "Bumped: a, behind 2 bumped keys.");
    }
}
