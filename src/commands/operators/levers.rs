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

use super::{for_each, line_of, show, text};
use crate::cli::{self, By, KeyArguments};
use crate::client::{self, this_user};
use crate::exit::Failure;
use crate::target::line;
use crate::text::{counted, shown};

pub(super) fn hold(asked: cli::Hold) -> Result<(), Failure> {
    let cli::Hold { of, prefix, time, reason, by } = asked;
    let (seconds, reason) = (time.unwrap_or(HoldTime::UNTIL_UNHELD), reason.unwrap_or_default());
    if prefix {
        let request = |prefix| HoldAll { prefix, seconds, reason: reason.clone() };
        tell(of, by, request, all_held)
    } else {
        tell(of, by, |key| Hold { key, seconds, reason: reason.clone() }, held)
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

/// Sends a request in somebody's name, for each key.
fn tell<V: Verb<Answer: DeserializeOwned>>(
    of: KeyArguments,
    by: By,
    request: impl Fn(Key) -> V,
    render: impl Fn(&V::Answer) -> String,
) -> Result<(), Failure> {
    let by = by.by.unwrap_or_else(this_user);
    for_each(of, |daemon, key| {
        let socket = daemon.target.socket(&V::NAME.to_lowercase())?;
        let answer = client::ask_as(&socket, by.clone(), request(key), daemon.timeout())?;
        show(&answer, daemon.json, &render)
    })
}

fn held(answer: &HoldAnswer) -> String {
    let unhold = line_of("unhold", &answer.key);
    let until = answer.until.map_or(String::new(), |until| format!("until {}, or ", time(until)));
    let doubt = match answer.known {
        true => "",
        false => " No list has it now, and it never ran: is it spelled right?",
    };
    let replaced = answer.replaced.as_ref().map(replaced).unwrap_or_default();
    format!("Held {until}until {unhold}: {}.{replaced}{doubt}", text(&answer.key))
}

fn all_held(answer: &HoldAllAnswer) -> String {
    let replaced = match answer.replaced {
        0 => String::new(),
        some => format!(" It takes the place of {}.", counted(some, "earlier hold")),
    };
    format!(
        "{}; {} lists them. Keys that come later are not held.{replaced}",
        begin_so("Held", answer.held, &answer.prefix),
        line("tasks --held")
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
    let name = text(&answer.key);
    match answer.bumped_before {
        0 => {
            let why = line_of("why", &answer.key);
            format!("Bumped: {name} is the next of the bumped keys; {why} tells its turn.")
        }
        before => format!("Bumped: {name}, behind {}.", counted(before, "bumped key")),
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
            "Held until 1970-01-12T13:46:40Z, or until `shiftboss unhold a`: a."
        );
        assert_eq!(
            held(&of(None, false, None)),
            "Held until `shiftboss unhold a`: a. No list has it now, and it never ran: is it spelled right?"
        );
        let (by, reason) = ("eve".to_owned(), "a\tb".to_owned());
        let before = answers::Hold { kind: HoldKind::Hold, since: 0, until: Some(0), reason, by };
        assert_eq!(
            held(&of(None, true, Some(before))),
            "Held until `shiftboss unhold a`: a. It takes the place of a hold by eve, until 1970-01-01T00:00:00Z: a\\tb."
        );
        assert_eq!(unheld(&UnholdAnswer { key: key("a"), was_held: false }), "a was not held.");
        let behind = |bumped_before| bumped(&BumpAnswer { key: key("a"), bumped_before });
        assert_eq!(
            behind(0),
            "Bumped: a is the next of the bumped keys; `shiftboss why a` tells its turn."
        );
        assert_eq!(behind(2), "Bumped: a, behind 2 bumped keys.");
    }
}
