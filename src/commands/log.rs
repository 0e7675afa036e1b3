//! `shiftboss log`: attempts that ended, newest first, by start time.

use shiftboss_actors::clock::{Clock, SystemClock};

use super::text::{ago, columns, shown, span};
use super::{target, view_failure};
use crate::cli::Looked;
use crate::exit::Failure;
use crate::sqlite::views::{Ended, Log, Wanted, log};

/// Shows the attempts that are wanted.
///
/// # Errors
/// When there is no such database or daemon, or the database cannot be read.
pub fn run(looked: &Looked, wanted: &Wanted) -> Result<(), Failure> {
    let target = target::find(looked.target.clone(), looked.config.as_deref())?;
    let now = SystemClock.now();
    let found = log(&target.database, wanted).map_err(|error| view_failure(&error))?;
    target::warn_if_down(&target, looked.json);
    target::show(&target, &found, looked.json, |found| render(found, now))
}

fn render(log: &Log, now: i64) -> String {
    if log.attempts.is_empty() {
        return "No such attempt is known.\n".to_owned();
    }
    let head =
        ["Attempt", "key", "outcome", "ended", "took", "worker", "fetcher"].map(str::to_owned);
    let rows: Vec<_> =
        [head].into_iter().chain(log.attempts.iter().map(|ended| row(ended, now))).collect();
    columns(&rows)
}

fn row(ended: &Ended, now: i64) -> [String; 7] {
    let outcome = match ended.exit_code {
        Some(code) => format!("{} {code}", ended.outcome),
        None => ended.outcome.clone(),
    };
    let name = |name: &Option<String>| name.as_deref().map_or("-".to_owned(), shown);
    [
        ended.attempt.to_string(),
        shown(&ended.key),
        outcome,
        ago(now - ended.finished),
        span(ended.duration_seconds),
        name(&ended.worker),
        name(&ended.fetcher),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a user sees, to the letter.
    #[test]
    fn the_table_is_as_documented() {
        let done = Ended {
            attempt: 4711,
            key: "alpha".to_owned(),
            fetcher: Some("repology".to_owned()),
            run: 1,
            worker: Some("builder-3".to_owned()),
            started: 1_000_000,
            finished: 1_000_090,
            duration_seconds: 90,
            outcome: "done".to_owned(),
            exit_code: Some(0),
        };
        let expired = Ended {
            attempt: 4709,
            fetcher: None,
            worker: None,
            outcome: "expired".to_owned(),
            exit_code: None,
            ..done.clone()
        };
        let expected = "\
Attempt  key    outcome  ended   took    worker     fetcher
4711     alpha  done 0   1m ago  1m 30s  builder-3  repology
4709     alpha  expired  1m ago  1m 30s  -          -
";
        let shown = render(&Log { attempts: vec![done, expired] }, 1_000_150);
        assert_eq!(shown, expected);
        assert_eq!(render(&Log { attempts: Vec::new() }, 1), "No such attempt is known.\n");
    }
}
