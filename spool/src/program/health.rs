//! `shiftspool monitor` and `fsck`: what is wrong. Exit status 1 when something is or was.

use std::time::SystemTime;

use shiftboss_console::exit::{ExitCode, Failure};
use shiftboss_console::printing::show;
use shiftboss_console::program::with_signals;
use tokio::task::spawn_blocking;

use super::cli::MonitorArguments;
use super::never;
use crate::{
    EntryName, Event, Finding, Fsck, FsckOptions, Limits, Monitor, Problem, ProblemKind, Report,
    Spool, Stop, Turn,
};

pub fn monitor(spool: Spool, typed: MonitorArguments) -> Result<(), Failure> {
    let limits = Limits {
        tmp: typed.max_tmp_age,
        checkout: typed.max_checkout_age,
        queues: typed.max_age.iter().cloned().collect(),
    };
    if typed.daemon {
        return daemon(spool, limits, typed);
    }
    let report = spool.monitor(&limits)?;
    show(&report, typed.json, report_text)?;
    found(!report.problems.is_empty())
}

fn found(something: bool) -> Result<(), Failure> {
    if something { Err(Failure::silent(ExitCode::Found)) } else { Ok(()) }
}

fn report_text(report: &Report) -> String {
    let problems: String =
        report.problems.iter().map(|problem| format!("{}\n", shown(problem))).collect();
    let text = if problems.is_empty() { "No problem.\n" } else { &problems };
    text.to_owned() + &quarantined(&report.quarantined)
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
fn daemon(spool: Spool, limits: Limits, typed: MonitorArguments) -> Result<(), Failure> {
    let stop = never()?;
    let stopped = stop.clone();
    with_signals(async |mut signals| {
        let looking = spawn_blocking(move || look(&spool, &limits, &typed, &stopped));
        match signals.attend(looking, || stop.stop()).await.0 {
            Some(Ok(looked)) => looked,
            Some(Err(_)) => {
                Err(Failure::new(ExitCode::Internal, "a bug ended the looking; see above"))
            }
            None => Ok(()),
        }
    })
}

/// Looks again and again, and prints what begins and ends, until it is stopped or nobody reads.
fn look(
    spool: &Spool,
    limits: &Limits,
    typed: &MonitorArguments,
    stop: &Stop,
) -> Result<(), Failure> {
    let (mut monitor, mut is_wrong) = (Monitor::new(typed.alert_after), false);
    loop {
        match spool.monitor(limits) {
            Ok(report) => {
                for event in monitor.update(&report, SystemTime::now()) {
                    is_wrong = true;
                    if !show(&event, typed.json, event_text)? {
                        return found(true);
                    }
                }
            }
            Err(error) => {
                is_wrong = true;
                tracing::error!(%error, "A look failed; the next is made all the same.");
            }
        }
        if stop.wait(typed.every) {
            return found(is_wrong);
        }
    }
}

fn event_text(event: &Event) -> String {
    let word = if event.event == Turn::Start { "begins" } else { "ends" };
    let time = humantime::format_rfc3339_seconds(event.time);
    format!("{time} {word}: {}\n", shown(&event.problem))
}

pub fn fsck(spool: &Spool, options: FsckOptions, json: bool) -> Result<(), Failure> {
    let fsck = spool.fsck(options)?;
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
