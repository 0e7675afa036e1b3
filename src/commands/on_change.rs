//! `shiftboss on-change`: wires the actors of [`crate::change`] to a command, a lock and signals, and
//! waits for the end. When to run, and what to watch, is decided there.

mod show;

use std::sync::Arc;

use actix::prelude::*;
use shiftboss_actors::clock::SystemClock;
use shiftboss_actors::exit_notifier::ExitNotifier;
use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::change::change_actor::{ChangeActor, ChangeError};
use crate::change::command_runs::{CommandRuns, CommandSettings};
use crate::change::machine::{Refusal, graph};
use crate::change::paths::Changed;
use crate::change::run_actor::{RunActor, RunParts, Stop};
use crate::change::runs::Runs;
use crate::change::status::Status;
use crate::change::status_file::{Place, PlaceError, Places, Report};
use crate::change::tree_watch::Kernel;
use crate::child::{Guardian, look_for};
use crate::cli::{OnChange, OnChangeSettings, Picture};
use crate::exit::{ExitCode, Failure};
use crate::signals::{SIGNAL_BASE, Signals};

/// Does what is asked for.
///
/// # Errors
/// Why it could not. A command's own exit code (`--once`), or that of a signal within a run, ends the
/// process here.
pub fn run(asked: OnChange) -> Result<(), Failure> {
    match asked {
        OnChange::Graph(Picture::Dot) => show::print(&graph::dot()),
        OnChange::Graph(Picture::Mermaid) => show::print(&graph::mermaid()),
        OnChange::Status { name, json } => show::status(name.as_deref(), json),
        OnChange::Run(settings) => run_commands(*settings),
    }
}

fn run_commands(settings: OnChangeSettings) -> Result<(), Failure> {
    look_for(&settings.program)
        .map_err(|error| Failure::new(ExitCode::Configuration, error.to_string()))?;
    let places = Places::of_user().map_err(|error| place_failure(&error))?;
    let place = places.take(&settings.name).map_err(|error| place_failure(&error))?;
    let ended = System::new().block_on(async {
        let signals = Signals::new().map_err(|error| {
            Failure::new(ExitCode::StoreIo, format!("cannot listen for signals: {error}"))
        })?;
        let runs = CommandRuns::new(command_settings(&settings, &place), Guardian::new());
        if settings.is_once {
            once(runs, signals).await
        } else {
            watch(settings, &place, runs, signals).await
        }
    });
    // Whatever still runs was killed with the runtime.
    drop(place);
    match ended? {
        0 => Ok(()),
        code => std::process::exit(code),
    }
}

fn command_settings(settings: &OnChangeSettings, place: &Place) -> CommandSettings {
    CommandSettings {
        name: settings.name.clone(),
        program: settings.program.clone(),
        arguments: settings.arguments.clone(),
        time_limit: settings.time_limit,
        grace: settings.grace,
        changed_file: place.changed().to_owned(),
    }
}

/// Runs the command once, and returns the exit code.
async fn once(mut runs: CommandRuns, mut signals: Signals) -> Result<i32, Failure> {
    let (stop, stopped) = oneshot::channel();
    let mut run = runs.start(Changed::unknown(), stopped);
    let number = tokio::select! {
        outcome = &mut run => {
            if outcome.exit_code != 0 {
                warn!(reason = outcome.message, "The run failed.");
            }
            return Ok(outcome.exit_code.into());
        }
        number = signals.next() => number,
    };
    let _ = stop.send(());
    tokio::select! {
        _ = &mut run => {}
        _ = signals.next() => {}
    }
    Ok(SIGNAL_BASE + number)
}

/// Watches until a signal comes or something fails for good, and returns the exit code.
async fn watch(
    settings: OnChangeSettings,
    place: &Place,
    runs: CommandRuns,
    mut signals: Signals,
) -> Result<i32, Failure> {
    let (name, roots) = (settings.name.clone(), settings.trees.roots.len());
    info!(name, roots, "Starting.");
    let (run, watching, running) = start(settings, place, runs);
    let number = tokio::select! {
        ended = watching => return Err(watch_failure(ended.ok())),
        ended = running => return Err(run_failure(ended.ok())),
        number = signals.next() => number,
    };
    info!(
        signal = number,
        "Stopping. Another signal, a second after this one or later, kills what runs."
    );
    let was_on = tokio::select! {
        was_on = run.send(Stop) => was_on.unwrap_or(true),
        _ = signals.next() => run.send(Stop).await.unwrap_or(true),
    };
    info!(name, "Stopped.");
    Ok(if was_on { SIGNAL_BASE + number } else { 0 })
}

type Ended<E> = oneshot::Receiver<E>;

/// Starts both actors, each with the other's address for the one message it sends there.
fn start(
    settings: OnChangeSettings,
    place: &Place,
    runs: CommandRuns,
) -> (Addr<RunActor>, Ended<ChangeError>, Ended<Refusal>) {
    let (watch_notifier, watching) = ExitNotifier::new();
    let (exit_notifier, running) = ExitNotifier::new();
    let (inner, timing) = (place.observer(report(&settings)), settings.timing);
    let observer = Box::new(show::Shown { inner, timing, state: String::new() });
    let OnChangeSettings { name, trees, timing, .. } = settings;
    let opener = Arc::new(move || crate::change::open(&trees, Kernel));
    let run = RunActor::create(|ctx| {
        let changes = ctx.address().recipient();
        let watch = ChangeActor::new(opener, changes, watch_notifier).start().recipient();
        let (runs, watch) = (Box::new(runs), Some(watch));
        RunActor::new(RunParts {
            name,
            timing,
            runs,
            watch,
            observer,
            clock: Box::new(SystemClock),
            exit_notifier,
        })
    });
    (run, watching, running)
}

/// What a status says that does not change.
fn report(settings: &OnChangeSettings) -> Report {
    let absolute =
        |path: &std::path::Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let words = std::iter::once(&settings.program).chain(&settings.arguments);
    Report {
        name: settings.name.clone(),
        pid: Some(std::process::id()),
        paths: settings.trees.roots.iter().map(|path| absolute(path)).collect(),
        command: words.map(|word| word.to_string_lossy().into_owned()).collect(),
        status: Status::default(),
    }
}

fn place_failure(error: &PlaceError) -> Failure {
    let code = match error {
        PlaceError::Taken { .. } => ExitCode::AlreadyRunning,
        PlaceError::Foreign { .. } => ExitCode::Configuration,
        PlaceError::Directory { .. } | PlaceError::Lock(_) => ExitCode::CannotCreate,
    };
    Failure::new(code, error.to_string())
}

/// `None`: the actor ended without a word.
fn watch_failure(ended: Option<ChangeError>) -> Failure {
    match ended {
        Some(error @ ChangeError::Watch(_)) => {
            let message = format!("{error}; name directories that this user may read");
            Failure::new(ExitCode::Configuration, message)
        }
        Some(error @ ChangeError::Wait(_)) => Failure::new(ExitCode::StoreIo, error.to_string()),
        Some(ChangeError::Panicked) | None => bug("the watch"),
    }
}

fn run_failure(ended: Option<Refusal>) -> Failure {
    match ended {
        Some(refusal) => bug(&format!("the machine of runs ({refusal})")),
        None => bug("the keeper of runs"),
    }
}

fn bug(what: &str) -> Failure {
    let message = format!("a bug in shiftboss ended {what}; please report the message above");
    Failure::new(ExitCode::Internal, message)
}
