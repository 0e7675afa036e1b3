//! From events and scans to what must be done about each run.
//!
//! Every way leads through [`FileWatcherActor::refresh`]: look at the names of some runs, act on
//! what is there, register the new ones, drop those that are gone.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::rc::Rc;
use std::time::Instant;

use actix::prelude::*;
use tracing::{error, warn};

use super::entry::Entry;
use super::phase::Phase;
use super::watch::Happened;
use super::{FileWatcherActor, Open};
use crate::directory::{Directory, Entry as Seen};
use shiftboss_protocol::fetcher_file::{FileName, Named};
use shiftboss_protocol::model::Run;

/// Drains in a row before runs are dropped, while fetchers keep replacing them.
const DRAINS_MAX: usize = 16;

impl FileWatcherActor {
    /// Handles all events that are there now, without waiting for any.
    pub(super) fn drain(&mut self, ctx: &mut Context<Self>) {
        let touched = self.take_events();
        self.refresh(touched, ctx);
        if std::mem::take(&mut self.lost) {
            self.lose(ctx);
        } else if std::mem::take(&mut self.overflow) {
            warn!("The kernel dropped events of the input directory; looking at everything.");
            self.runs.values_mut().for_each(|entry| entry.names.writing = false);
            self.rescan(ctx);
        }
    }

    /// Takes all events that are there into the entries, and returns which runs they touched.
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

    /// Takes events into the entries and returns which runs they touched.
    fn note_events(&mut self, names: Vec<(OsString, Happened)>) -> BTreeSet<Run> {
        let mut touched = BTreeSet::new();
        for (name, happened) in names {
            match FileName::parse(&name) {
                Named::Fetcher(FileName { run, .. }) if happened == Happened::Attributes => {
                    // The reason why a rejected file could not be read may be gone.
                    let is_rejected = |entry: &Entry| matches!(entry.phase, Phase::Rejected(_));
                    touched.extend(self.runs.get(&run).is_some_and(is_rejected).then_some(run));
                }
                Named::Fetcher(FileName { run, growing }) => {
                    self.runs.entry(run.clone()).or_default().note(growing, happened);
                    touched.insert(run);
                }
                Named::Bad(_) if happened == Happened::Attributes => {}
                Named::Bad(reason) => self.note_bad_name(&name, happened, &reason.to_string()),
                Named::Hidden => self.faults.skip_hidden(name),
                Named::Other => {}
            }
        }
        touched
    }

    /// Lists the directory. Returns all runs to look at: those there, and those known.
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
        self.take_back_absent(&names);
        for name in names {
            match FileName::parse(&name) {
                Named::Fetcher(file) => drop(self.runs.entry(file.run).or_default()),
                Named::Bad(reason) => self.reject_name(&name, &reason.to_string()),
                Named::Hidden => self.faults.skip_hidden(name),
                Named::Other => {}
            }
        }
        self.runs.keys().cloned().collect()
    }

    pub(super) fn rescan(&mut self, ctx: &mut Context<Self>) {
        let all = self.scan();
        self.refresh(all, ctx);
    }

    /// Looks at the runs and acts on what is there. Nothing else is handled before the new ones are registered: if the
    /// same message asks for another look, that comes afterwards.
    pub(super) fn refresh(&mut self, mut runs: BTreeSet<Run>, ctx: &mut Context<Self>) {
        if let Some(postponed) = &mut self.postponed {
            return postponed.append(&mut runs);
        }
        let (mut fresh, mut gone) = (BTreeSet::new(), BTreeSet::new());
        for drains in 0.. {
            self.sort(runs, &mut fresh, &mut gone, ctx);
            if gone.is_empty() || drains == DRAINS_MAX {
                break;
            }
            // A run that replaces another was there before that one went, so its events have arrived by now.
            runs = self.take_events();
            if runs.is_empty() {
                break;
            }
        }
        self.add_unregistered(&mut fresh);
        // New runs first: a fetcher whose run was replaced keeps its id (spec 4, "At start").
        self.register(fresh.into_iter().collect(), ctx);
        // A file removed from a directory that was moved or unmounted is not removed from the input.
        if self.open.as_ref().is_some_and(Open::speaks_for_the_input) {
            for run in gone {
                self.drop_run(&run, ctx);
            }
        }
        self.send_faults(ctx);
    }

    /// Sorts runs into those to register, those that are gone, and those that were handled.
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
                Some(false) => {
                    fresh.remove(&run);
                    gone.insert(run);
                }
                Some(true) => {
                    gone.remove(&run);
                    if self.act_on(&run, ctx) {
                        fresh.insert(run);
                    }
                }
            }
        }
    }

    /// Looks at both names of a run: is its file there? `None` if that could not be done: the run stays as it is.
    fn look_at(&mut self, run: &Run) -> Option<bool> {
        let directory = Rc::clone(&self.open.as_ref()?.directory);
        let names = [true, false].map(|growing| OsString::from(run.file_name(growing)));
        let seen = match both_names(&directory, &names) {
            Ok(seen) => seen,
            Err(error) => {
                if let Some(suppressed_before) = self.warnings.admit(Instant::now()) {
                    warn!(%run, %error, suppressed_before, "Cannot look at a fetcher file; trying again later.");
                }
                return None;
            }
        };
        let [growing, whole] = [0, 1].map(|at| self.accept(&names[at], &seen[at]));
        let entry = self.runs.get_mut(run)?;
        entry.names.saw(growing, whole);
        let emptied = std::mem::take(&mut entry.names.emptied) && entry.known;
        Some(entry.names.file().is_some() && !emptied)
    }

    /// Moves a run whose file is there on to its next phase. True if it must be registered.
    fn act_on(&mut self, run: &Run, ctx: &mut Context<Self>) -> bool {
        let Some(entry) = self.runs.get_mut(run) else {
            return false;
        };
        let Some(file) = entry.names.file() else {
            return false;
        };
        if entry.names.is_newly_doubled() {
            let file = run.file_name(true);
            warn!(file, "Left out: the complete file of the same run is there.");
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
                // A changed file gets all its tries again; one that is only looked at again gets one.
                entry.failures = if failed.is_some() { 0 } else { entry.failures };
                return true;
            }
            Phase::Stored(stored) => {
                let stored = stored.clone();
                self.begin(run, stored, ctx);
            }
            _ => {}
        }
        false
    }
}

/// Looks at the growing and the complete name. A rename from one to the other in between is never missed in
/// this order; the third look finds one the other way.
fn both_names(directory: &Directory, [growing, whole]: &[OsString; 2]) -> io::Result<[Seen; 2]> {
    let first = directory.look(growing)?;
    let second = directory.look(whole)?;
    let neither = first == Seen::Absent && second == Seen::Absent;
    Ok([if neither { directory.look(growing)? } else { first }, second])
}
