//! The result of an order to a daemon, as a sentence, the same in the commands, `top` and the web page. [`give`] sends
//! the orders of the last two; the commands' own way is in [`operators`](crate::commands::operators).

use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;
use shiftboss_protocol::answers::{Hold, HoldRule};
use shiftboss_protocol::model::Key;
use shiftboss_protocol::verbs::{
    AcceptInputAnswer, AddAnswer, BumpAnswer, CancelRunningAnswer, DrainAnswer, ForgetAnswer,
    HealthAnswer, HoldAllAnswer, HoldAnswer, HoldFetcherAnswer, HoldGroupAnswer, Name, PauseAnswer,
    Request, RetryAnswer, RunFetcherAnswer, UnholdAllAnswer, UnholdAnswer, UnholdFetcherAnswer,
    UnholdGroupAnswer, Verb,
};

use crate::client::ask_as;
use crate::exit::{ExitCode, Failure};
use crate::hint::hint;
use crate::lock::LockState;
use crate::target::Target;
use crate::text::{counted, quoted, shown, timestamp};
use crate::view::status::paused;

/// How long the daemon may take.
const PATIENCE: Duration = Duration::from_secs(4);

/// Sends an order to the daemon of a queue, in a person's name; returns what it did.
///
/// # Errors
/// When there is no daemon, or it refuses.
pub fn give(target: &Target, by: Name, order: Request) -> Result<String, Failure> {
    let unavailable = |why| Err(Failure::new(ExitCode::Unavailable, why));
    let socket = match &target.daemon {
        LockState::By(daemon) => &daemon.socket,
        LockState::Free => return unavailable("no daemon runs"),
        LockState::Unknown(why) => return unavailable(why),
    };
    match order {
        Request::Pause(order) => said(socket, by, order),
        Request::Resume(order) => said(socket, by, order),
        Request::Retry(order) => said(socket, by, order),
        Request::Bump(order) => said(socket, by, order),
        Request::Hold(order) => said(socket, by, order),
        Request::Unhold(order) => said(socket, by, order),
        Request::CancelRunning(order) => said(socket, by, order),
        Request::HoldGroup(order) => said(socket, by, order),
        Request::UnholdGroup(order) => said(socket, by, order),
        other => Err(Failure::usage(format!("{} is a command's alone", other.name()))),
    }
}

fn said<V: Verb<Answer: DeserializeOwned + Said>>(
    socket: &Path,
    by: Name,
    order: V,
) -> Result<String, Failure> {
    ask_as(socket, by, order, PATIENCE).map(|answer| answer.object.said())
}

/// A hint that names the key.
pub fn line_of(command: &str, key: &Key) -> String {
    hint(format_args!("{command} {}", quoted(key.as_str())))
}

pub fn text(key: &Key) -> String {
    shown(key.as_str())
}

/// An answer that people read as a sentence.
pub trait Said {
    fn said(&self) -> String;
}

impl Said for HealthAnswer {
    fn said(&self) -> String {
        let jobs = counted(self.in_flight, "job");
        format!("Healthy: the daemon answers from its database; {jobs} in flight.")
    }
}

impl Said for PauseAnswer {
    fn said(&self) -> String {
        match self.paused {
            true => format!("Paused: {}.", paused()),
            false => "Jobs are handed out again.".to_owned(),
        }
    }
}

impl Said for DrainAnswer {
    fn said(&self) -> String {
        let jobs = counted(self.in_flight, "job");
        format!("Nothing is handed out any more; {jobs} in flight.")
    }
}

impl Said for AcceptInputAnswer {
    fn said(&self) -> String {
        match self.accepted {
            true => "The directory is the input directory from now on.",
            false => "The input directory is not lost: there is nothing to accept.",
        }
        .to_owned()
    }
}

impl Said for RunFetcherAnswer {
    fn said(&self) -> String {
        let name = shown(&self.fetcher);
        match self.state.as_str() {
            "idle" | "waiting" => format!("A run of {name} starts."),
            _ => format!("A run of {name} starts as soon as its cooldown is over."),
        }
    }
}

impl Said for ForgetAnswer {
    fn said(&self) -> String {
        format!("Forgotten: {}.", text(&self.key))
    }
}

impl Said for AddAnswer {
    fn said(&self) -> String {
        let key = text(&self.key);
        if !self.added {
            return format!("{key} was added already: this payload waits, or the ID is known.");
        }
        let more = if self.exact { "" } else { "more than " };
        let turn = match self.keys_before {
            Some(0) => "; it is the next key".to_owned(),
            Some(keys) => format!("; {more}{} before it", counted(keys, "key")),
            None => String::new(),
        };
        let tasks = match self.tasks_before {
            None | Some(0) => String::new(),
            Some(tasks) => format!(", after {} of this key", counted(tasks, "other task")),
        };
        format!("Added {key}{turn}{tasks}.")
    }
}

impl Said for RetryAnswer {
    fn said(&self) -> String {
        let name = text(&self.key);
        match self.rows {
            0 => {
                let why = line_of("why", &self.key);
                format!("Nothing of {name} was to be put back: {why} tells where it is.")
            }
            rows => format!("Back in the queue: {name} ({}).", counted(rows, "task")),
        }
    }
}

impl Said for BumpAnswer {
    fn said(&self) -> String {
        let name = text(&self.key);
        match self.bumped_before {
            0 => {
                let why = line_of("why", &self.key);
                format!("Bumped: {name} is the next of the bumped keys; {why} tells its turn.")
            }
            before => format!("Bumped: {name}, behind {}.", counted(before, "bumped key")),
        }
    }
}

