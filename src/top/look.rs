//! What is asked of a queue and its daemon for one frame, on the reading thread. The readers and answers are those of `status`,
//! `tasks`, `log` and `why`; here they are put together.

use std::path::PathBuf;
use std::time::Duration;

use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_actors::live::{DaemonMetrics, Live};
use shiftboss_protocol::model::UnixSeconds;
use shiftboss_queue::answers::{MinuteJobs, QueueStatus, TaskStatus};
use shiftboss_queue::reader::{EndedAttempts, Grouping, ReadResult, Reader, StatsOf, TasksWith};

use super::commits::Last;
use super::picture::{Attempt, Detail, Lists, Picture, View};
use super::tabs::Tab;
use crate::exit::{ExitCode, Failure};
use crate::live::{self, Unknown};
use crate::lock::LockState;
use crate::metrics;
use crate::outputs::Outputs;
use crate::outputs::screen::{Colours, line};
use crate::standing::{fetchers, why};
use crate::stores::{self, Database};
use crate::target::{Asked, Target};
use crate::text::{self, shown};

/// How long all questions of a frame may take.
const QUESTIONS_MAX: Duration = Duration::from_secs(5);
/// Rows of a list.
pub const ROWS_MAX: usize = 1_000;
/// Keys before a key that are counted.
const KEYS_BEFORE_MAX: usize = 10_000;
const DAY: Duration = Duration::from_secs(24 * 3_600);
/// Of what a job wrote, so much is shown: the end.
const OUTPUT_BYTES_MAX: u64 = 64 * 1024;
const TAB: &str = "    ";

/// Who looks again and again.
pub struct Looker {
    target: Asked,
    outputs: Option<(PathBuf, Outputs)>,
    /// Where the queue was: a socket that is gone tells it no more.
    known: Option<Database>,
    last: Last,
}

impl Looker {
    pub fn new(target: Asked, log_dir: Option<PathBuf>) -> Self {
        let outputs = log_dir.map(|path| (path.clone(), Outputs::of_log_dir(path)));
        Self { target, outputs, known: None, last: Last::default() }
    }

    /// Where the queue and its daemon are now: it may have been started since.
    pub fn find(&mut self) -> Result<Target, Failure> {
        match (self.target.find(), &self.known) {
            (Err(failure), Some(database)) if failure.code() == ExitCode::Unavailable => {
                Ok(Target { database: database.clone(), daemon: LockState::Free })
            }
            (found, _) => {
                let found = found?;
                self.known = Some(found.database.clone());
                Ok(found)
            }
        }
    }

    pub fn look(&mut self, view: &View) -> Result<Picture, Failure> {
        let target = self.find()?;
        let now = SystemClock.now();
        let reader = stores::glance(&target.database, QUESTIONS_MAX)?;
        let (queue, minutes, lists) = ask(&*reader, view, now).map_err(stores::read_failure)?;
        let detail = view.detail.clone().map(|detail| {
            let lines = self.detail(&detail, &*reader, &queue, now);
            (detail, lines.unwrap_or_else(|error| vec![shown(&error.to_string())]))
        });
        // The daemon may be slow; nobody keeps the database's log from being cut meanwhile.
        drop(reader);
        let live = live::ask(&target, &queue);
        let metrics = self.metrics(&target, &queue, &live);
        let commits = metrics.as_ref().and_then(|metrics| self.last.commits_until(metrics));
        Ok(Picture { at: now, target, queue, live, metrics, commits, minutes, lists, detail })
    }

    /// What the daemon counts, if it answered just now.
    fn metrics(
        &self,
        target: &Target,
        queue: &QueueStatus,
        live: &Result<Option<Live>, Unknown>,
    ) -> Option<DaemonMetrics> {
        let answers = matches!(live, Ok(Some(_)) | Err(Unknown::Withheld(_)));
        let is_classic = queue.policy.as_deref() == Some(metrics::CLASSIC);
        match &target.daemon {
            LockState::By(daemon) if answers && !is_classic => metrics::ask(&daemon.socket).1,
            _ => None,
        }
    }

