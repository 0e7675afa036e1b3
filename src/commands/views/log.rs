//! `shiftboss log`: attempts that ended, with the files into which they wrote; with `--follow` as they end, for who ships them elsewhere.
//! It reads on by the numbers of the ends, and keeps nothing itself: behind the last number that it printed the next one begins.

use std::io::{self, Write};
use std::path::Path;
use std::thread::park_timeout;
use std::time::Duration;

use shiftboss_protocol::answers::{Ended, Ends, Log};
use shiftboss_queue::reader::EndedAttempts;

use crate::cli::ViewArguments;
use crate::commands::printing::{json, offer};
use crate::exit::{ExitCode, Failure};
use crate::outputs::Outputs;
use crate::runner::log_directory::file_name;
use crate::stores::outcome_words::in_words;
use crate::target::ask;
use crate::text::{shown, timestamp, took};
use crate::view::listings::{self, HeldSet};

/// Between two looks, when there was nothing more.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const AT_ONCE: usize = 1_000;

/// Prints until nobody reads. A queue that cannot be had for a while is waited for, but at the beginning.
pub(super) fn follow(
    ViewArguments { target, json }: ViewArguments,
    failed: bool,
    after: Option<i64>,
) -> Result<(), Failure> {
    let target = target.find()?;
    let look = |after| ask(&target.database, |reader, _| reader.ends_after(after, AT_ONCE));
    let mut found = look(after)?;
    if after.is_some_and(|after| after > 0 && !found.is_kept) {
        warn("that end is not kept any more: some behind it may be missing");
    }
    let mut is_away = false;
    loop {
        let Ends { attempts, upto, .. } = found;
        if !print(&attempts, failed, json)? {
            return Ok(());
        }
        if attempts.len() < AT_ONCE {
            park_timeout(LOOK_EVERY);
        }
        found = match look(Some(upto)) {
            Err(failure) if failure.code() == ExitCode::Unavailable => {
                if !std::mem::replace(&mut is_away, true) {
                    warn(&format!("{failure}; waiting for it"));
                }
                Ends { attempts: Vec::new(), upto, is_kept: true }
            }
            found => {
                is_away = false;
                found?
            }
        };
    }
}

fn warn(text: &str) {
    // Nobody may be reading.
    let _ = writeln!(io::stderr(), "shiftboss: {text}");
}

/// Whether anybody reads.
fn print(attempts: &[Ended], failed: bool, as_json: bool) -> Result<bool, Failure> {
    let is_wanted = |it: &&Ended| !failed || EndedAttempts::FAILED.contains(&it.outcome.as_str());
    let mut text = String::new();
    for ended in attempts.iter().filter(is_wanted) {
        text += &if as_json { json(ended)? } else { line(ended) };
    }
    if text.is_empty() { Ok(true) } else { offer(text) }
}

fn line(ended: &Ended) -> String {
    let name = |name: &Option<String>| name.as_deref().map_or("-".to_owned(), shown);
    format!(
        "{}  {}  {}  {}  {}  {}\n",
        timestamp(ended.finished),
        shown(&ended.key),
        in_words(&ended.outcome, ended.exit_code),
        took(ended.took_ms, ended.duration_seconds),
        name(&ended.worker),
        name(&ended.fetcher)
    )
}

pub(super) fn render(log: &Log, now: i64) -> String {
    let table = listings::log(&log.attempts, &HeldSet::new(), now).render_or_none();
    let outputs = [&None].into_iter().chain(log.attempts.iter().map(|ended| &ended.output));
    let with_output = |(line, output): (&str, &Option<String>)| match output {
        // A path is to be copied, so it is never cut.
        Some(output) => format!("{line}\n  output of that day: {}\n", shown(output)),
        None => format!("{line}\n"),
    };
    table.lines().zip(outputs).map(with_output).collect()
}

/// With the files into which `work --log-dir` wrote what the keys' attempts of that day said, if `directory` is given. Other attempts of
/// the key may be in them, too, or alone.
pub(super) fn with_outputs(mut log: Log, directory: Option<&Path>) -> Log {
    let Some(directory) = directory else { return log };
    let outputs = Outputs::of_log_dir(directory.to_owned());
    for ended in &mut log.attempts {
        let day = outputs.day_of(&ended.key, ended.started);
        let file = day.map(|day| directory.join(day).join(file_name(ended.key.as_bytes())));
        ended.output = file.map(|file| file.to_string_lossy().into_owned());
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a user sees, to the letter; times that cannot be, too.
    #[test]
    fn a_line_is_as_documented() {
        let mut ended = Ended {
            ended: 9,
            attempt: 4711,
            key: "alpha\u{1b}".to_owned(),
            fetcher: None,
            run: 1,
            worker: Some("builder-3".to_owned()),
            started: 1_000_000,
            finished: 1_000_090,
            duration_seconds: 90,
            took_ms: Some(1_045),
            outcome: "failure".to_owned(),
            exit_code: Some(3),
            output: None,
        };
        let expected = "1970-01-12T13:48:10Z  alpha\\u{1b}  failure 3  1.045s  builder-3  -\n";
        assert_eq!(line(&ended), expected);
        for impossible in [i64::MIN, i64::MAX] {
            ended.finished = impossible;
            assert!(line(&ended).contains("Z  alpha"), "{impossible}");
        }
    }
}
