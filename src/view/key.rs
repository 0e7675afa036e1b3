//! Where a key stands, in words: what `shiftboss why`, `top` and a key's page say. Pure: from what was found to sentences.

use shiftboss_protocol::answers::{
    Bump, Delivery, GroupRow, GroupState, HeldBy, Hold, HoldKind, HoldRule, KeyRow, KeyState,
    LastResult, Place, Retry, RowState, Why,
};
use shiftboss_protocol::model::TASKS_FETCHER;
use shiftboss_queue::reader::{ReadResult, Reader};
use shiftboss_queue::waits::{closed, until, within};

use super::health::Up;
use super::listings;
use super::status::paused;
use crate::exit::{ExitCode, Failure};
use crate::hint::hint;
use crate::text::{ago, counted, cut, line, quoted, shown, span};

/// Characters of each key before this one that are shown.
const EARLIER_KEY_WIDTH: usize = 30;
/// Jobs that all ended within less are not said to be those of an hour.
const FEW_SECONDS: i64 = 50 * 60;
const MINUTE_SECONDS: i64 = 60;
/// Characters of the key that are shown, which was typed; the JSON object has it whole.
const KEY_WIDTH: usize = 80;

pub fn unheard_of(key: &str) -> Failure {
    let text = format!(
        "nothing is known of the key {}: no list has it now, and it never ran; is it spelled right?",
        shown(key)
    );
    Failure::new(ExitCode::BadData, text)
}

/// What `shiftboss why` and `top` show.
pub fn render(why: &Why, now: i64) -> String {
    let said = sentences(why, now).into_iter().map(|(name, sentence)| line(name, &sentence));
    let mut out = line("Key", &cut(&why.key, KEY_WIDTH)) + &said.collect::<String>();
    if why.rows.iter().any(|row| matches!(row.state, RowState::Failed | RowState::Delayed)) {
        // It has no target.
        let output = format!("`shiftboss output LOG_DIR {}`", quoted(&why.key));
        out += &line("Output", &format!("{output} shows it, if the worker has --log-dir LOG_DIR"));
    }
    out += &listings::rows(&why.rows).render();
    if why.truncated {
        out.push_str("There are more rows than can be listed at once.\n");
    }
    out
}

/// Each sentence with what it is about.
pub fn sentences(why: &Why, now: i64) -> Vec<(&'static str, String)> {
    let mut said = vec![("State", state(why))];
    if why.paused {
        said.push(("Paused", paused()));
    }
    said.extend(why.hold.iter().map(|hold| ("Held", held(hold, now))));
    said.extend(why.hold_rule.iter().map(|rule| ("Held by rule", held_by_rule(rule, now))));
    said.extend(why.group.iter().map(|it| ("Group", group(it, now))));
    said.extend(why.retry.iter().map(|retry| ("Tried again", tried_again(*retry, why, now))));
    said.extend(why.bump.iter().map(|bump| ahead(bump, now)));
    if let Some(place) = why.place.as_ref().filter(|_| !is_closed(why)) {
        let before = before(place, why.group.is_some());
        said.extend([("Before it", before), ("Its turn", turn(why, now))]);
    }
    said.extend(why.in_flight.iter().map(|delivery| ("In flight", in_flight(delivery, now))));
    if why.failed_single_tasks > 0 && !(why.state == KeyState::Failed && is_single(why)) {
        said.push(("Single tasks", format!("{} failed: {}", why.failed_single_tasks, again(why))));
    }
    said.push(("Last result", last_result(why, now)));
    said
}

fn line_of(command: &str, why: &Why) -> String {
    hint(format_args!("{command} {}", quoted(&why.key)))
}

/// What can be done about single tasks that ended.
fn again(why: &Why) -> String {
    format!("{} runs it again, {} deletes it", line_of("retry", why), line_of("cancel", why))
}

