//! How a fetcher is that the daemon runs, in words: what `status` and the pages say. Pure.

use shiftboss_actors::store::{EndedRun, FetcherRecord};

use crate::text::{ago, cut, shown, span};

/// What came of a run is shown in so many characters at the most.
const RESULT_WIDTH: usize = 60;

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

pub fn result(run: &EndedRun) -> String {
    let end = match run.exit_code {
        0 => "ok".to_owned(),
        code => format!("exit code {code}"),
    };
    match &*run.message {
        "" => end,
        // It was said already.
        message if message.contains(&end) => cut(message, RESULT_WIDTH),
        message => cut(&format!("{end}: {message}"), RESULT_WIDTH),
    }
}

pub fn next_run(at: Option<i64>, now: i64) -> String {
    match at {
        None => "on change".to_owned(),
        Some(at) if at <= now => "now".to_owned(),
        Some(at) => format!("in {}", span(at.saturating_sub(now))),
    }
}
