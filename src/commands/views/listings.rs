//! What `shiftboss tasks`, `search` and `log` list, as tables for people. Pure but for [`with_outputs`], which looks for
//! files.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use shiftboss_queue::answers::{
    Ended, Found, HeldKey, HeldKeys, KnownKey, Log, Next, Queue, Task, TaskStatus, Tasks,
};

use crate::runner::log_directory::{day, file_name};
use crate::standing::turns::Turns;
use crate::standing::{held_for, last_run};
use crate::stores::outcome_words::{in_words, of_code};
use crate::target::line;
use crate::text::{ago, columns, cut, shown, took};

/// Characters of a payload that are shown; the JSON object has it whole.
const PAYLOAD_WIDTH: usize = 60;
const DAY: Duration = Duration::from_secs(86_400);

pub(super) fn queue(queue: &Queue, turns: &Turns, now: i64) -> String {
    let mut out = String::new();
    if queue.paused {
        out += &format!("Paused: nothing is handed out until {}.\n", line("resume"));
    }
    if queue.keys.is_empty() {
        return out + "Nothing is waiting.\n";
    }
    let row = |(before, next): (usize, &Next)| {
        [
            shown(&next.key),
            last_run(next, now),
            turns.words(before),
            shown(&next.fetcher),
            next.run.to_string(),
            cut(&next.payload, PAYLOAD_WIDTH),
        ]
    };
    let head = ["Key", "last run", "expected", "fetcher", "run", "payload"];
    out += &columns(head, queue.keys.iter().enumerate().map(row));
    if queue.truncated {
        out.push_str("There are more: their payloads are too long to be listed at once.\n");
    }
    out
}

pub(super) fn tasks(found: &Tasks, now: i64) -> String {
    if found.tasks.is_empty() {
        return match found.status {
            Some(_) => "No task has that status.\n".to_owned(),
            None => "No task waits, runs or ended badly.\n".to_owned(),
        };
    }
    let row = |task: &Task| {
        let since = task.since.map_or("-".to_owned(), |since| ago(now.saturating_sub(since)));
        let status = status(task.status).to_owned();
        [shown(&task.key), status, shown(&task.fetcher), since, shown(&task.reason)]
    };
    let head = ["Key", "status", "fetcher", "since", "reason"];
    let mut out = columns(head, found.tasks.iter().map(row));
    if found.truncated {
        out.push_str("There are more: give a larger -n.\n");
    }
    out
}

fn status(status: TaskStatus) -> &'static str {
    match status {
        TaskStatus::Waiting => "waiting",
        TaskStatus::InFlight => "in flight",
        TaskStatus::Delayed => "delayed",
        TaskStatus::Failed => "failed",
        TaskStatus::DeadLetter => "dead letter",
    }
}

pub(super) fn found(found: &Found, now: i64) -> String {
    if found.keys.is_empty() {
        return "No key begins so.\n".to_owned();
    }
    let row = |key: &KnownKey| {
        let ran = key.last_started.map(|started| ago(now.saturating_sub(started)));
        let outcome = match (key.last_started, key.exit_code) {
            (None, _) => "-".to_owned(),
            (Some(_), None) => "in flight".to_owned(),
            (Some(_), code) => in_words(code.map_or("", of_code), code),
        };
        [shown(&key.key), ran.unwrap_or("never".to_owned()), outcome]
    };
    let mut out = columns(["Key", "last run", "outcome"], found.keys.iter().map(row));
    if found.truncated {
        out.push_str("There are more: give a larger -n.\n");
    }
    out
}

pub(super) fn held(found: &HeldKeys, now: i64) -> String {
    if found.keys.is_empty() {
        return "No key is held.\n".to_owned();
    }
    let row = |HeldKey { key, hold }: &HeldKey| {
        let since = ago(now.saturating_sub(hold.since));
        [shown(key), since, held_for(hold, now), shown(&hold.by), shown(&hold.reason)]
    };
    let head = ["Key", "since", "held", "by", "reason"];
    let mut out = columns(head, found.keys.iter().map(row));
    if found.truncated {
        out.push_str("There are more: give a larger -n.\n");
    }
    out
}

