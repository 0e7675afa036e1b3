//! Starting tails, and what follows when one ends: the run is complete, or the tail is started again after a
//! growing delay, or, after some tries, its file is rejected. A complete file is looked into once more when it rests;
//! its tail compares it, and handles a change.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use actix::prelude::*;
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

use super::FileWatcherActor;
use super::entry::Entry;
use super::phase::Phase;
use crate::directory::FileState;
use crate::file_tail::{FileTailActor, Tail, TailEnd, TailLink};
use crate::run_reader::RunReader;
use shiftboss_protocol::model::Run;
use shiftboss_queue::operation::StoredRun;

/// Tails at once; each holds a descriptor and up to a batch of rows.
const TAILS_MAX: usize = 1024;
/// A file whose tail failed this often without storing anything is rejected.
const FAILURES_MAX: u32 = 5;
/// Most runs whose comparison begins in one second. A look costs microseconds, and registering a little more.
const COMPARED_PER_TICK: usize = 256;
/// Delay before the first restart; doubled with each failure.
const RESTART_DELAY: Duration = Duration::from_millis(100);

/// Starts a tail. A parameter of the watcher, so that its tests can start one that fails.
pub type StartTail = Box<dyn Fn(Tail) -> JoinHandle<()>>;

/// A tail in its own task, whose handle reports a panic; actix itself would not.
pub fn start_tail(tail: Tail) -> JoinHandle<()> {
    actix::spawn(Context::new().into_future(FileTailActor(Some(tail))))
}

impl FileWatcherActor {
    /// A run is registered as `stored`: starts its tail, unless nothing is left to read.
    pub(super) fn begin(&mut self, run: &Run, stored: StoredRun, ctx: &mut Context<Self>) {
        let Some(entry) = self.runs.get_mut(run) else {
            return;
        };
        entry.tail.stored.set(stored.position);
        let file = entry.names.file();
        let read = is_as_long(&stored, file);
        let whole = !entry.names.target().growing_name;
        let verified = is_verified(&stored, file);
        let settled = stored.complete && read && whole && !entry.touched;
        if settled && (verified || !entry.names.is_rested()) {
            entry.phase.enter(Phase::Complete(file));
            entry.unverified = !verified;
        } else if self.tails < TAILS_MAX {
            self.start_tail(run, stored, ctx);
        } else {
            entry.phase.enter(Phase::Queued(stored));
            self.queue.push_back(run.clone());
            self.crowd();
        }
    }

    fn start_tail(&mut self, run: &Run, stored: StoredRun, ctx: &mut Context<Self>) {
        let Some(entry) = self.runs.get_mut(run) else {
            return;
        };
        let Some(open) = &self.open else {
            // The directory was lost meanwhile: the run is registered again when it is back.
            entry.phase.enter(Phase::New);
            return;
        };
        self.tails += 1;
        let as_long = stored.complete && is_as_long(&stored, entry.names.file());
        let (rested, position) = (entry.names.is_rested(), stored.position);
        let mut reader = RunReader::new(Rc::clone(&open.directory), stored);
        if entry.begin_tail() && as_long {
            debug!(%run, "Its complete file was written to and is as long: reading it anew.");
            reader.read_anew();
        } else if as_long && rested {
            reader.reconcile();
        }
        let link = Rc::clone(&entry.tail);
        link.stored.set(position);
        let (storage, shared) = (self.storage.clone(), Rc::clone(&self.shared));
        let tail = (self.start_tail)(Tail::new(reader, storage, shared, Rc::clone(&link)));
        entry.phase.enter(Phase::Tailing(tail.abort_handle()));
        let run = run.clone();
        ctx.spawn(tail.into_actor(self).map(move |_, watcher, ctx| {
            watcher.tails -= 1;
            watcher.tail_ended(&run, &link, ctx);
            watcher.start_next(ctx);
        }));
    }

    /// Asks the tails that have nothing to read for their places.
    fn crowd(&mut self) {
        if self.shared.crowded.replace(true) {
            return;
        }
        self.runs.values_mut().for_each(Entry::notify_tail);
    }

