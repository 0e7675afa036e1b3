//! `shiftboss hold`, `unhold` and `bump`: keys that a running daemon does not hand out, or before others. Each is asked for in
//! somebody's name.

use std::fmt::Display;
use std::time::{Duration, UNIX_EPOCH};

use humantime::format_rfc3339_seconds;
use serde_json::Value;

use super::{for_each, line_of, show};
use crate::cli::{By, Hold, KeyArguments};
use crate::client::{Session, this_user};
use crate::exit::Failure;
use crate::target::line;
use crate::text::{counted, shown};

pub(super) fn hold(asked: Hold) -> Result<(), Failure> {
    let Hold { of, prefix, time, reason, by } = asked;
    let seconds = time.map_or("-".to_owned(), |time| whole_seconds(time).to_string());
    let behind = reason.map_or(String::new(), |reason| format!(" {reason}"));
    let behind = format!(" {seconds}{behind}");
    if prefix {
        tell(of, by, "HOLD-ALL", &behind, all_held)
    } else {
        tell(of, by, "HOLD", &behind, held)
    }
}

pub(super) fn unhold(of: KeyArguments, prefix: bool, by: By) -> Result<(), Failure> {
    match prefix {
        true => tell(of, by, "UNHOLD-ALL", "", all_unheld),
        false => tell(of, by, "UNHOLD", "", unheld),
    }
}

pub(super) fn bump(of: KeyArguments, by: By) -> Result<(), Failure> {
    tell(of, by, "BUMP", "", bumped)
}

/// A hold is not over before its time.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// Sends a request in somebody's name, for each key.
fn tell(
    of: KeyArguments,
    by: By,
    verb: &str,
    behind: &str,
    render: impl Fn(&str, &Value) -> String,
) -> Result<(), Failure> {
    let (name, by) = (verb.to_lowercase(), by.by.unwrap_or_else(this_user));
    for_each(of, |daemon, key| {
        let request = format!("{verb} {key}{behind}\n");
        let socket = daemon.target.socket(&name)?;
        let mut session = Session::begin_as(&socket, &by, &name, &request, daemon.timeout())?;
        show(&session.answer()?, daemon.json, |answer| render(key.as_str(), answer))
    })
}

fn held(key: &str, answer: &Value) -> String {
    let unhold = line_of("unhold", key);
    let until = answer["until"].as_u64();
    let until = until.map_or(String::new(), |until| format!("until {}, or ", time(until)));
    let doubt = match answer["known"] == true {
        true => "",
        false => " No list has it now, and it never ran: is it spelled right?",
    };
    let replaced = replaced(&answer["replaced"]).unwrap_or_default();
    format!("Held {until}until {unhold}: {}.{replaced}{doubt}", shown(key))
}

fn all_held(prefix: &str, answer: &Value) -> String {
    let count = |name: &str| answer[name].as_i64().unwrap_or(0);
    let replaced = match count("replaced") {
        0 => String::new(),
        some => format!(" It takes the place of {}.", counted(some, "earlier hold")),
    };
    format!(
        "{}; {} lists them. Keys that come later are not held.{replaced}",
        begin_so("Held", count("held"), prefix),
        line("tasks --held")
    )
}

fn all_unheld(prefix: &str, answer: &Value) -> String {
    let ended = answer["ended"].as_i64().unwrap_or(0);
    format!(
        "{}. What waits of them is at its old place.",
        begin_so("No longer held", ended, prefix)
    )
}

fn begin_so(how: &str, count: i64, prefix: &str) -> String {
    let begins = if count == 1 { "begins" } else { "begin" };
    format!("{how}: {} that {begins} with {}", counted(count, "key"), shown(prefix))
}

/// An earlier hold, which is gone.
fn replaced(hold: &Value) -> Option<String> {
    let by = shown(hold["by"].as_str()?);
    let until =
        hold["until"].as_u64().map_or(String::new(), |until| format!(", until {}", time(until)));
    let reason = hold["reason"].as_str().filter(|reason| !reason.is_empty());
    let reason = reason.map_or(String::new(), |reason| format!(": {}", shown(reason)));
    Some(format!(" It takes the place of a hold by {by}{until}{reason}."))
}

fn time(second: u64) -> impl Display {
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(second)).unwrap_or(UNIX_EPOCH);
    format_rfc3339_seconds(time)
}

fn unheld(key: &str, answer: &Value) -> String {
    let key = shown(key);
    match answer["was_held"] == true {
        true => format!("No longer held: {key}. A task of it that waits is at its old place."),
        false => format!("{key} was not held."),
    }
}

fn bumped(key: &str, answer: &Value) -> String {
    let name = shown(key);
    match answer["bumped_before"].as_u64() {
        None | Some(0) => {
            let why = line_of("why", key);
            format!("Bumped: {name} is the next of the bumped keys; {why} tells its turn.")
        }
        Some(before) => {
            format!("Bumped: {name}, behind {}.", counted(before.cast_signed(), "bumped key"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What a user sees, to the letter.
    #[test]
    fn the_answers_are_as_documented() {
        let until = json!({"until": 1_000_000, "known": true});
        assert_eq!(
            held("alpha", &until),
            "Held until 1970-01-12T13:46:40Z, or until `shiftboss unhold alpha`: alpha."
        );
        assert_eq!(
            held("alhpa", &json!({"until": null, "known": false})),
            "Held until `shiftboss unhold alhpa`: alhpa. No list has it now, and it never ran: is it spelled right?"
        );
        let before = json!({"by": "eve", "until": 0, "reason": "a\tb"});
        assert_eq!(
            held("alpha", &json!({"until": null, "known": true, "replaced": before})),
            "Held until `shiftboss unhold alpha`: alpha. It takes the place of a hold by eve, until 1970-01-01T00:00:00Z: a\\tb."
        );
        assert_eq!(unheld("alpha", &json!({"was_held": false})), "alpha was not held.");
        let behind = |before| bumped("alpha", &json!({"bumped_before": before}));
        assert_eq!(
            behind(0),
            "Bumped: alpha is the next of the bumped keys; `shiftboss why alpha` tells its turn."
        );
        assert_eq!(behind(2), "Bumped: alpha, behind 2 bumped keys.");
        assert_eq!(whole_seconds(Duration::from_millis(1_500)), 2);
    }
}