pub(super) fn log(log: &Log, now: i64) -> String {
    if log.attempts.is_empty() {
        return "No such attempt is known.\n".to_owned();
    }
    let name = |name: &Option<String>| name.as_deref().map_or("-".to_owned(), shown);
    let row = |ended: &Ended| {
        [
            ended.attempt.to_string(),
            shown(&ended.key),
            in_words(&ended.outcome, ended.exit_code),
            ago(now.saturating_sub(ended.finished)),
            took(ended.took_ms, ended.duration_seconds),
            name(&ended.worker),
            name(&ended.fetcher),
        ]
    };
    let head = ["Attempt", "key", "outcome", "ended", "took", "worker", "fetcher"];
    let table = columns(head, log.attempts.iter().map(row));
    let outputs = [&None].into_iter().chain(log.attempts.iter().map(|ended| &ended.output));
    let with_output = |(line, output): (&str, &Option<String>)| match output {
        // A path is to be copied, so it is never cut.
        Some(output) => format!("{line}\n  output of that day: {}\n", shown(output)),
        None => format!("{line}\n"),
    };
    table.lines().zip(outputs).map(with_output).collect()
}

/// With the files into which `work --log-dir` wrote what the keys' attempts of that day said, if `directory` is given.
pub(super) fn with_outputs(mut log: Log, directory: Option<&Path>) -> Log {
    for ended in &mut log.attempts {
        ended.output = directory.and_then(|directory| output(directory, ended));
    }
    log
}

/// The file is that of the day on which its worker began. Other attempts of the key may be in it, too, or alone.
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
    use shiftboss_queue::answers::{Done, Hold, HoldKind, QueueStatus};

    use super::*;

    /// What a user sees, to the letter.
    #[test]
    fn the_queue_is_as_documented() {
        let next = |key: &str, last_started, again, payload: &str| Next {
            key: key.to_owned(),
            fetcher: "repology".to_owned(),
            run: 1_700_000_000,
            last_started,
            again,
            bumped: again,
            payload: payload.to_owned(),
        };
        let keys = vec![
            next("alpha", None, false, "1.0 1.1"),
            next("bravo\u{1b}", Some(1_000_000), true, &"x".repeat(70)),
        ];
        let queue = Queue { paused: true, keys, truncated: true };
        let expected = "\
Paused: nothing is handed out until `shiftboss resume`.
Key          last run                      expected  fetcher   run         payload
alpha        never                         next      repology  1700000000  1.0 1.1
bravo\\u{1b}  1m ago, lease expired, ahead  in 6s     repology  1700000000  XXX...
There are more: their payloads are too long to be listed at once.
";
        let done_last_hour = vec![Done { exit_code: 0, jobs: 20 }];
        let status =
            QueueStatus { done_last_hour, busy_seconds: Some(60), ..QueueStatus::default() };
        let turns = Turns::of(&status, false);
        assert_eq!(
            super::queue(&queue, &turns, 1_000_060),
            expected.replace("XXX", &"x".repeat(57))
        );
    }

    /// What a user sees, to the letter.
    #[test]
    fn held_keys_are_as_documented() {
        let hold = |until, reason: &str| Hold {
            kind: HoldKind::Hold,
            since: 1_000_000,
            until,
            reason: reason.to_owned(),
            by: "eve".to_owned(),
        };
        let keys = vec![
            HeldKey { key: "alpha".to_owned(), hold: hold(None, "upstream is down") },
            HeldKey { key: "bravo".to_owned(), hold: hold(Some(1_007_259), "") },
        ];
        let expected = "\
Key    since   held                      by   reason
alpha  1m ago  until `shiftboss unhold`  eve  upstream is down
bravo  1m ago  for another 2h            eve
There are more: give a larger -n.
";
        let shown = super::held(&HeldKeys { keys, truncated: true }, 1_000_060);
        assert_eq!(shown, expected);
    }

    /// What a user sees, to the letter.
    #[test]
    fn the_log_is_as_documented() {
        let done = Ended {
            ended: 9,
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
        let shown =
            super::log(&Log { attempts: vec![done, failed, expired], looked_to: None }, 1_000_150);
        assert_eq!(shown, expected);
        assert_eq!(
            super::log(&Log { attempts: Vec::new(), looked_to: None }, 1),
            "No such attempt is known.\n"
        );
    }
}
