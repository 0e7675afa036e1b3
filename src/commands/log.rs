//! `shiftboss log`: attempts that ended, newest first, by start time.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_actors::store::EndedAttempts;
use shiftboss_actors::store::answers::{Ended, Log};

use super::target;
use super::text::{ago, columns, shown, span};
use crate::child::{day, file_name};
use crate::cli::ViewArguments;
use crate::exit::Failure;
use crate::stores::outcome_words::in_words;

const DAY: Duration = Duration::from_secs(86_400);

/// Shows the attempts that are wanted.
pub fn run(
    arguments: &ViewArguments,
    wanted: EndedAttempts,
    outputs: Option<&Path>,
) -> Result<(), Failure> {
    let target = target::find(arguments.target.clone(), arguments.config.as_deref())?;
    let now = SystemClock.now();
    let mut found = target::ask(&target.database, wanted)?;
    for ended in &mut found.attempts {
        ended.output = outputs.and_then(|directory| output(directory, ended));
    }
    target::warn_if_down(&target, arguments.json);
    target::show(&target, &found, arguments.json, |found| render(found, now))
}

fn render(log: &Log, now: i64) -> String {
    if log.attempts.is_empty() {
        return "No such attempt is known.\n".to_owned();
    }
    let head = ["Attempt", "key", "outcome", "ended", "took", "worker", "fetcher"];
    let table = columns(head, log.attempts.iter().map(|ended| row(ended, now)));
    let (head, lines) = table.split_once('\n').unwrap_or((&table, ""));
    let mut out = format!("{head}\n");
    for (line, ended) in lines.lines().zip(&log.attempts) {
        out.push_str(&format!("{line}\n"));
        // A path is to be copied, so it is never cut.
        if let Some(output) = &ended.output {
            out.push_str(&format!("  output of that day: {}\n", shown(output)));
        }
    }
    out
}

fn row(ended: &Ended, now: i64) -> [String; 7] {
    let name = |name: &Option<String>| name.as_deref().map_or("-".to_owned(), shown);
    [
        ended.attempt.to_string(),
        shown(&ended.key),
        in_words(&ended.outcome, ended.exit_code),
        ago(now - ended.finished),
        took(ended),
        name(&ended.worker),
        name(&ended.fetcher),
    ]
}

/// In milliseconds where that is known and worth it.
fn took(ended: &Ended) -> String {
    match ended.took_ms {
        Some(ms @ ..10_000) => format!("{}.{:03}s", ms / 1_000, ms % 1_000),
        Some(ms) => span(ms / 1_000),
        None => span(ended.duration_seconds),
    }
}

/// The file into which `work --log-dir` wrote what the key's attempts of that day said: by the day on which its worker began.
/// Other attempts of the key may be in it, too, or alone.
fn output(directory: &Path, ended: &Ended) -> Option<String> {
    let seconds = Duration::from_secs(ended.started.try_into().ok()?);
    let days = [seconds, seconds.saturating_add(DAY)].into_iter();
    let file = |time| directory.join(day(time)).join(file_name(ended.key.as_bytes()));
    let mut files = days.filter_map(|time| UNIX_EPOCH.checked_add(time)).map(file);
    let found = files.find(|file| file.is_file())?;
    Some(found.to_string_lossy().into_owned())
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
            took_ms: None,
            outcome: "success".to_owned(),
            exit_code: Some(0),
            output: None,
        };
        let failed = Ended {
            attempt: 4710,
            took_ms: Some(1_045),
            outcome: "failure".to_owned(),
            exit_code: Some(139),
            output: Some("/var/log/links/2026-11-21/alpha.log".to_owned()),
            ..done.clone()
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
Attempt  key    outcome       ended   took    worker     fetcher
4711     alpha  success       1m ago  1m 30s  builder-3  repology
4710     alpha  failure SEGV  1m ago  1.045s  builder-3  repology
  output of that day: /var/log/links/2026-11-21/alpha.log
4709     alpha  expired       1m ago  1m 30s  -          -
";
        let shown = render(&Log { attempts: vec![done, failed, expired] }, 1_000_150);
        assert_eq!(shown, expected);
        assert_eq!(render(&Log { attempts: Vec::new() }, 1), "No such attempt is known.\n");
    }
}
