//! From events and scans to what is to be done about each run.
//!
//! Every way leads through [`FileWatcherActor::advance`]: look at the names of some runs, act on
//! what is there, register the new ones, drop those that are gone.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;

use actix::prelude::*;
use tracing::{error, warn};

use super::entry::Entry;
use super::phase::Phase;
use super::{FileWatcherActor, Open};
use crate::directory::{Directory, Entry as Seen};
use crate::throttle::Verdict;
use crate::watch::Happened;
use shiftboss_protocol::fetcher_file::{FileName, Named};
use shiftboss_protocol::model::Run;

/// Drains in a row before runs are dropped, while fetchers keep replacing them.
const DRAINS_MAX: usize = 16;

/// What a look at a run's names found.
enum Found {
    File,
    Nothing,
}

impl FileWatcherActor {
    /// Handles all events that are there now, without waiting for any.
    pub(super) fn drain(&mut self, ctx: &mut Context<Self>) {
        let touched = self.take_events();
        self.refresh(touched, ctx);
        if std::mem::take(&mut self.lost) {
            self.lose(ctx);
        } else if std::mem::take(&mut self.overflow) {
            warn!("The kernel dropped events of the input directory; looking at everything.");
            self.runs.values_mut().for_each(|entry| entry.names.forget_writer());
            self.rescan(ctx);
        }
    }

    /// Takes all events that are there into the entries, and tells which runs they touched.
    fn take_events(&mut self) -> BTreeSet<Run> {
        let Some(open) = &mut self.open else {
            return BTreeSet::new();
        };
        let Some(watch) = &mut open.watch else {
            return self.scan();
        };
        match watch.drain() {
            Ok(events) => {
                self.lost |= events.lost;
                self.overflow |= events.overflow;
                self.note_events(events.names)
            }
            Err(error) => {
                error!(%error, "The watch on the input directory failed; opening it again.");
                self.lost = true;
                BTreeSet::new()
            }
        }
    }

    /// Takes events into the entries and tells which runs they touched.
    fn note_events(&mut self, names: Vec<(OsString, Happened)>) -> BTreeSet<Run> {
        let mut touched = BTreeSet::new();
        for (name, happened) in names {
            if happened == Happened::Attributes {
                touched.extend(self.rejected_under(&name));
                continue;
            }
            let file = match FileName::parse(&name) {
                Named::Fetcher(file) => file,
                Named::Bad(reason) => {
                    self.note_bad_name(&name, happened, reason.to_string());
                    continue;
                }
                Named::Other => continue,
            };
            let (run, growing) = (file.run.clone(), file.growing);
            let entry = self.runs.entry(run.clone()).or_insert_with(|| Entry::new(file));
            entry.note(growing, happened);
            touched.insert(run);
        }
        touched
    }

    /// Lists the directory. Returns all runs that are to be looked at: those there, and those known.
    pub(super) fn scan(&mut self) -> BTreeSet<Run> {
        let Some(open) = &self.open else {
            return BTreeSet::new();
        };
        let names = match open.directory.names() {
            Ok(names) => names,
            Err(error) => {
                error!(%error, path = %self.input.path.display(), "Cannot list the input directory.");
                return BTreeSet::new();
            }
        };
        self.forget_absent(&names);
        for name in names {
            match FileName::parse(&name) {
                Named::Fetcher(file) => {
                    let run = file.run.clone();
                    self.runs.entry(run).or_insert_with(|| Entry::new(file));
                }
                Named::Bad(reason) => self.reject_name(&name, reason.to_string()),
                Named::Other => {}
            }
        }
        self.runs.keys().cloned().collect()
    }

    pub(super) fn rescan(&mut self, ctx: &mut Context<Self>) {
        let all = self.scan();
        self.refresh(all, ctx);
    }

    /// Brings the runs forward. Nothing else is handled before the new ones are registered.
    pub(super) fn refresh(&mut self, runs: BTreeSet<Run>, ctx: &mut Context<Self>) {
        if let Some(registering) = self.advance(runs, ctx) {
            ctx.wait(registering);
        }
    }

