//! Where a key is, as text for people: what `shiftboss why` shows. Pure: from what was found to lines.

use shiftboss_actors::store::answers::{
    Delivery, KeyRow, KeyState, LastResult, Place, RowState, Why,
};
use shiftboss_protocol::model::TASKS_FETCHER;

use crate::exit::{ExitCode, Failure};
use crate::text::{ago, columns, counted, cut, line, shown, span};

/// Characters of a payload that are shown; the JSON object has it whole.
const PAYLOAD_WIDTH: usize = 50;
/// The same of the key, which was typed; and of each of those before it.
const KEY_WIDTH: usize = 80;
const EARLIER_KEY_WIDTH: usize = 30;

/// What can be done about single tasks that ended.
const AGAIN: &str = "`shiftboss retry` runs it again, `shiftboss cancel` deletes it";

pub(super) fn unheard_of(key: &str) -> Failure {
    let text = format!(
        "nothing is known of the key {}: no list and no spool has it now, and it never ran; is it spelled right?",
        shown(key)
    );
    Failure::new(ExitCode::BadData, text)
}

pub(super) fn render(why: &Why, now: i64) -> String {
    let mut out = line("Key", &cut(&why.key, KEY_WIDTH)) + &line("State", &state(why));
    if why.paused {
        out += &line("Paused", "nothing is handed out until `shiftboss resume`");
    }
    if let Some(place) = &why.place {
        out += &line("Before it", &before(place));
        out += &line("Its turn", &turn(why));
    }
    out.extend(why.in_flight.iter().map(|delivery| line("In flight", &in_flight(delivery, now))));
    if why.failed_single_tasks > 0 && !(why.state == KeyState::Dispatched && is_single(why)) {
        out += &line("Single tasks", &format!("{} failed: {AGAIN}", why.failed_single_tasks));
    }
    out + &line("Last result", &last_result(why, now)) + &rows(why)
}

fn state(why: &Why) -> String {
    let expired = why.rows.iter().map(|row| row.expired_leases).max().unwrap_or(0);
    match why.state {
        KeyState::Waiting if why.place.as_ref().is_some_and(|place| place.keys_before == 0) => {
            "waiting, and the next one".to_owned()
        }
        KeyState::Waiting => "waiting".to_owned(),
        KeyState::InFlight => "in flight: nobody else gets it until it ends or is lost".to_owned(),
        KeyState::DeadLetter if is_single(why) => {
            format!("a dead letter after {}: {AGAIN}", counted(expired, "expired lease"))
        }
        KeyState::Dispatched if is_single(why) => format!("failed: {AGAIN}"),
        KeyState::DeadLetter => format!(
            "dead-lettered after {}: it runs again when its fetcher's next list names it, or by `shiftboss retry`",
            counted(expired, "expired lease")
        ),
        KeyState::Dispatched if failure(why).is_some() => format!(
            "failed with exit code {}; due again with its fetcher's next list, or now by `shiftboss retry`",
            failure(why).unwrap_or_default()
        ),
        KeyState::Dispatched => {
            "already ran for this list; due again with the next one, or by `shiftboss retry`"
                .to_owned()
        }
        KeyState::Leaving => "leaving: its run is being deleted".to_owned(),
        KeyState::Unlisted => "not queued: no fetcher lists it".to_owned(),
    }
}

/// The exit code of a list's row whose last attempt failed.
fn failure(why: &Why) -> Option<i64> {
    let lists = why.rows.iter().filter(|row| row.fetcher != TASKS_FETCHER);
    lists.filter_map(|row| row.exit_code).find(|code| *code != 0)
}

/// Whether nothing but single tasks has the key: no list will bring it back.
fn is_single(why: &Why) -> bool {
    !why.rows.is_empty() && why.rows.iter().all(|row| row.fetcher == TASKS_FETCHER)
}

fn before(place: &Place) -> String {
    let more = if place.exact { "" } else { "more than " };
    let first: Vec<String> = place.first.iter().map(|key| cut(key, EARLIER_KEY_WIDTH)).collect();
    let rest = if place.first.len() < place.keys_before { ", ..." } else { "" };
    match place.keys_before {
        0 => "nothing".to_owned(),
        _ => format!("{more}{}: {}{rest}", counted(place.keys_before, "key"), first.join(", ")),
    }
}

