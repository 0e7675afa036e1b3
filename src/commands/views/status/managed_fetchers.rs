//! The fetchers that the daemon runs itself, as lines for people. Pure; called by [`super::table`].
//!
//! Not the lists that are in the input directory, which are shown whoever made them.

use shiftboss_queue::answers::FetcherRecord;

use crate::standing::fetchers::{RESULT_WIDTH, last_run, next_run, result, state};
use crate::text::{columns, shown};

/// One line a fetcher, or nothing if there are none; `is_running`: whether the daemon does.
pub(super) fn render(fetchers: &[FetcherRecord], is_running: bool, now: i64) -> String {
    if fetchers.is_empty() {
        return String::new();
    }
    // Without a daemon nothing runs, whatever was planned.
    let unless_down = |text: String| if is_running { text } else { "-".to_owned() };
    let row = |fetcher: &FetcherRecord| {
        let last = fetcher.last_run.as_ref();
        [
            shown(&fetcher.name),
            unless_down(state(fetcher, now)),
            last.map_or("none yet".to_owned(), |last| last_run(last, now)),
            last.map_or("-".to_owned(), |last| result(last, RESULT_WIDTH)),
            unless_down(next_run(fetcher.next_run, now)),
        ]
    };
    let head = ["Run by the daemon", "state", "last run", "result", "next run"];
    columns(head, fetchers.iter().map(row))
}

#[cfg(test)]
mod tests {
    use shiftboss_queue::answers::EndedRun;

    use super::*;

    const NOW: i64 = 1_000_000;

    fn fetcher(name: &str, state: &str) -> FetcherRecord {
        let (name, state) = (name.into(), state.to_owned());
        FetcherRecord { name, state, run_started: None, last_run: None, next_run: None }
    }

    fn ended(ago: i64, took: i64, exit_code: u8, message: &str) -> Option<EndedRun> {
        let ended = NOW - ago;
        Some(EndedRun { started: ended - took, ended, exit_code, message: message.to_owned() })
    }

    fn all() -> Vec<FetcherRecord> {
        let failed = "the command ended with exit code 7: the former list stays as it was";
        vec![
            FetcherRecord {
                last_run: ended(180, 12, 0, "7 lines, 0 faulty: f.170.txt"),
                next_run: Some(NOW + 7_200),
                ..fetcher("links", "idle")
            },
            FetcherRecord {
                run_started: Some(NOW - 300),
                last_run: ended(3_600, 0, 7, failed),
                ..fetcher("notes", "running, pending")
            },
            FetcherRecord {
                run_started: Some(NOW - 2),
                next_run: Some(NOW),
                ..fetcher("new", "running")
            },
        ]
    }

    /// What a user sees, to the letter.
    #[test]
    fn the_lines_are_as_documented() {
        let expected = "\
Run by the daemon  state                    last run          result                                                        next run
links              idle                     3m ago, took 12s  ok: 7 lines, 0 faulty: f.170.txt                              in 2h
notes              running for 5m, pending  1h ago, took 0s   the command ended with exit code 7: the former list stays...  on change
new                running for 2s           none yet          -                                                             now
";
        assert_eq!(render(&all(), true, NOW), expected);
        assert_eq!(render(&[], true, NOW), "");
    }

    /// Without a daemon nothing is running and nothing will.
    #[test]
    fn without_a_daemon_only_the_past_is_told() {
        let text = render(&all(), false, NOW);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert!(lines[0].starts_with("links              -      3m ago"), "{text}");
        assert!(lines.iter().all(|line| line.ends_with(" -")), "{text}");
        assert!(!text.contains("running"), "{text}");
    }

    /// Whatever somebody wrote into the table is shown as something, and moves no cursor.
    #[test]
    fn nonsense_is_shown_as_something() {
        let odd = |time| FetcherRecord {
            run_started: Some(time),
            last_run: Some(EndedRun {
                started: i64::MIN,
                ended: time,
                exit_code: 255,
                message: "\u{1b}[2J\n".repeat(1_000),
            }),
            next_run: Some(time),
            ..fetcher("evil\u{1b}\n", "\u{7}")
        };
        let text = render(&[odd(i64::MIN), odd(i64::MAX), odd(0)], true, NOW);
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(!text.contains(['\u{1b}', '\u{7}']), "{text:?}");
        assert!(text.contains("exit code 255: \\u{1b}[2J\\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() < 250), "{text}");
    }
}