impl Said for HoldAnswer {
    fn said(&self) -> String {
        let unhold = line_of("unhold", &self.key);
        let until =
            self.until.map_or(String::new(), |until| format!("until {}, or ", timestamp(until)));
        let doubt = match self.known {
            true => "",
            false => " No list has it now, and it never ran: is it spelled right?",
        };
        let replaced = self.replaced.as_ref().map(replaced).unwrap_or_default();
        format!("Held {until}until {unhold}: {}.{replaced}{doubt}", text(&self.key))
    }
}

fn replaced(hold: &Hold) -> String {
    let by = shown(&hold.by);
    let until = hold.until.map_or(String::new(), |until| format!(", until {}", timestamp(until)));
    let reason = Some(&hold.reason).filter(|reason| !reason.is_empty());
    let reason = reason.map_or(String::new(), |reason| format!(": {}", shown(reason)));
    format!(" It takes the place of a hold by {by}{until}{reason}.")
}

impl Said for UnholdAnswer {
    fn said(&self) -> String {
        let key = text(&self.key);
        match self.was_held {
            true => format!("No longer held: {key}. A task of it that waits is at its old place."),
            false => format!("{key} was not held."),
        }
    }
}

impl Said for CancelRunningAnswer {
    fn said(&self) -> String {
        let (key, worker) = (text(&self.key), shown(&self.worker));
        format!(
            "Cancelled: {worker} is to stop the running job of {key}, attempt {}.",
            self.attempt
        )
    }
}

impl Said for HoldAllAnswer {
    fn said(&self) -> String {
        let which = format!("all keys that begin with {}", text(&self.prefix));
        let unhold = format!("unhold --prefix {}", quoted(self.prefix.as_str()));
        by_rule(&which, &unhold, self.until, self.replaced.as_ref())
    }
}

impl Said for HoldFetcherAnswer {
    fn said(&self) -> String {
        let which = format!("all tasks of {}", shown(&self.fetcher));
        let unhold = format!("unhold --fetcher {}", quoted(&self.fetcher));
        by_rule(&which, &unhold, self.until, self.replaced.as_ref())
    }
}

impl Said for HoldGroupAnswer {
    fn said(&self) -> String {
        let which = format!("all tasks of the group {}", shown(&self.group));
        let unhold = format!("unhold --group {}", quoted(&self.group));
        let none = if self.tasks > 0 { "" } else { " No task is in it now: `groups` lists all." };
        by_rule(&which, &unhold, self.until, None) + none
    }
}

impl Said for UnholdGroupAnswer {
    fn said(&self) -> String {
        let group = shown(&self.group);
        match self.was_held {
            true => {
                format!("The group {group} is held no longer, and no pause of a command closes it.")
            }
            false => format!("The group {group} was not held, nor did a command ask for a pause."),
        }
    }
}

fn by_rule(which: &str, unhold: &str, until: Option<i64>, replaced: Option<&HoldRule>) -> String {
    let until = until.map_or(String::new(), |until| format!("until {}, or ", timestamp(until)));
    let replaced = replaced.map_or(String::new(), |rule| {
        format!(" It takes the place of such a rule by {}.", shown(&rule.by))
    });
    format!("Held {until}until {}: {which}, also those that come later.{replaced}", hint(unhold))
}

impl Said for UnholdAllAnswer {
    fn said(&self) -> String {
        rule_ended(self.was_held, &format!("all keys that begin with {}", text(&self.prefix)))
    }
}

impl Said for UnholdFetcherAnswer {
    fn said(&self) -> String {
        rule_ended(self.was_held, &format!("all tasks of {}", shown(&self.fetcher)))
    }
}

fn rule_ended(was_held: bool, which: &str) -> String {
    match was_held {
        true => format!("No rule holds {which} any more: what waits of them is at its old place."),
        false => format!("There was no rule for {which}."),
    }
}

#[cfg(test)]
mod tests {
    use shiftboss_protocol::answers::HoldKind;

    use super::*;

    /// The exact output.
    #[test]
    fn the_answers_are_as_documented() {
        let key = |text: &str| Key::new(text).unwrap();
        let of = |until, known, replaced| HoldAnswer { key: key("a"), until, known, replaced };
        assert_eq!(
            of(Some(1_000_000), true, None).said(),
            "Held until 1970-01-12T13:46:40Z, or until `shiftboss unhold a`: a."
        );
        assert_eq!(
            of(None, false, None).said(),
            "Held until `shiftboss unhold a`: a. No list has it now, and it never ran: is it spelled right?"
        );
        let (by, reason) = ("eve".to_owned(), "a\tb".to_owned());
        let before = Hold { kind: HoldKind::Hold, since: 0, until: Some(0), reason, by };
        assert_eq!(
            of(None, true, Some(before)).said(),
            "Held until `shiftboss unhold a`: a. It takes the place of a hold by eve, until 1970-01-01T00:00:00Z: a\\tb."
        );
        assert_eq!(UnholdAnswer { key: key("a"), was_held: false }.said(), "a was not held.");
        let behind = |bumped_before| BumpAnswer { key: key("a"), bumped_before }.said();
        assert_eq!(
            behind(0),
            "Bumped: a is the next of the bumped keys; `shiftboss why a` tells its turn."
        );
        assert_eq!(behind(2), "Bumped: a, behind 2 bumped keys.");
    }
}
