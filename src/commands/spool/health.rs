//! `shiftboss spool monitor` and `fsck`: what is wrong. Exit status 1 when something is or was.

use tokio::task::spawn_blocking;

use super::{failure, never};
use crate::cli::MonitorArguments;
use crate::commands::output::show;
use crate::exit::{ExitCode, Failure};
use crate::signals::with_signals;
use shiftboss_spool::{
    EntryName, Event, Finding, Fsck, FsckOptions, Limits, Problem, ProblemKind, Report,
    Result as SpoolResult, Spool, Stop, Turn,
};

pub fn monitor(spool: &Spool, typed: MonitorArguments) -> Result<(), Failure> {
    let limits = Limits {
        tmp: typed.max_tmp_age,
        checkout: typed.max_checkout_age,
        queues: typed.max_age.into_iter().collect(),
        every: typed.every,
        alert_after: typed.alert_after,
    };
    if typed.daemon {
        return daemon(spool.clone(), limits, typed.json);
    }
    let report = spool.monitor(&limits).map_err(failure)?;
    show(&report, typed.json, report_text)?;
    found(!report.problems.is_empty())
}

fn found(something: bool) -> Result<(), Failure> {
    if something { Err(Failure::silent(ExitCode::Found)) } else { Ok(()) }
}

fn report_text(report: &Report) -> String {
    let mut text: String =
        report.problems.iter().map(|problem| format!("{}\n", shown(problem))).collect();
    if report.problems.is_empty() {
        text.push_str("No problem.\n");
    }
    text + &quarantined(&report.quarantined)
}

fn quarantined(names: &[EntryName]) -> String {
    names.iter().map(|name| format!("quarantined: .shiftboss/quarantine/{name}\n")).collect()
}

fn shown(problem: &Problem) -> String {
    let kind = match problem.kind {
        ProblemKind::TooOld => "too old",
        ProblemKind::Orphaned => "orphaned",
        ProblemKind::Duplicated => "duplicated",
        ProblemKind::Linked => "with other names (hard links), which must be removed",
        ProblemKind::Foreign => "no entry",
    };
    let places = problem.places.iter();
    let places = places.map(|place| format!("{place}/{}", problem.name));
    let touched = humantime::format_rfc3339_seconds(problem.modified);
    format!("{kind}: {} (touched {touched})", places.collect::<Vec<_>>().join(" and "))
}

/// Looks in a thread of its own until a signal comes.
fn daemon(spool: Spool, limits: Limits, json: bool) -> Result<(), Failure> {
    let stop = never()?;
    let stopped = stop.clone();
    with_signals(async |mut signals| {
        let looking = spawn_blocking(move || look(&spool, &limits, &stopped, json));
        match signals.attend(looking, || stop.stop()).await.0 {
            Some(Ok(looked)) => looked,
            Some(Err(_)) => {
                Err(Failure::new(ExitCode::Internal, "a bug ended the looking; see above"))
            }
            None => Ok(()),
        }
    })
}

fn look(spool: &Spool, limits: &Limits, stop: &Stop, json: bool) -> Result<(), Failure> {
    let mut end = Ok(());
    spool.monitor_daemon(limits, stop, |event| {
        if end.is_ok() {
            end = found(true);
        }
        match print_event(event, json) {
            Ok(true) => {}
            Ok(false) => stop.stop(),
            Err(failure) => {
                end = Err(failure);
                stop.stop();
            }
        }
    });
    end
}

/// Prints an event, and whether anybody reads.
fn print_event(event: SpoolResult<Event>, json: bool) -> Result<bool, Failure> {
    let event = match event {
        Ok(event) => event,
        Err(error) => {
            tracing::error!(%error, "A look failed; the next is made all the same.");
            return Ok(true);
        }
    };
    show(&event, json, |event| {
        let word = if event.event == Turn::Start { "begins" } else { "ends" };
        let time = humantime::format_rfc3339_seconds(event.time);
        format!("{time} {word}: {}\n", shown(&event.problem))
    })
}

pub fn fsck(spool: &Spool, options: FsckOptions, json: bool) -> Result<(), Failure> {
    let fsck = spool.fsck(options).map_err(failure)?;
    show(&fsck, json, |fsck| fsck_text(fsck, options.repair))?;
    found(!fsck.is_clean())
}

fn fsck_text(fsck: &Fsck, repaired: bool) -> String {
    let mut text = String::new();
    for found in &fsck.findings {
        let done = match (&found.error, repaired) {
            (Some(error), _) => format!("could not be {}: {error}", found.action),
            (None, true) => found.action.to_owned(),
            (None, false) => format!("to be {}", found.action),
        };
        text += &format!("{}: {}: {done}\n", found.path, words(found.finding));
    }
    let left = fsck.findings.iter().filter(|found| !found.mended).count();
    text += &match (fsck.findings.len(), left) {
        (0, _) => "Nothing is wrong.\n".to_owned(),
        (all, 0) => format!("{all} found, all mended.\n"),
        (all, left) if repaired => format!("{all} found, {left} not mended.\n"),
        (all, _) => format!("{all} found; --repair mends them.\n"),
    };
    text + &quarantined(&fsck.quarantined)
}

fn words(finding: Finding) -> &'static str {
    match finding {
        Finding::MissingDirectory => "a directory is missing",
        Finding::DeadOwner => "checked out by a dead process, or due",
        Finding::Unowned => "checked out, and nobody noted it",
        Finding::HalfWritten => "a temporary file",
        Finding::OrphanedData => "data without a name",
        Finding::OrphanedName => "a name without an entry",
        Finding::Unregistered => "an entry whose name is not registered",
        Finding::HalfRemoved => "a checkout without data",
        Finding::WithoutData => "an entry without data",
        Finding::Linked => "an entry with other names (hard links)",
        Finding::Unreadable => "metadata that cannot be opened",
        Finding::Duplicated => "an entry in several places",
        Finding::Stray => "no entry",
        Finding::Stale => "a note of nothing",
    }
}
