//! `shiftboss fetch`: wires [`crate::fetch`] to a terminal and to signals, for one run or by a schedule.

use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};
use shiftboss_actors::clock::SystemClock;
use shiftboss_protocol::fetcher_file::SkipReason;
use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::child::{Guardian, line_prefix, look_for};
use crate::config::List;
use crate::escape::shown;
use crate::exit::{ExitCode, Failure};
use crate::fetch::{self, Delivered, FetchError, Fetcher, Observer, Tally};
use crate::logging::escaped_line;
use crate::program::with_signals;
use crate::schedule::paths::Changed;
use crate::schedule::scheduler::{Every, Outcome, Schedule};
use crate::signals::{SIGNAL_BASE, Signals};
use crate::standard_error;
use crate::terminal::progress_line;

/// Between two looks of the clock that is shown.
const TICK: Duration = Duration::from_millis(200);

/// Fetches until everything is done, or a signal comes. If a signal ended a run, the process ends here, with 128 plus
/// the signal's number.
pub fn run(input: PathBuf, list: List) -> Result<(), Failure> {
    look_for(&list.spec().program).map_err(Failure::of(ExitCode::Configuration))?;
    let (name, every) = (list.name.as_str().to_owned(), list.every);
    let ended = with_signals(async |mut signals| {
        let mut fetcher = Fetcher::new(input, list, Guardian::default(), None);
        fetcher.claim().await.map_err(|error| failure(&name, error))?;
        match every {
            None => once(&name, fetcher, &mut signals).await,
            Some(period) => by_schedule(name.clone(), fetcher, period, &mut signals).await,
        }
    });
    match ended? {
        None => Ok(()),
        Some(signal) => standard_error::exit(SIGNAL_BASE + signal),
    }
}

/// One run; the signal that ended it.
async fn once(
    name: &str,
    mut fetcher: Fetcher,
    signals: &mut Signals,
) -> Result<Option<i32>, Failure> {
    let (stop, stopped) = oneshot::channel();
    let run = fetcher.run(Changed::default(), Box::new(Show::new(name)), stopped);
    match signals.attend(run, || _ = stop.send(())).await {
        // A signal may have come too late to end it.
        (Some(Ok(Delivered { file, tally: Tally { accepted, faulty } })), _) => {
            info!(name, file, lines = accepted, faulty, "The list is in place.");
            Ok(None)
        }
        (Some(Err(error)), None) => Err(failure(name, error)),
        (_, signal) => Ok(signal),
    }
}

/// Runs until a signal comes; that signal, if it ended a run.
async fn by_schedule(
    name: String,
    fetcher: Fetcher,
    period: Duration,
    signals: &mut Signals,
) -> Result<Option<i32>, Failure> {
    let list = name.clone();
    let observer = move || Box::new(Show::new(&list)) as _;
    let schedule = Schedule {
        name,
        timing: Default::default(),
        every: Some(Every { period, first: Duration::ZERO }),
        start: fetch::runs(fetcher, observer, false),
        watch: None,
        observer: Box::new(|_| {}),
        clock: Rc::new(SystemClock),
    };
    let ended = schedule.until_signal(signals).await;
    let ended = ended.map_err(Failure::of(ExitCode::Internal))?;
    // A run may end well all the same.
    let is_cut = |outcome: Option<Outcome>| outcome.is_none_or(|outcome| outcome.exit_code != 0);
    Ok(ended.and_then(|(outcome, signal)| is_cut(outcome).then_some(signal)))
}

fn failure(name: &str, FetchError { code, outcome }: FetchError) -> Failure {
    let why = outcome.message;
    let text =
        format!("the list {name:?} was not fetched: {why}; an older one stays, if there is one");
    Failure::new(code, text)
}

/// What a run shows on standard error while it goes on: its progress, if that is a terminal, its command's complaints,
/// and faulty lines.
struct Show {
    /// Hidden where there is no terminal.
    bar: ProgressBar,
    /// Put before each line of the command's standard error.
    prefix: String,
}

impl Show {
    fn new(name: &str) -> Self {
        Self { bar: bar(name), prefix: line_prefix(name) }
    }
}

fn bar(name: &str) -> ProgressBar {
    let bar = progress_line().with_prefix(shown(name));
    if bar.is_hidden() {
        return bar;
    }
    let shape = "{prefix}: {lines}, {per_sec}, {elapsed}";
    if let Ok(style) = ProgressStyle::with_template(shape) {
        bar.set_style(style.with_key(
            "lines",
            |state: &ProgressState, out: &mut dyn fmt::Write| {
                let lines = if state.pos() == 1 { "line" } else { "lines" };
                // If it cannot be shown, it is left out.
                let _ = write!(out, "{} {lines}", HumanCount(state.pos()));
            },
        ));
    }
    bar.enable_steady_tick(TICK);
    bar
}

impl Observer for Show {
    /// Escaped as by the daemon. There may be no reader.
    fn complaint(&mut self, line: &[u8]) {
        let line = [self.prefix.as_bytes(), &escaped_line(line)].concat();
        self.bar.suspend(|| standard_error::write(&line));
    }

    fn faulty(&mut self, line: u64, reason: SkipReason) {
        self.bar.suspend(|| warn!(line, %reason, "A faulty line: the daemon skips it."));
    }

    fn lines(&mut self, accepted: u64) {
        self.bar.set_position(accepted);
    }
}

impl Drop for Show {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