    /// Gives the free place to the run that has waited longest.
    fn start_next(&mut self, ctx: &mut Context<Self>) {
        while let Some(run) = self.queue.pop_front() {
            if let Some(Phase::Queued(stored)) = self.runs.get(&run).map(|entry| &entry.phase) {
                let stored = stored.clone();
                return self.start_tail(&run, stored, ctx);
            }
        }
        self.shared.crowded.set(false);
    }

    fn tail_ended(&mut self, run: &Run, tail: &Rc<TailLink>, ctx: &mut Context<Self>) {
        let end = tail.take_end();
        let Some(entry) = self.runs.get_mut(run) else {
            return;
        };
        // An earlier tail of the run may end late.
        if !matches!(entry.phase, Phase::Tailing(_)) || !Rc::ptr_eq(&entry.tail, tail) {
            return;
        }
        match end {
            Some(TailEnd::Read { complete, state }) => {
                if complete && !std::mem::replace(&mut entry.ended, true) {
                    info!(%run, "The run is complete.");
                }
                entry.phase.enter(if complete { Phase::Complete } else { Phase::Idle }(state));
                entry.tail_is_done();
                entry.unverified |= complete;
                // It may have grown between its last byte and now.
                self.refresh(BTreeSet::from([run.clone()]), ctx);
            }
            Some(TailEnd::Failed { reason, progress }) => self.restart(run, reason, progress, ctx),
            None => self.restart(run, "its tail panicked".to_owned(), false, ctx),
        }
    }

    fn restart(&mut self, run: &Run, reason: String, progress: bool, ctx: &mut Context<Self>) {
        let Some(entry) = self.runs.get_mut(run) else {
            return;
        };
        entry.failures = if progress { 1 } else { entry.failures + 1 };
        // It may have been notified of content that it has not stored.
        entry.touched = true;
        if entry.failures > FAILURES_MAX {
            entry.phase.enter(Phase::Rejected(entry.names.file()));
            self.reject(run, &reason);
            // It may have changed since it was last looked at.
            return self.refresh(BTreeSet::from([run.clone()]), ctx);
        }
        let delay = RESTART_DELAY * 2_u32.saturating_pow(entry.failures - 1);
        warn!(%run, reason, ?delay, "Reading a run failed; starting again.");
        entry.phase.enter(Phase::Delayed);
        let run = run.clone();
        ctx.run_later(delay, move |watcher, ctx| watcher.retry(run, ctx));
    }

    /// Gives each rejected file one more try: the reason why it could not be read may be gone.
    pub(super) fn retry_rejected(&mut self) {
        for entry in self.runs.values_mut() {
            if let Phase::Rejected(failed) = &mut entry.phase {
                *failed = None;
                entry.failures = FAILURES_MAX;
            }
        }
    }

    /// Once a second: starts tails for complete files that rest and must be compared with what was read of them. That
    /// is so after each reading, and after any change of their times, also while no daemon ran (spec 4, "Life").
    pub(super) fn reconcile(&mut self, ctx: &mut Context<Self>) {
        let is_next = |(_, entry): &(&Run, &mut Entry)| {
            let is_complete = matches!(entry.phase, Phase::Complete(_));
            entry.unverified && is_complete && entry.names.is_rested()
        };
        let mut turn = BTreeSet::new();
        for (run, entry) in self.runs.iter_mut().filter(is_next).take(COMPARED_PER_TICK) {
            entry.due = true;
            turn.insert(run.clone());
        }
        self.refresh(turn, ctx);
    }

    fn retry(&mut self, run: Run, ctx: &mut Context<Self>) {
        if let Some(entry) = self.runs.get_mut(&run)
            && matches!(entry.phase, Phase::Delayed)
        {
            debug!(%run, "Starting again from the last stored position.");
            entry.phase.enter(Phase::New);
            self.refresh(BTreeSet::from([run]), ctx);
        }
    }
}

/// Whether a file is the one that was read, and ends where the reading ended.
fn is_as_long(stored: &StoredRun, file: Option<FileState>) -> bool {
    stored.position.zip(file).is_some_and(|(at, file)| {
        (at.device, at.inode, at.offset) == (file.device, file.inode, file.length)
    })
}

/// Whether a file holds exactly what is stored of it, as far as its times show.
fn is_verified(stored: &StoredRun, file: Option<FileState>) -> bool {
    let verified = stored.position.and_then(|at| at.verified);
    !stored.stale && verified.is_some() && verified == file.map(|file| file.times)
}
