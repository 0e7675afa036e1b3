//! What the daemon has checked out of the spool's queue [`QUEUE`]: takes entries, keeps them while their
//! jobs wait, and ends them. Plain blocking code on the spool; it knows no actor and no store.
//!
//! Used by the [`intake`](super), which calls it on a thread for blocking work.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use shiftboss_actors::fetcher_file::{Line, LineReader};
use shiftboss_actors::model::Row;
use tracing::{info, warn};

use crate::spool::{
    EntryName, Guard, Order, QueueName, Reader, Result, Spool, SpoolError, Stop, Taken,
};

/// The queue whose entries are tasks.
pub const QUEUE: &str = "tasks";
/// Entries that are checked out, and so in the daemon's queue, at once. Each second they are all looked
/// at.
pub const ENTRIES_MAX: usize = 1_024;
/// Entries that are checked out in one round, and that are ended: each costs a sync.
pub const ROUND_MAX: usize = 64;
/// How often it is looked whether the entries are still there.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// An entry that is checked out, and its task.
#[derive(Debug)]
struct Held {
    guard: Guard,
    row: Row,
    /// Since it was checked out, it was seen to be the one that is in the daemon's queue.
    confirmed: bool,
}

/// The entries that this process has. Dropped, it gives them back, untried.
#[derive(Debug)]
pub struct Desk {
    spool: Spool,
    queue: QueueName,
    reader: Reader,
    stop: Stop,
    held: BTreeMap<EntryName, Held>,
    /// Entries that are no task, and cannot be moved: kept, so that they stand in nobody's way.
    stuck: Vec<Guard>,
    looked: Instant,
}

impl Desk {
    /// A desk with nothing on it. Waits end with `stop`.
    ///
    /// # Errors
    /// When the queue cannot be made.
    pub fn new(spool: Spool, stop: Stop) -> Result<Self> {
        let queue = QueueName::new(QUEUE).map_err(|error| unreachable_name(&spool, error))?;
        let reader = spool.reader(&queue, Order::Strict)?;
        spool.take_requests()?;
        let (held, looked) = (BTreeMap::new(), Instant::now());
        Ok(Self { spool, queue, reader, stop, held, stuck: Vec::new(), looked })
    }

    /// Takes entries as far as there is room, waiting for the first one at most so long. Returns how
    /// many.
    ///
    /// # Errors
    /// When the system refuses; what was taken before is kept.
    pub fn take(&mut self, wait: Duration) -> Result<usize> {
        let out = self.held.len() + self.stuck.len();
        let room = ENTRIES_MAX.saturating_sub(out).min(ROUND_MAX);
        if room == 0 {
            let _ = self.stop.wait(wait);
            return Ok(0);
        }
        let mut taken = 0;
        let mut next = match self.reader.dequeue(&self.stop, Some(wait))? {
            Taken::Entry(guard) => Some(guard),
            Taken::Stopped | Taken::TimedOut => None,
        };
        while let Some(guard) = next {
            taken += 1;
            self.hold(guard)?;
            next = if taken < room { self.reader.dequeue_available()? } else { None };
        }
        Ok(taken)
    }