fn turn(why: &Why) -> String {
    let rate = format!("{} ended in the last hour", counted(why.jobs_last_hour, "job"));
    match why.expected_in_seconds {
        None if why.place.as_ref().is_some_and(|place| place.keys_before == 0) && !why.paused => {
            "when a worker asks for a job".to_owned()
        }
        Some(seconds) => format!("in about {} ({rate})", span(seconds)),
        None => format!("not known ({rate})"),
    }
}

fn in_flight(delivery: &Delivery, now: i64) -> String {
    let worker = delivery.worker.as_deref().map_or("a classic worker".to_owned(), shown);
    let attempt = delivery.attempt.map_or(String::new(), |attempt| format!(", attempt {attempt}"));
    let count = match delivery.delivery_count {
        Some(count) if count > 1 => format!(", delivery {count}"),
        _ => String::new(),
    };
    let lease = match (delivery.lease_seconds, delivery.held_until) {
        (Some(lease), _) => format!("; its lease is {} from each beat on", span(lease)),
        (None, Some(until)) if until > now => format!("; held for another {}", span(until - now)),
        (None, Some(_)) => "; its lease ran out".to_owned(),
        (None, None) => String::new(),
    };
    format!("with {worker}{attempt}{count}, handed out {}{lease}", ago(now - delivery.since))
}

fn last_result(why: &Why, now: i64) -> String {
    let Some(LastResult { started, finished, exit_code }) = why.last_result else {
        let expired = why.rows.iter().map(|row| row.expired_leases).max().unwrap_or(0);
        return match expired {
            0 => "none is known".to_owned(),
            _ => format!("none: {} expired", counted(expired, "lease")),
        };
    };
    let code = exit_code.map_or("no exit code".to_owned(), |code| format!("exit code {code}"));
    format!(
        "{code}, ended {}, took {}",
        ago(now - finished),
        span(finished.saturating_sub(started))
    )
}

fn rows(why: &Why) -> String {
    if why.rows.is_empty() {
        return String::new();
    }
    let head = ["Fetcher", "run", "file", "row", "payload"];
    let mut out = columns(head, why.rows.iter().map(row));
    if why.truncated {
        out.push_str("There are more rows than can be listed at once.\n");
    }
    out
}

