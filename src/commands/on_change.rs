//! `shiftboss on-change`: wires a schedule of [`crate::schedule`] to a command, a lock and signals.

use std::io::{self, IsTerminal};
use std::rc::Rc;
use std::time::Duration;

use shiftboss_actors::clock::{Clock, SystemClock};
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::printing::show;
use super::text::{self, ago, shown, span};
use crate::child::look_for;
use crate::cli::{OnChangeArguments, OnChangeSettings};
use crate::exit::{ExitCode, Failure};
use crate::program::with_signals;
use crate::schedule::command_runs::{ChangedFile, command_runs};
use crate::schedule::follower::Follower;
use crate::schedule::machine::Timing;
use crate::schedule::paths::Changed;
use crate::schedule::scheduler::{Observer, Schedule, StartRun, Status};
use crate::schedule::status_file::{NameFiles, Report, StatusFiles};
use crate::signals::{SIGNAL_BASE, Signals};
use crate::standard_error;

pub fn run(typed: OnChangeArguments) -> Result<(), Failure> {
    if typed.status {
        return print_status(typed.name.as_deref(), typed.json);
    }
    run_commands(typed.try_into()?)
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
        code => standard_error::exit(code),
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
        observer: on_terminal(observer, timing),
        clock: Rc::new(SystemClock),
    };
    let ended = tokio::select! {
        ended = schedule.until_signal(signals) => ended,
        taken = files.keep() => return Err(taken),
    };
    let ended = ended.map_err(|error| {
        let text = format!("{error}; name directories that this user may read");
        Failure::new(ExitCode::Configuration, text)
    })?;
    info!(name, "Stopped.");
    Ok(ended.map_or(0, |(_, signal)| SIGNAL_BASE + signal))
}

/// The constant part of a status.
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

/// Prints how the on-change of this name is, or all of them.
fn print_status(name: Option<&str>, json: bool) -> Result<(), Failure> {
    let reports = StatusFiles::of_user()?.reports(name)?;
    show(&serde_json::json!({ "on_change": &reports }), json, |_| {
        reports.iter().map(|report| text(report, SystemClock.now())).collect()
    })?;
    let message = match name {
        _ if reports.iter().any(|report| report.pid.is_some()) => return Ok(()),
        Some(name) => format!("no on-change runs under the name {name:?}"),
        None => "no on-change of this user runs".to_owned(),
    };
    Err(Failure::new(ExitCode::Unavailable, message))
}

/// On a terminal, shows what it is waiting for, and until when, so that the user knows why nothing happens. Elsewhere
/// it shows nothing.
fn on_terminal(mut inner: Observer, timing: Timing) -> Observer {
    let mut state = String::new();
    Box::new(move |status| {
        if state != status.state && io::stderr().is_terminal() {
            state.clone_from(&status.state);
            if let Some(text) = awaited(status, &timing, SystemClock.now()) {
                info!("{text}");
            }
        }
        inner(status);
    })
}

/// What it is waiting for; `None` for a run, because that is logged.
fn awaited(status: &Status, timing: &Timing, now: i64) -> Option<String> {
    let left = span(status.next_possible_run.map_or(0, |at| at.saturating_sub(now)));
    let long = |time: Duration| humantime::format_duration(time).to_string();
    Some(match status.state.as_str() {
        // Nothing has changed: this is the run at the start.
        "idle" if status.runs == 0 => return None,
        "waiting" if status.runs == 0 => {
            let quiet = long(timing.debounce.min(timing.max_wait));
            format!("The first run starts once nothing has changed for {quiet}.")
        }
        "idle" => "Waiting for a change.".to_owned(),
        "waiting" => format!(
            "Something changed: running once nothing has changed for {}, after {} at the latest.",
            long(timing.debounce),
            long(timing.max_wait)
        ),
        "running, pending" => "Something changed meanwhile: another run follows.".to_owned(),
        "cooldown" => {
            format!("Resting for {} (--cooldown): changes are kept in mind.", long(timing.cooldown))
        }
        "cooldown, pending" => format!("Something changed: running in {left}, after --cooldown."),
        "backoff" => format!("Trying again in {left}."),
        _ => return None,
    })
}

fn text(report: &Report, now: i64) -> String {
    let status = &report.status;
    let since = |at: i64| ago(now.saturating_sub(at));
    let mut text = String::new();
    let mut line = |what: &str, value: &str| text += &text::line(what, &shown(value));
    line("Name", &report.name);
    match report.pid {
        Some(pid) => line("Process", &format!("running, pid {pid}")),
        None => line("Process", "not running; it was killed, and was then:"),
    }
    line("Command", &report.command.join(" "));
    for path in &report.paths {
        let gone = if path.exists() { "" } else { " (gone)" };
        line("Watches", &format!("{}{gone}", path.display()));
    }
    let begun = status.run_started.map_or(String::new(), |at| format!(", begun {}", since(at)));
    line("State", &format!("{}{begun}", status.state));
    match &status.last_run {
        None => line("Last run", "none has ended"),
        Some(run) => {
            let took = span(run.ended.saturating_sub(run.started));
            line("Last run", &format!("ended {}, took {took}", since(run.ended)));
            let reason =
                if run.message.is_empty() { String::new() } else { format!(" ({})", run.message) };
            line("Exit code", &format!("{}{reason}", run.exit_code));
        }
    }
    let next = match status.next_possible_run {
        Some(at) if at > now => format!("in {}", span(at.saturating_sub(now))),
        Some(_) => "now".to_owned(),
        None if status.run_started.is_some() => {
            "when this one has ended, and its cooldown".to_owned()
        }
        None if report.pid.is_none() => "never".to_owned(),
        None => "when something has changed".to_owned(),
    };
    line("Next run", &next);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use shiftboss_protocol::answers::EndedRun;

    const TIMING: Timing = Timing {
        debounce: Duration::from_secs(5),
        max_wait: Duration::from_secs(60),
        cooldown: Duration::from_secs(180),
        retry: false,
    };

    fn said(state: &str, runs: u64) -> Option<String> {
        let next_possible_run = Some(1_000 + 185);
        let status =
            Status { state: state.to_owned(), runs, next_possible_run, ..Status::default() };
        awaited(&status, &TIMING, 1_000)
    }

    /// The run at the start is not caused by a change; a cooldown is as long as it was set.
    #[test]
    fn what_is_waited_for() {
        assert_eq!(said("idle", 0), None);
        let first = "The first run starts once nothing has changed for 5s.";
        assert_eq!(said("waiting", 0).as_deref(), Some(first));
        assert_eq!(said("idle", 1).as_deref(), Some("Waiting for a change."));
        assert!(said("waiting", 1).unwrap().starts_with("Something changed: "));
        assert!(said("cooldown", 1).unwrap().starts_with("Resting for 3m (--cooldown)"));
        assert!(said("cooldown, pending", 1).unwrap().contains("running in 3m 5s, "));
        assert_eq!(said("running", 1), None);
    }

    /// Times have two units; a name from outside moves no cursor.
    #[test]
    fn a_status_is_short_and_harmless() {
        let last = EndedRun { started: 0, ended: 93_784, exit_code: 0, message: String::new() };
        let status = Status { last_run: Some(last), ..Status::default() };
        let (name, command) = ("a\u{202e}".to_owned(), vec!["x\n".to_owned()]);
        let report = Report { name, pid: Some(1), paths: Vec::new(), command, status };
        let text = text(&report, 187_569);
        assert!(text.contains("ended 1day 2h ago, took 1day 2h\n"), "{text}");
        assert!(text.contains("a\\u{202e}\n") && text.contains("x\\n\n"), "{text}");
    }
}