    /// Looks at the runs and acts on what is there. The new ones are made known by the future.
    pub(super) fn advance(
        &mut self,
        runs: BTreeSet<Run>,
        ctx: &mut Context<Self>,
    ) -> Option<ResponseActFuture<Self, ()>> {
        let (mut fresh, mut gone) = (BTreeSet::new(), BTreeSet::new());
        self.sort(runs, &mut fresh, &mut gone, ctx);
        for _ in 0..DRAINS_MAX {
            if gone.is_empty() {
                break;
            }
            // The run that replaces one was there before that one went: it is in the events now.
            let more = self.take_events();
            if more.is_empty() {
                break;
            }
            self.sort(more, &mut fresh, &mut gone, ctx);
        }
        // New runs first: a fetcher whose run was replaced keeps its id (spec 4, "At start").
        let registering = self.register(fresh.into_iter().collect());
        // What is removed from a directory that was moved or unmounted is not removed from the input.
        if self.open.as_ref().is_some_and(Open::speaks_for_the_input) {
            for run in gone {
                self.drop_run(&run, ctx);
            }
        }
        self.send_notes(ctx);
        registering
    }

    /// Sorts runs into those to be registered, those that are gone, and those that were seen to.
    fn sort(
        &mut self,
        runs: BTreeSet<Run>,
        fresh: &mut BTreeSet<Run>,
        gone: &mut BTreeSet<Run>,
        ctx: &mut Context<Self>,
    ) {
        for run in runs {
            match self.look_at(&run) {
                None => {}
                Some(Found::Nothing) => {
                    fresh.remove(&run);
                    gone.insert(run);
                }
                Some(Found::File) => {
                    gone.remove(&run);
                    if self.act_on(&run, ctx) {
                        fresh.insert(run);
                    }
                }
            }
        }
    }

    /// Looks at both names of a run. `None` when that could not be done: it stays as it is.
    fn look_at(&mut self, run: &Run) -> Option<Found> {
        let (open, entry) = (self.open.as_ref()?, self.runs.get(run)?);
        let (growing, whole) = (entry.name.spelled(true), entry.name.spelled(false));
        let (first, second) = match both_names(&open.directory, &growing, &whole) {
            Ok(seen) => seen,
            Err(error) => {
                if let Verdict::Log { suppressed_before } =
                    self.warnings.admit(std::time::Instant::now())
                {
                    warn!(%run, %error, suppressed_before, "Cannot look at a fetcher file; trying again later.");
                }
                return None;
            }
        };
        let first = self.accept(&growing, first);
        let second = self.accept(&whole, second);
        let entry = self.runs.get_mut(run)?;
        entry.names.saw(first, second);
        entry.names.settle();
        let emptied = entry.names.take_emptied() && entry.known;
        let there = entry.names.file().is_some() && !emptied;
        Some(if there { Found::File } else { Found::Nothing })
    }

    /// Brings one run forward whose file is there. True when it is to be registered.
    fn act_on(&mut self, run: &Run, ctx: &mut Context<Self>) -> bool {
        let Some(entry) = self.runs.get_mut(run) else {
            return false;
        };
        let Some(file) = entry.names.file() else {
            return false;
        };
        if entry.names.is_newly_doubled() {
            let left_out = entry.name.spelled(true);
            warn!(file = left_out, "Left out: the complete file of the same run is there.");
        }
        match &entry.phase {
            Phase::New => return true,
            Phase::Tailing(_) => entry.notify_tail(),
            Phase::Complete(read) => {
                let read = *read;
                let due = std::mem::take(&mut entry.due) && entry.names.is_rested();
                return entry.is_changed_since(read) || due;
            }
            Phase::Idle(read) => {
                return entry.is_changed_since(*read) || entry.names.target().complete;
            }
            Phase::Rejected(failed) if *failed != Some(file) => {
                // A changed file has all its tries again; one that is only looked at again, one.
                entry.failures = if failed.is_some() { 0 } else { entry.failures };
                return true;
            }
            Phase::Stored(stored) => {
                let stored = stored.clone();
                self.begin(run, stored, ctx);
            }
            Phase::HalfDeleted => self.drop_run(run, ctx),
            _ => {}
        }
        false
    }
}

/// Looks at both names. A rename from the growing to the complete name in between is never missed
/// in this order; the third look finds one the other way.
fn both_names(directory: &Directory, growing: &str, whole: &str) -> io::Result<(Seen, Seen)> {
    let first = directory.look(growing.as_ref())?;
    let second = directory.look(whole.as_ref())?;
    let neither = first == Seen::Absent && second == Seen::Absent;
    Ok((if neither { directory.look(growing.as_ref())? } else { first }, second))
}