fn row(row: &KeyRow) -> [String; 5] {
    let state = match row.state {
        RowState::Waiting => "waiting",
        RowState::InFlight => "in flight",
        RowState::Dispatched => match row.exit_code {
            Some(0) => "done",
            Some(_) => "failed",
            None => "ended",
        },
        RowState::DeadLetter => "dead-lettered",
        RowState::Hidden => "hidden by a newer run",
        RowState::Leaving => "leaving",
    };
    [
        shown(&row.fetcher),
        row.run.to_string(),
        if row.complete { "complete" } else { "growing" }.to_owned(),
        state.to_owned(),
        cut(&row.payload, PAYLOAD_WIDTH),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting() -> Why {
        let row = |run, state| KeyRow {
            fetcher: "repology".to_owned(),
            run,
            complete: true,
            state,
            expired_leases: 0,
            exit_code: None,
            payload: "1.0 1.1".to_owned(),
        };
        let first = ["b", "c", "d", "e", "f"].map(str::to_owned).to_vec();
        Why {
            key: "alpha".to_owned(),
            state: KeyState::Waiting,
            paused: false,
            place: Some(Place { keys_before: 7, exact: true, first }),
            expected_in_seconds: Some(240),
            jobs_last_hour: 120,
            in_flight: None,
            last_result: Some(LastResult { started: 5_000, finished: 5_090, exit_code: Some(1) }),
            failed_single_tasks: 0,
            rows: vec![row(1_700_000_001, RowState::Waiting), row(1_700_000_000, RowState::Hidden)],
            truncated: false,
        }
    }

    /// What a user sees, to the letter.
    #[test]
    fn the_text_is_as_documented() {
        let expected = "\
Key             alpha
State           waiting
Before it       7 keys: b, c, d, e, f, ...
Its turn        in about 4m (120 jobs ended in the last hour)
Last result     exit code 1, ended 10s ago, took 1m 30s
Fetcher   run         file      row                    payload
repology  1700000001  complete  waiting                1.0 1.1
repology  1700000000  complete  hidden by a newer run  1.0 1.1
";
        assert_eq!(render(&waiting(), 5_100), expected);
    }

    /// Keys may be long: their beginnings tell enough.
    #[test]
    fn long_keys_are_cut() {
        let long = "k".repeat(4_096);
        let place = Place { keys_before: 1, exact: true, first: vec![long.clone()] };
        let text = render(&Why { key: long, place: Some(place), ..waiting() }, 5_100);
        assert!(
            text.starts_with(&format!("Key             {}...\nState", "k".repeat(77))),
            "{text}"
        );
        assert!(text.contains(&format!("1 key: {}...\n", "k".repeat(27))), "{text}");
    }

    /// No list brings a single task back: what can be done is said instead.
    #[test]
    fn single_tasks_that_ended() {
        let row = KeyRow {
            fetcher: TASKS_FETCHER.to_owned(),
            expired_leases: 2,
            ..waiting().rows.remove(0)
        };
        let text = |state| super::state(&Why { state, rows: vec![row.clone()], ..waiting() });
        let then = "`shiftboss retry` runs it again, `shiftboss cancel` deletes it";
        assert_eq!(text(KeyState::Dispatched), format!("failed: {then}"));
        assert_eq!(
            text(KeyState::DeadLetter),
            format!("a dead letter after 2 expired leases: {then}")
        );
    }

    /// A list's row that failed says so and how it runs sooner; a failed single task beside it is named, too.
    #[test]
    fn rows_that_failed() {
        let mut row = waiting().rows.remove(0);
        (row.state, row.exit_code) = (RowState::Dispatched, Some(3));
        let (state, rows) = (KeyState::Dispatched, vec![row]);
        let failed = Why { state, rows, place: None, failed_single_tasks: 1, ..waiting() };
        let text = render(&failed, 5_100);
        let expected = "State           failed with exit code 3; due again with its fetcher's next list, or now by `shiftboss retry`\n\
            Single tasks    1 failed: `shiftboss retry` runs it again, `shiftboss cancel` deletes it\n";
        assert!(text.contains(expected), "{text}");
    }

    /// The next one has no time to wait for; a job without a result that lost its leases has no other.
    #[test]
    fn what_is_not_known() {
        let place = Some(Place { keys_before: 0, exact: true, first: Vec::new() });
        let mut lost = Why { place, expected_in_seconds: None, last_result: None, ..waiting() };
        lost.rows[0].expired_leases = 2;
        let text = render(&lost, 5_100);
        assert!(text.contains("Its turn        when a worker asks for a job\n"), "{text}");
        assert!(text.contains("Last result     none: 2 leases expired\n"), "{text}");
    }

    /// A job that is out is shown with whom and since when; an unlisted key has next to nothing.
    #[test]
    fn other_standings() {
        let leased = Delivery {
            worker: Some("builder-3".to_owned()),
            attempt: Some(4711),
            since: 5_000,
            lease_seconds: Some(60),
            held_until: None,
            delivery_count: Some(2),
        };
        let classic = Delivery {
            worker: None,
            attempt: None,
            lease_seconds: None,
            held_until: Some(5_200),
            delivery_count: None,
            ..leased.clone()
        };
        let expected = "with builder-3, attempt 4711, delivery 2, handed out 1m 40s ago; its lease is 1m from each beat on";
        assert_eq!(in_flight(&leased, 5_100), expected);
        let expected = "with a classic worker, handed out 1m 40s ago; held for another 1m 40s";
        assert_eq!(in_flight(&classic, 5_100), expected);
        let far = Place { keys_before: 100_000, exact: false, first: vec!["b".to_owned()] };
        assert_eq!(before(&far), "more than 100000 keys: b, ...");
        let gone = Why {
            state: KeyState::Unlisted,
            place: None,
            last_result: None,
            rows: Vec::new(),
            ..waiting()
        };
        let expected = "\
Key             alpha
State           not queued: no fetcher lists it
Last result     none is known
";
        assert_eq!(render(&gone, 5_100), expected);
    }
}