    /// Checks out entries that are known to be in the daemon's queue, from before its start; returns
    /// those that are not in the spool's queue any more.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn take_known(&mut self, names: Vec<EntryName>) -> Result<Vec<EntryName>> {
        let mut gone = Vec::new();
        for name in names {
            match self.spool.try_checkout(&self.queue, &name) {
                Ok(Some(guard)) => self.hold(guard)?,
                // Perhaps a dead process's, who has it or was about to: it is to be had soon. Forgotten now,
                // it would be done again.
                Ok(None) if self.spool.is_in(&self.queue, &name)? => {}
                Ok(None) | Err(SpoolError::SetAside { .. }) => gone.push(name),
                Err(error) => return Err(error),
            }
        }
        Ok(gone)
    }

    /// Keeps an entry, or lays it aside if its metadata is no task.
    fn hold(&mut self, guard: Guard) -> Result<()> {
        let name = guard.name().clone();
        match task(guard.metadata()) {
            Ok(row) => {
                self.held.insert(name, Held { guard, row, confirmed: false });
                Ok(())
            }
            Err(reason) => {
                let to = self.spool.options().dead_letter.clone();
                if self.spool.is_in(&to, &name)? {
                    warn!(entry = %name, reason, queue = %to, "An entry of the spool is no task, and another of its name is where it would be moved; it is kept until the daemon ends.");
                    self.stuck.push(guard);
                    return Ok(());
                }
                guard.move_to(&to)?;
                warn!(entry = %name, reason, queue = %to, "An entry of the spool is no task (its metadata says the task: spool put --meta 'KEY PAYLOAD'); it was moved.");
                Ok(())
            }
        }
    }

    /// These entries are in the daemon's queue, and not others that had their names before.
    pub fn confirm(&mut self, names: &BTreeSet<EntryName>) {
        for name in names {
            if let Some(held) = self.held.get_mut(name) {
                held.confirmed = true;
            }
        }
    }

    /// Ends the entries whose job was done: they leave the spool. Those that are not confirmed, and all
    /// beyond [`ROUND_MAX`], are left for a later round.
    ///
    /// # Errors
    /// When the system refuses: the entry is still there, and is ended later.
    pub fn complete(&mut self, names: &BTreeSet<EntryName>) -> Result<Vec<EntryName>> {
        let mut completed = Vec::new();
        for name in names {
            if completed.len() == ROUND_MAX {
                break;
            }
            if !self.held.get(name).is_some_and(|held| held.confirmed) {
                continue;
            }
            let Some(held) = self.held.remove(name) else { continue };
            match held.guard.complete() {
                Ok(()) => completed.push(name.clone()),
                Err(SpoolError::Lost { .. }) => {
                    warn!(entry = %name, "The claim of an entry was lost before its job was done.");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(completed)
    }

    /// Gives up the entries that are checked out no more, and returns the names of those that somebody took
    /// away. Those that are in the queue again, given back by hand or by others who took this process for
    /// dead, are not gone: they are known, and had again. Once a second; else none.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn vanished(&mut self) -> Result<Vec<EntryName>> {
        if self.looked.elapsed() < LOOK_EVERY {
            return Ok(Vec::new());
        }
        self.looked = Instant::now();
        let mut lost = Vec::new();
        for name in self.held.keys() {
            if !self.spool.is_checked_out(&self.queue, name)? {
                lost.push(name.clone());
            }
        }
        let mut gone = Vec::new();
        for name in lost {
            // There is nothing to give back but the claim, if that is still ours.
            let _ = self.held.remove(&name).map(|held| held.guard.release());
            if self.spool.is_in(&self.queue, &name)? {
                warn!(entry = %name, "An entry was given back by somebody else; it is taken again.");
            } else {
                info!(entry = %name, "An entry was removed from the spool: its job leaves the queue.");
                self.spool.remove_remains(&name)?;
                gone.push(name);
            }
        }
        Ok(gone)
    }

    /// The entries that somebody asks for, and that are here. For others there is nothing to wait for.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn requests(&mut self) -> Result<Vec<EntryName>> {
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            self.spool.requests()?.into_iter().partition(|name| self.holds(name));
        elsewhere.iter().try_for_each(|name| self.spool.answer(name, None))?;
        Ok(here)
    }

    /// Hands over those that are in the daemon's queue no more, and says of the others that they are not
    /// to be had.
    ///
    /// # Errors
    /// When the system refuses: those that were not handed over are given back.
    pub fn hand_over(&mut self, answers: Vec<(EntryName, bool)>) -> Result<()> {
        for (name, is_out) in answers {
            let held = if is_out { self.held.remove(&name) } else { None };
            if held.is_some() {
                info!(entry = %name, "An entry was asked for: its job leaves the queue.");
            }
            self.spool.answer(&name, held.map(|held| held.guard))?;
        }
        Ok(())
    }

    /// Whether this process has an entry.
    #[must_use]
    pub fn holds(&self, name: &EntryName) -> bool {
        self.held.contains_key(name)
    }

    /// All that this process has, by name: the task, and whether it is confirmed.
    pub fn rows(&self) -> impl Iterator<Item = (&EntryName, &Row, bool)> {
        self.held.iter().map(|(name, held)| (name, &held.row, held.confirmed))
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let held = std::mem::take(&mut self.held).into_values().map(|held| held.guard);
        for guard in held.chain(std::mem::take(&mut self.stuck)) {
            let name = guard.name().clone();
            if let Err(error) = guard.release() {
                warn!(entry = %name, %error, "An entry could not be given back.");
            }
        }
    }
}

/// [`QUEUE`] is a name; were it none, that is said rather than panicked about.
fn unreachable_name(spool: &Spool, error: crate::spool::NameError) -> SpoolError {
    SpoolError::Io {
        doing: "name the queue of tasks in",
        path: spool.path().into(),
        source: std::io::Error::other(error),
    }
}

/// The task that an entry's metadata says: one line, as in a fetcher file.
///
/// # Errors
/// Why it is none.
fn task(metadata: &[u8]) -> std::result::Result<Row, String> {
    let (mut lines, mut reader) = (Vec::new(), LineReader::new(true, 0));
    reader.feed(metadata, &mut lines);
    reader.finish(&mut lines);
    let mut lines = lines.into_iter();
    match (lines.next(), lines.next()) {
        (Some(Line::Row(row)), None) => Ok(row),
        (Some(Line::Skipped { reason, .. }), None) => Err(reason.to_string()),
        (None, _) => Err("the metadata is empty: a line with a key and a payload is needed".into()),
        (Some(_), Some(_)) => Err("the metadata has more than one line".into()),
    }
}

#[cfg(test)]
#[path = "desk_tests.rs"]
mod tests;
