//! `shiftboss on-change`: wires a schedule of [`crate::schedule`] to a command, a lock and signals.

mod show;

use std::rc::Rc;

use shiftboss_actors::clock::SystemClock;
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::output::print;
use crate::child::look_for;
use crate::cli::{OnChangeArguments, OnChangeSettings, Picture};
use crate::exit::{ExitCode, Failure};
use crate::schedule::command_runs::{ChangedFile, command_runs};
use crate::schedule::follower::Follower;
use crate::schedule::machine;
use crate::schedule::paths::Changed;
use crate::schedule::scheduler::{Schedule, StartRun, Status};
use crate::schedule::status_file::{NameFiles, Report, StatusFiles};
use crate::signals::{SIGNAL_BASE, Signals, with_signals};

pub fn run(typed: OnChangeArguments) -> Result<(), Failure> {
    match typed.graph {
        Some(Picture::Dot) => print(machine::dot()),
        Some(Picture::Mermaid) => print(machine::mermaid()),
        None if typed.status => show::status(typed.name.as_deref(), typed.json),
        None => run_commands(typed.try_into()?),
    }
}

fn run_commands(settings: OnChangeSettings) -> Result<(), Failure> {
    look_for(&settings.command.program).map_err(Failure::of(ExitCode::Configuration))?;
    let files = StatusFiles::of_user()?.take(&settings.name)?;
    let ended = with_signals(async |mut signals| {
        let changed = ChangedFile(files.changed().to_owned());
        let start = command_runs(settings.name.clone(), settings.command.clone(), changed);
        if settings.is_once {
            Ok(once(start, &mut signals).await)
        } else {
            watch(settings, &files, start, &mut signals).await
        }
    });
    drop(files);
    match ended? {
        0 => Ok(()),
        code => std::process::exit(code),
    }
}

async fn once(start: StartRun, signals: &mut Signals) -> i32 {
    let (stop, stopped) = oneshot::channel();
    let run = start(Changed::unknown(), stopped);
    match signals.attend(run, || _ = stop.send(())).await {
        (Some(outcome), None) => {
            if outcome.exit_code != 0 {
                warn!(reason = outcome.message, "The run failed.");
            }
            outcome.exit_code.into()
        }
        (_, signal) => SIGNAL_BASE + signal.unwrap_or_default(),
    }
}

/// Watches until a signal comes or something fails for good, and returns the exit code.
async fn watch(
    settings: OnChangeSettings,
    files: &NameFiles,
    start: StartRun,
    signals: &mut Signals,
) -> Result<i32, Failure> {
    let (name, roots) = (settings.name.clone(), settings.trees.roots.len());
    info!(name, roots, "Starting.");
    let (observer, timing) = (files.observer(report(&settings)), settings.timing);
    let schedule = Schedule {
        name: settings.name,
        timing,
        every: None,
        start,
        watch: Some(Follower::of_trees(settings.trees, false)),
        observer: show::on_terminal(observer, timing),
        clock: Rc::new(SystemClock),
    };
    let ended = schedule.until_signal(signals).await.map_err(|error| {
        let text = format!("{error}; name directories that this user may read");
        Failure::new(ExitCode::Configuration, text)
    })?;
    info!(name, "Stopped.");
    Ok(ended.map_or(0, |(_, signal)| SIGNAL_BASE + signal))
}

/// What a status says that does not change.
fn report(settings: &OnChangeSettings) -> Report {
    let absolute =
        |path: &std::path::Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let words = std::iter::once(&settings.command.program).chain(&settings.command.arguments);
    Report {
        name: settings.name.clone(),
        pid: Some(std::process::id()),
        paths: settings.trees.roots.iter().map(|path| absolute(path)).collect(),
        command: words.map(|word| word.to_string_lossy().into_owned()).collect(),
        status: Status::default(),
    }
}
