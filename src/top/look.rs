//! The questions to a queue and its daemon for one frame, on the reading thread. The readers and answers are those of
//! `status`, `tasks`, `log` and `why`; this module combines them.

use std::path::PathBuf;
use std::time::Duration;

use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_protocol::answers::{HeldKeys, QueueStatus};
use shiftboss_protocol::model::UnixSeconds;
use shiftboss_queue::reader::{KEYS_BEFORE_IN_VIEWS, ReadResult, Reader};

use super::commits::Last;
use super::picture::{Detail, Picture, View};
use super::tabs::{ROWS_MAX, Tab};
use crate::exit::{ExitCode, Failure};
use crate::live;
use crate::lock::LockState;
use crate::metrics;
use crate::outputs::Outputs;
use crate::outputs::screen::{self, Colours};
use crate::stores::{self, Database};
use crate::target::{Asked, Target};
use crate::text::{self, line, shown};
use crate::view::health::Up;
use crate::view::table::{Attempt, Table, capitalized};
use crate::view::{key, machines};

/// How long all questions of a frame may take.
const QUESTIONS_MAX: Duration = Duration::from_secs(5);
/// How much of a job's output is shown, from its end.
const OUTPUT_BYTES_MAX: u64 = 64 * 1024;
const TAB: &str = "    ";

pub struct Looker {
    target: Asked,
    outputs: Option<(PathBuf, Outputs)>,
    /// Where the queue was last found: a socket that is gone no longer shows it.
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
        let ask = || -> ReadResult<_> {
            let queue = reader.status(now)?;
            let held = match queue.held > 0 || queue.backed_off > 0 {
                true => reader.held(ROWS_MAX)?,
                false => HeldKeys { keys: Vec::new(), truncated: false },
            };
            let mut found = [const { None }; Tab::ALL.len()];
            for tab in &view.tabs {
                let question = tab.question(now);
                found[*tab as usize] = question.map(|it| it.ask(&*reader, now)).transpose()?;
            }
            Ok((queue, held, reader.jobs_by_minute(now)?, found))
        };
        let (queue, held, minutes, found) = ask().map_err(stores::read_failure)?;
        let detail = view.detail.clone().map(|detail| {
            let up = Up::of(&target, &queue);
            let lines = self.detail(&detail, &*reader, &queue, up, now);
            (detail, lines.unwrap_or_else(|error| vec![shown(&error.to_string())]))
        });
        // The daemon may be slow; meanwhile we must not keep the database's log from being truncated.
        drop(reader);
        let snapshot = live::snapshot(target, queue, now);
        let metrics = metrics::ask(&snapshot);
        let commits = metrics.as_ref().and_then(|metrics| self.last.commits_until(metrics));
        Ok(Picture { snapshot, metrics, commits, minutes, held, found, detail })
    }

    fn detail(
        &self,
        detail: &Detail,
        reader: &dyn Reader,
        queue: &QueueStatus,
        up: Up,
        now: UnixSeconds,
    ) -> ReadResult<Vec<String>> {
        Ok(match detail {
            Detail::Why(of) => match key::find(reader, up, of, KEYS_BEFORE_IN_VIEWS, now)? {
                Some(found) => key::render(&found, now).lines().map(str::to_owned).collect(),
                None => vec![key::unheard_of(of).to_string()],
            },
            Detail::Fetcher(name) => fetcher(queue, name, up, now),
            Detail::Output(attempt) => self.output(attempt),
        })
    }

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
                lines.map(|text| screen::line(text, Colours::LeftOut).replace('\t', TAB)).collect()
            }
            Ok(None) => vec![none()],
            Err(error) => vec![format!("The output of {key} cannot be read: {error}")],
        }
    }
}

/// A fetcher's list, and its runs if the daemon runs it: each column a line.
fn fetcher(queue: &QueueStatus, name: &str, up: Up, now: UnixSeconds) -> Vec<String> {
    let mut queue = queue.clone();
    queue.fetchers.retain(|list| list.name == name);
    queue.managed_fetchers.retain(|record| &*record.name == name);
    let lines = |table: &Table| -> Vec<String> {
        let line = |at: usize| {
            let cell = &table.rows.first()?.cells[at];
            Some(line(&capitalized(table.columns[at].name), &cell.text).trim_end().to_owned())
        };
        table.used().into_iter().filter_map(line).collect()
    };
    let mut all = lines(&machines::fetchers(&queue, None, &[], up, now));
    match queue.managed_fetchers.is_empty() {
        true => {
            all.push(line("Runs", "by itself: the daemon does not run it").trim_end().to_owned())
        }
        // Its name was already shown.
        false => {
            all.extend(lines(&machines::runs(&queue.managed_fetchers, up, now)).split_off(1));
        }
    }
    all
}
