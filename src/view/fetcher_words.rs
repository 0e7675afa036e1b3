//! How a fetcher is that the daemon runs, in words: what `status` and the pages say. Pure.

use shiftboss_queue::answers::{EndedRun, FetcherRecord};

use crate::text::{ago, cut, shown, span};

/// `idle`, `running for 5m`; `running for 5m, pending` if another run is to follow.
pub fn state(fetcher: &FetcherRecord, now: i64) -> String {
    let state = shown(&fetcher.state);
    let Some(started) = fetcher.run_started else {
        return state;
    };
    let (doing, more) = state.split_at(state.find(',').unwrap_or(state.len()));
    format!("{doing} for {}{more}", span(now.saturating_sub(started)))
}

pub fn last_run(run: &EndedRun, now: i64) -> String {
    let took = span(run.ended.saturating_sub(run.started));
    format!("{}, took {took}", ago(now.saturating_sub(run.ended)))
}

/// What came of a run, in at most so many columns.
pub fn result(run: &EndedRun, width: usize) -> String {
    let end = match run.exit_code {
        0 => "ok".to_owned(),
        code => format!("exit code {code}"),
    };
    match &*run.message {
        "" => end,
        // It was said already.
        message if run.exit_code != 0 && message.contains(&end) => cut(message, width),
        message => cut(&format!("{end}: {message}"), width),
    }
}

/// The last run of a fetcher, if it failed.
pub fn failed_run(fetcher: &FetcherRecord) -> Option<&EndedRun> {
    fetcher.last_run.as_ref().filter(|run| run.exit_code != 0)
}

pub fn next_run(at: Option<i64>, now: i64) -> String {
    match at {
        None => "on change".to_owned(),
        Some(at) if at <= now => "now".to_owned(),
        Some(at) => format!("in {}", span(at.saturating_sub(now))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exit code is said once, and a good run is one whatever its list is called.
    #[test]
    fn results_are_said_once() {
        let run = |exit_code, message: &str| {
            result(&EndedRun { started: 0, ended: 0, exit_code, message: message.to_owned() }, 80)
        };
        assert_eq!(run(0, "2 lines, 0 faulty: book.1.txt"), "ok: 2 lines, 0 faulty: book.1.txt");
        assert_eq!(
            run(3, "the command ended with exit code 3"),
            "the command ended with exit code 3"
        );
        assert_eq!(run(127, "cannot run it"), "exit code 127: cannot run it");
        assert_eq!((run(0, ""), run(1, "")), ("ok".to_owned(), "exit code 1".to_owned()));
    }
}