    fn detail(
        &self,
        detail: &Detail,
        reader: &dyn Reader,
        queue: &QueueStatus,
        now: UnixSeconds,
    ) -> ReadResult<Vec<String>> {
        Ok(match detail {
            Detail::Why(key) => match reader.why(now, key, KEYS_BEFORE_MAX)? {
                Some(found) => why::render(&found, now).lines().map(str::to_owned).collect(),
                None => vec![why::unheard_of(key).to_string()],
            },
            Detail::Fetcher(name) => fetcher(queue, name, now),
            Detail::Output(attempt) => self.output(attempt),
        })
    }

    /// The last lines of what an attempt wrote so far.
    fn output(&self, attempt: &Attempt) -> Vec<String> {
        let Some((directory, outputs)) = &self.outputs else { return Vec::new() };
        let key = text::cut(&attempt.key, text::TEXT_WIDTH);
        let directory = shown(&directory.display().to_string());
        let none = || format!("There is no output of {key} in {directory}.");
        let Some(day) = outputs.day_of(&attempt.key, attempt.started) else { return vec![none()] };
        match outputs.end(&attempt.key, &day, attempt.number, OUTPUT_BYTES_MAX) {
            Ok(Some(end)) => {
                let text = end.bytes.strip_suffix(b"\n").unwrap_or(&end.bytes);
                let lines = text.split(|byte| *byte == b'\n');
                lines.map(|text| line(text, Colours::LeftOut).replace('\t', TAB)).collect()
            }
            Ok(None) => vec![none()],
            Err(error) => vec![format!("The output of {key} cannot be read: {error}")],
        }
    }
}

/// All questions of one moment.
fn ask(
    reader: &dyn Reader,
    view: &View,
    now: UnixSeconds,
) -> ReadResult<(QueueStatus, Vec<MinuteJobs>, Lists)> {
    let queue = reader.status(now)?;
    let minutes = reader.jobs_by_minute(now)?;
    let mut lists = Lists::default();
    for tab in &view.tabs {
        match tab {
            Tab::Fetchers => {
                lists.last_day = Some(reader.stats(&StatsOf::last(DAY, Grouping::Fetcher, now))?);
            }
            Tab::InFlight => {}
            Tab::Next => {
                let status = Some(TaskStatus::Delayed);
                let asked = TasksWith { status, fetcher: None, since: None, count: ROWS_MAX };
                lists.next = Some(reader.next_jobs(now, ROWS_MAX)?);
                lists.delayed = Some(reader.tasks(now, &asked)?);
            }
            Tab::Ended => {
                let asked = EndedAttempts { count: ROWS_MAX, ..EndedAttempts::default() };
                lists.ended = Some(reader.ended_attempts(&asked)?);
            }
        }
    }
    if (queue.held > 0 || queue.backed_off > 0) && view.tabs.iter().any(|tab| *tab != Tab::Fetchers)
    {
        lists.held = Some(reader.held(ROWS_MAX)?);
    }
    Ok((queue, minutes, lists))
}

/// A fetcher's list, and its runs if the daemon runs it.
fn fetcher(queue: &QueueStatus, name: &str, now: UnixSeconds) -> Vec<String> {
    let said = |about: &str, what: &str| text::line(about, what).trim_end().to_owned();
    let mut lines = vec![said("Fetcher", &shown(name))];
    if let Some(list) = queue.fetchers.iter().find(|list| list.name == name) {
        let state = if list.complete { "complete" } else { "growing" };
        let count = |count: i64, noun: &str| text::counted(count, noun);
        lines.push(said("List", &format!("run {}, {state}", list.run)));
        lines.push(said("Lines", &format!("{}, {} skipped", list.lines, list.skipped)));
        lines.push(said("Waiting", &list.pending.to_string()));
        lines.push(said("Dead letters", &list.dead_letters.to_string()));
        lines.push(said("Older", &count(list.older_runs, "run")));
    }
    match queue.managed_fetchers.iter().find(|record| &*record.name == name) {
        None => lines.push(said("Runs", "by itself: the daemon does not run it")),
        Some(record) => {
            let last = record.last_run.as_ref();
            lines.push(said("State", &fetchers::state(record, now)));
            lines.push(said(
                "Last run",
                &last.map_or("none yet".to_owned(), |last| fetchers::last_run(last, now)),
            ));
            lines
                .extend(last.map(|last| said("Result", &fetchers::result(last, text::TEXT_WIDTH))));
            lines.push(said("Next run", &fetchers::next_run(record.next_run, now)));
        }
    }
    lines
}