fn state(why: &Why) -> String {
    let expired = why.rows.iter().map(|row| row.expired_leases).max().unwrap_or(0);
    match why.state {
        KeyState::Waiting if is_closed(why) => "waiting, until its group opens".to_owned(),
        KeyState::Waiting if why.place.as_ref().is_some_and(|place| place.keys_before == 0) => {
            "waiting, and the next one".to_owned()
        }
        KeyState::Waiting => "waiting".to_owned(),
        KeyState::Delayed => "delayed: its task failed, and waits again by itself".to_owned(),
        KeyState::Held => "held: it is not handed out, and keeps its place".to_owned(),
        KeyState::InFlight => "in flight: nobody else gets it until it ends or is lost".to_owned(),
        KeyState::DeadLetter if is_single(why) => {
            format!("a dead letter after {}: {}", counted(expired, "expired lease"), again(why))
        }
        KeyState::Failed if is_single(why) => format!("failed: {}", again(why)),
        KeyState::DeadLetter => format!(
            "dead-lettered after {}: it runs again when its fetcher's next list names it, or by {}",
            counted(expired, "expired lease"),
            line_of("retry", why)
        ),
        KeyState::Failed => {
            let code = failure(why).map_or(String::new(), |code| format!(" with exit code {code}"));
            format!("failed{code}; due again with its fetcher's next list{}", or_now(why))
        }
        KeyState::Dispatched => {
            format!("already ran for this list; due again with the next one{}", or_now(why))
        }
        KeyState::Leaving => "leaving: its run is being deleted".to_owned(),
        KeyState::Unlisted => "not queued: no fetcher lists it".to_owned(),
    }
}

/// What else brings a list's row back.
fn or_now(why: &Why) -> String {
    match why.hold {
        None => format!(", or now by {}", line_of("retry", why)),
        Some(_) => ", once nothing holds it".to_owned(),
    }
}

/// Why it goes before others: an operator has bumped it, or its task failed and is due again.
fn ahead(bump: &Bump, now: i64) -> (&'static str, String) {
    let since = ago(now.saturating_sub(bump.since));
    let (name, why) = match &*bump.by {
        Bump::BY_RETRY => ("Goes ahead", "a task of it failed, and is due again".to_owned()),
        by => ("Bumped", format!("{since} by {}", shown(by))),
    };
    (name, format!("{why}: it goes before others, as far as there is room for that"))
}

fn tried_again(retry: Retry, why: &Why, now: i64) -> String {
    let due = until(retry.due, now);
    let list =
        if is_single(why) { "" } else { ", or with its fetcher's next list if that is sooner" };
    let sooner = match why.hold {
        None => format!("; soon by {}", line_of("bump", why)),
        Some(_) => String::new(),
    };
    format!("{due}, retry {} of this task{list}{sooner}", retry.retries)
}

fn held(hold: &Hold, now: i64) -> String {
    let why = match hold.reason.is_empty() {
        true => String::new(),
        false => format!(": {}", shown(&hold.reason)),
    };
    let since = ago(now.saturating_sub(hold.since));
    format!("{since} by {}, {}{why}", shown(&hold.by), held_for(hold, now))
}

/// What a rule holds, since when, for whom and how long.
pub fn held_by_rule(rule: &HoldRule, now: i64) -> String {
    let HoldRule { since, until, reason, by, .. } = rule.clone();
    let what = match rule.rule {
        HeldBy::Prefix => "prefix",
        HeldBy::Fetcher => "fetcher",
    };
    let hold = Hold { kind: HoldKind::Hold, since, until, reason, by };
    format!("{what} {}, {}", cut(&rule.of, KEY_WIDTH), held(&hold, now))
}

/// Whether the key waits for its group to open.
fn is_closed(why: &Why) -> bool {
    why.group.as_ref().is_some_and(|it| it.state != GroupState::Open)
}

/// The group of a key's next task, and whether that waits for it.
fn group(it: &GroupRow, now: i64) -> String {
    let name = cut(&it.group, KEY_WIDTH);
    let closed = closed(it, now).unwrap_or_else(|| "is open".to_owned());
    let reason = shown(&it.reason);
    match (it.state, it.opens) {
        (GroupState::Held, None) => format!("{name}, which is {reason}"),
        (GroupState::Full, _) => {
            format!("{name}, which {closed}: {} in flight", counted(it.in_flight, "job"))
        }
        _ if reason.is_empty() => format!("{name}, which {closed}"),
        _ => format!("{name}, which {closed} ({reason})"),
    }
}

