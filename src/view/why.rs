//! Where a key is, as text for people: what `shiftboss why` and `top` show. Pure: from what was found to lines.

use shiftboss_queue::answers::Why;

use super::key::sentences;
use super::listings;
use crate::exit::{ExitCode, Failure};
use crate::text::{cut, line, shown};

/// Characters of the key that are shown, which was typed; the JSON object has it whole.
const KEY_WIDTH: usize = 80;

pub fn unheard_of(key: &str) -> Failure {
    let text = format!(
        "nothing is known of the key {}: no list has it now, and it never ran; is it spelled right?",
        shown(key)
    );
    Failure::new(ExitCode::BadData, text)
}

pub fn render(why: &Why, now: i64) -> String {
    let said = sentences(why, now).into_iter().map(|(name, sentence)| line(name, &sentence));
    let mut out = line("Key", &cut(&why.key, KEY_WIDTH)) + &said.collect::<String>();
    out += &listings::rows(&why.rows).render();
    if why.truncated {
        out.push_str("There are more rows than can be listed at once.\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use shiftboss_queue::answers::{KeyRow, KeyState, LastResult, Place, RowState};

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
            bump: None,
            in_flight: None,
            last_result: Some(LastResult { started: 5_000, finished: 5_090, exit_code: Some(1) }),
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

    /// A list's row that failed says so and how it runs sooner; a failed single task beside it is named, too.
    #[test]
    fn rows_that_failed() {
        let mut row = waiting().rows.remove(0);
        (row.state, row.exit_code) = (RowState::Dispatched, Some(3));
        let (state, rows) = (KeyState::Dispatched, vec![row]);
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
}
