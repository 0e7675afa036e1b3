//! `shiftboss broker check` and `broker dead-letters`: what an operator sees of a message broker, without a daemon.

use serde::Serialize;
use shiftboss_relay::{
    Broker, BrokerCheck, DeadLetter, DeadLetters, Disposal, Look, Part, PartKind, PartState,
};
use tokio::runtime::Builder;

use super::printing::{json, offer};
use crate::cli::BrokerVerb;
use crate::exit::{ExitCode, Failure};
use crate::stores::start_failure;
use crate::text::{columns, counted, line, shown};

/// The JSON object: the broker, and what was found there.
#[derive(Serialize)]
struct Report<'a, T> {
    broker: String,
    #[serde(flatten)]
    found: &'a T,
}

pub fn run(asked: BrokerVerb) -> Result<(), Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(Failure::of(ExitCode::Internal))?.block_on(async {
        match asked {
            BrokerVerb::Check { place } => {
                let json = place.json;
                check(&place.broker()?, json).await
            }
            BrokerVerb::DeadLetters { place, disposal, number } => {
                let json = place.json;
                dead_letters(&place.broker()?, number, disposal.into(), json).await
            }
        }
    })
}

fn show<T: Serialize>(
    broker: &Broker,
    found: &T,
    as_json: bool,
    render: impl FnOnce(&T) -> String,
) -> Result<bool, Failure> {
    let broker = broker.to_string();
    offer(if as_json { json(&Report { broker, found })? } else { render(found) })
}

async fn check(broker: &Broker, as_json: bool) -> Result<(), Failure> {
    let found = shiftboss_relay::check(broker).await.map_err(start_failure)?;
    show(broker, &found, as_json, |found| rendered(broker, found))?;
    verdict(broker, &found)
}

fn rendered(broker: &Broker, found: &BrokerCheck) -> String {
    let takes = if found.takes_messages { "yes" } else { "NO: it is short of memory or disk" };
    let row = |part: &Part| {
        let count = |count: Option<u32>| count.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let state = match part.state {
            PartState::AsDeclared => "ok",
            PartState::Missing => "MISSING",
            PartState::Differs => "DIFFERS",
        };
        let kind = match part.kind {
            PartKind::Queue => "queue",
            PartKind::Exchange => "exchange",
        };
        let (messages, consumers) = (count(part.messages), count(part.consumers));
        [shown(&part.name), kind.to_owned(), state.to_owned(), messages, consumers]
    };
    let mut out = line("Broker", &shown(&broker.to_string()));
    out += &line("Takes messages", takes);
    if let Some(most) = found.max_message_bytes {
        out += &line("Largest message", &format!("{most} bytes: TOO SMALL"));
    }
    let head = ["Name", "kind", "state", "messages", "consumers"];
    out += &columns(head, found.parts.iter().map(row));
    for part in &found.parts {
        if let Some(difference) = &part.difference {
            out += &line("Differs", &shown(difference));
        }
    }
    out
}

/// How `broker check` ends: the worst that was found, and what to do about it.
fn verdict(broker: &Broker, found: &BrokerCheck) -> Result<(), Failure> {
    let of = |state| {
        let parts = found.parts.iter().filter(move |part| part.state == state);
        parts.map(|part| part.name.as_str()).collect::<Vec<_>>()
    };
    let (differ, missing) = (of(PartState::Differs), of(PartState::Missing));
    if !differ.is_empty() {
        let names = differ.join(", ");
        let text = format!(
            "on the broker {broker} somebody declared otherwise: {names}. Delete them there, and the daemon makes them anew, or use another --broker-prefix"
        );
        return Err(Failure::new(ExitCode::Configuration, text));
    }
    if let Some(most) = found.max_message_bytes {
        let text = format!(
            "the broker {broker} takes messages of {most} bytes, and shiftboss sends up to 16 MiB: set its max_message_size to 16777216 or more"
        );
        return Err(Failure::new(ExitCode::Configuration, text));
    }
    let text = if !missing.is_empty() {
        let names = missing.join(", ");
        format!("the broker {broker} lacks {names}: a daemon with --broker makes them")
    } else if !found.takes_messages {
        format!(
            "the broker {broker} takes no messages: its log says whether memory or disk is short"
        )
    } else if found.parts.iter().all(|part| part.consumers.is_none_or(|consumers| consumers == 0)) {
        format!("no daemon takes what relays ask over the broker {broker}: start one with --broker")
    } else {
        return Ok(());
    };
    Err(Failure::new(ExitCode::Unavailable, text))
}

/// Dead letters are only deleted once that could be printed.
async fn dead_letters(
    broker: &Broker,
    number: u16,
    disposal: Disposal,
    as_json: bool,
) -> Result<(), Failure> {
    let look = Look::take(broker, number, disposal).await.map_err(start_failure)?;
    let left = look.found.letters.iter().filter(|letter| letter.problem.is_some()).count();
    let is_told = show(broker, &look.found, as_json, |found| listed(found, disposal))?;
    look.settle(is_told && disposal == Disposal::Drop).await.map_err(start_failure)?;
    if left == 0 {
        return Ok(());
    }
    let letters = counted(left, "dead letter");
    let text =
        format!("{letters} on the broker {broker} could not be put back; they are still there");
    Err(Failure::new(ExitCode::Unavailable, text))
}

fn listed(found: &DeadLetters, disposal: Disposal) -> String {
    if found.letters.is_empty() {
        return "There are no dead letters.\n".to_owned();
    }
    let mut out: String = found.letters.iter().map(letter).collect();
    let shown = counted(found.letters.len(), "dead letter");
    out += &match disposal {
        Disposal::Keep => format!("{shown}.\n"),
        Disposal::Requeue => {
            let requeued = found.letters.iter().filter(|letter| letter.requeued).count();
            format!("{shown}, {requeued} put back.\n")
        }
        Disposal::Drop => format!("{shown}, to be deleted now.\n"),
    };
    if found.more > 0 {
        out += &format!("There are {} more: give a larger -n.\n", found.more);
    }
    out
}

fn letter(letter: &DeadLetter) -> String {
    let reason = letter.reason.as_deref().map_or_else(|| "no reason is given".to_owned(), shown);
    let queue = letter.queue.as_deref().map_or_else(|| "an unknown queue".to_owned(), shown);
    let state = match (&letter.problem, letter.requeued) {
        (Some(problem), _) => format!(", not put back: {}", shown(problem)),
        (None, true) => ", put back".to_owned(),
        (None, false) => String::new(),
    };
    let bytes = counted(letter.bytes, "byte");
    format!("{reason}\n  from {queue}, {bytes}{state}\n  {}\n", shown(&letter.excerpt))
}