/// How a key is; without a daemon no turn is expected.
pub fn find(
    reader: &dyn Reader,
    up: Up,
    key: &str,
    keys_before: usize,
    now: i64,
) -> ReadResult<Option<Why>> {
    let found = reader.why(now, key, keys_before)?;
    Ok(found.map(|why| if up.is_down() { without_turn(why) } else { why }))
}

fn without_turn(why: Why) -> Why {
    Why { expected_in_seconds: None, ..why }
}

/// How long a hold lasts from now on.
pub fn held_for(hold: &Hold, now: i64) -> String {
    match hold.until {
        None => "until it is unheld".to_owned(),
        Some(until) if until >= now => {
            format!("for another {}", span(until.saturating_sub(now).max(1)))
        }
        Some(_) => "no longer: a daemon ends it soon".to_owned(),
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

/// Nobody looks whether the groups of other keys are open; so a key that has a group says that closed ones count.
fn before(place: &Place, is_grouped: bool) -> String {
    let more = if place.exact { "" } else { "more than " };
    let first: Vec<String> = place.first.iter().map(|key| cut(key, EARLIER_KEY_WIDTH)).collect();
    let rest = if place.first.len() < place.keys_before { ", ..." } else { "" };
    match place.keys_before {
        0 => "nothing".to_owned(),
        _ => {
            let keys = counted(place.keys_before, "key");
            let closed = if is_grouped { ", also of closed groups" } else { "" };
            format!("{more}{keys}{closed}: {}{rest}", first.join(", "))
        }
    }
}

fn turn(why: &Why, now: i64) -> String {
    let rate = rate(why, now);
    match why.expected_in_seconds {
        None if why.place.as_ref().is_some_and(|place| place.keys_before == 0) && !why.paused => {
            "when a worker asks for a job".to_owned()
        }
        Some(seconds @ ..1) => format!("{} ({rate})", within(seconds)),
        Some(seconds) => format!("in about {} ({rate})", span(seconds)),
        None => format!("not known ({rate})"),
    }
}

fn rate(why: &Why, now: i64) -> String {
    let since = why.jobs_since.map(|since| now.saturating_sub(since));
    let time = match since.filter(|since| *since < FEW_SECONDS) {
        Some(since) => span(since),
        None => "hour".to_owned(),
    };
    let pauses = since.zip(why.busy_seconds).filter(|(since, busy)| since - busy > MINUTE_SECONDS);
    let work = pauses.map_or(String::new(), |(_, busy)| format!(", in {} of work", span(busy)));
    format!("{} ended in the last {time}{work}", counted(why.jobs_last_hour, "job"))
}

fn in_flight(delivery: &Delivery, now: i64) -> String {
    let worker = delivery.worker.as_deref().map_or("a classic worker".to_owned(), shown);
    let attempt = delivery.attempt.map_or(String::new(), |attempt| format!(", attempt {attempt}"));
    let count = match delivery.delivery_count {
        Some(count) if count > 1 => format!(", delivery {count}"),
        _ => String::new(),
    };
    let lease = match (delivery.lease_seconds, delivery.held_until) {
        (Some(lease), _) => format!("; lost if its worker is silent for {}", span(lease)),
        (None, Some(until)) if until > now => format!("; held for another {}", span(until - now)),
        (None, Some(_)) => "; its lease ran out".to_owned(),
        (None, None) => String::new(),
    };
    let stopping = if delivery.stopping { "; cancelled: its worker is to stop it" } else { "" };
    format!(
        "with {worker}{attempt}{count}, handed out {}{lease}{stopping}",
        ago(now.saturating_sub(delivery.since))
    )
}

fn last_result(why: &Why, now: i64) -> String {
    let Some(LastResult { started, finished, exit_code, cancelled }) = why.last_result else {
        let expired = why.rows.iter().map(|row| row.expired_leases).max().unwrap_or(0);
        return match expired {
            0 => "none is known".to_owned(),
            _ => format!("none: {} expired", counted(expired, "lease")),
        };
    };
    let how = match exit_code {
        _ if cancelled => "cancelled".to_owned(),
        Some(code) => format!("exit code {code}"),
        None => "no exit code".to_owned(),
    };
    let ahead = match started > now {
        true => {
            "; its start lies in the future, as of a clock that was ahead: it counts as just now"
        }
        false => "",
    };
    format!(
        "{how}, ended {}, took {}{ahead}",
        ago(now.saturating_sub(finished)),
        span(finished.saturating_sub(started))
    )
}

pub fn row_state(row: &KeyRow) -> &'static str {
    match row.state {
        RowState::Waiting => "waiting",
        RowState::InFlight => "in flight",
        RowState::Dispatched => match row.exit_code {
            Some(0) => "done",
            _ => "ended",
        },
        RowState::Failed => "failed",
        RowState::Delayed => "failed, and is tried again",
        RowState::DeadLetter => "dead-lettered",
        RowState::Hidden => "hidden by a newer run",
        RowState::Leaving => "leaving",
    }
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
            retry: None,
            key: "alpha".to_owned(),
            state: KeyState::Waiting,
            paused: false,
            place: Some(Place { keys_before: 7, exact: true, first }),
            expected_in_seconds: Some(240),
            jobs_last_hour: 120,
            jobs_since: Some(1_500),
            busy_seconds: Some(3_600),
            hold: None,
            hold_rule: None,
            group: None,
            bump: None,
            in_flight: None,
            last_result: Some(LastResult {
                started: 5_000,
                finished: 5_090,
                exit_code: Some(1),
                cancelled: false,
            }),
            failed_single_tasks: 0,
            rows: vec![row(1_700_000_001, RowState::Waiting), row(1_700_000_000, RowState::Hidden)],
            truncated: false,
        }
    }

    /// Of what came in bursts, the time between them says nothing of how long a turn takes.
    #[test]
    fn the_pace_is_told_without_pauses() {
        let turn = |jobs_since, busy_seconds| {
            let text = render(&Why { jobs_since, busy_seconds, ..waiting() }, 5_100);
            text.lines().find_map(|line| Some(line.split_once('(')?.1.to_owned()))
        };
        let told = |text: &str| Some(text.to_owned());
        assert_eq!(
            turn(Some(1_500), Some(240)),
            told("120 jobs ended in the last hour, in 4m of work)")
        );
        assert_eq!(turn(Some(4_500), Some(600)), told("120 jobs ended in the last 10m)"));
    }

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

    #[test]
    fn without_a_daemon_no_turn_is_expected() {
        assert!(render(&waiting(), 5_100).contains("Its turn        in about 4m"));
        assert!(render(&without_turn(waiting()), 5_100).contains("Its turn        not known"));
    }

    /// A list's row that failed says so and how it runs sooner; a failed single task beside it is named, too.
    #[test]
    fn rows_that_failed() {
        let mut row = waiting().rows.remove(0);
        (row.state, row.exit_code) = (RowState::Failed, Some(3));
        let (state, rows) = (KeyState::Failed, vec![row]);
        let failed = Why { state, rows, place: None, failed_single_tasks: 1, ..waiting() };
        let text = render(&failed, 5_100);
        let expected = "State           failed with exit code 3; due again with its fetcher's next list, or now by `shiftboss retry alpha`\n\
            Single tasks    1 failed: `shiftboss retry alpha` runs it again, `shiftboss cancel alpha` deletes it\n";
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

    /// Who bumped a key is named; of a task that is due again nobody bumped anything.
    #[test]
    fn keys_that_go_before_others() {
        let before = "goes before others, as far as there is room for that\n";
        for (by, expected) in [
            ("eve", format!("Bumped          10s ago by eve: it {before}")),
            (
                Bump::BY_RETRY,
                format!("Goes ahead      a task of it failed, and is due again: it {before}"),
            ),
        ] {
            let bump = Some(Bump { since: 5_090, by: by.to_owned() });
            let text = render(&Why { bump, ..waiting() }, 5_100);
            assert!(text.contains(&expected), "{text}");
        }
    }

    #[test]
    fn what_is_said_of_a_group() {
        let held = GroupRow {
            group: "host:a.org".to_owned(),
            state: GroupState::Held,
            waiting: 3,
            in_flight: 1,
            opens: None,
            reason: "held by eve: they asked us to".to_owned(),
        };
        let timed = GroupRow { opens: Some(5_100), ..held.clone() };
        let full = GroupRow { state: GroupState::Full, reason: String::new(), ..held.clone() };
        let open = GroupRow { state: GroupState::Open, ..full.clone() };
        let said = [&held, &timed, &full, &open].map(|it| group(it, 5_100));
        let expected = [
            "is held by eve: they asked us to",
            "opens in less than a second (held by eve: they asked us to)",
            "is full: 1 job in flight",
            "is open",
        ];
        assert_eq!(said, expected.map(|it| format!("host:a.org, which {it}")));
    }

    #[test]
    fn a_cancelled_job_is_named_so() {
        let last_result = waiting().last_result.map(|it| LastResult { cancelled: true, ..it });
        let text = render(&Why { last_result, ..waiting() }, 5_100);
        assert!(text.contains("Last result     cancelled, ended 10s ago, took 1m 30s\n"), "{text}");
    }

    /// An unlisted key has next to nothing.
    #[test]
    fn an_unlisted_key() {
        let state = KeyState::Unlisted;
        let gone = Why { state, place: None, last_result: None, rows: Vec::new(), ..waiting() };
        let expected = "\
Key             alpha
State           not queued: no fetcher lists it
Last result     none is known
";
        assert_eq!(render(&gone, 5_100), expected);
    }

    /// No list brings a single task back: what can be done is said instead.
    #[test]
    fn single_tasks_that_ended() {
        let row = KeyRow {
            fetcher: TASKS_FETCHER.to_owned(),
            run: 1,
            complete: true,
            state: RowState::Failed,
            expired_leases: 2,
            exit_code: None,
            payload: String::new(),
        };
        let text =
            |state| super::state(&Why { state, place: None, rows: vec![row.clone()], ..waiting() });
        let then = "`shiftboss retry alpha` runs it again, `shiftboss cancel alpha` deletes it";
        assert_eq!(text(KeyState::Failed), format!("failed: {then}"));
        assert_eq!(
            text(KeyState::DeadLetter),
            format!("a dead letter after 2 expired leases: {then}")
        );
    }

    /// A job that is out is shown with whom and since when; many keys before it by their first.
    #[test]
    fn other_standings() {
        let leased = Delivery {
            worker: Some("builder-3".to_owned()),
            attempt: Some(4711),
            since: 5_000,
            lease_seconds: Some(60),
            held_until: None,
            delivery_count: Some(2),
            stopping: true,
        };
        let classic = Delivery {
            worker: None,
            attempt: None,
            lease_seconds: None,
            held_until: Some(5_200),
            delivery_count: None,
            stopping: false,
            ..leased.clone()
        };
        let expected = "with builder-3, attempt 4711, delivery 2, handed out 1m 40s ago; lost if its worker is silent for 1m; cancelled: its worker is to stop it";
        assert_eq!(in_flight(&leased, 5_100), expected);
        let expected = "with a classic worker, handed out 1m 40s ago; held for another 1m 40s";
        assert_eq!(in_flight(&classic, 5_100), expected);
        let far = Place { keys_before: 100_000, exact: false, first: vec!["b".to_owned()] };
        assert_eq!(before(&far, false), "more than 100000 keys: b, ...");
        assert_eq!(before(&far, true), "more than 100000 keys, also of closed groups: b, ...");
    }
}
