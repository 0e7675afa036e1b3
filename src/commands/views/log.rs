//! `shiftboss log`: attempts that ended, with the files into which they wrote; with `--follow` as they end, to ship
//! them elsewhere. It goes on by the numbers of the ends, and keeps no state itself: the next `log --follow` can start
//! after the last printed number.

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

/// Pause between two looks when there was nothing more.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const AT_ONCE: usize = 1_000;

/// Prints until the reader is gone. Waits if the queue is unavailable for a while, except at the beginning.
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

/// `count`: how many were asked for.
pub(super) fn render(log: &Log, count: usize, now: i64) -> String {
    let table = listings::log(&log.attempts, &HeldSet::new(), now).render_or_none();
    let outputs = [&None].into_iter().chain(log.attempts.iter().map(|ended| &ended.output));
    let with_output = |(line, output): (&str, &Option<String>)| match output {
        // A path is never cut, so that it can be copied.
        Some(output) => format!("{line}\n  output of that day: {}\n", shown(output)),
        None => format!("{line}\n"),
    };
    let text: String = table.lines().zip(outputs).map(with_output).collect();
    let is_cut = log.attempts.len() == count;
    let more = is_cut.then(|| format!("These are the last {count}: a larger -n shows more.\n"));
    text + &more.unwrap_or_default()
}

/// Adds, if `directory` is given, the files into which `work --log-dir` wrote the output of the keys' attempts of that
/// day. They may contain other attempts of the key, too, or only those.
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

    /// The exact output, with impossible times, too.
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
