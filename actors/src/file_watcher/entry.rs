//! What the watcher knows of one fetcher run: its phase, and of its file's two names, `NAME.txt.part` and `NAME.txt`,
//! which are there and whether the writer is done. Fed with events and looks. Plain state; the watcher's actor
//! acts on it.

use std::rc::Rc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::phase::Phase;
use super::watch::Happened;
use crate::directory::FileState;
use crate::file_tail::TailLink;
use crate::run_reader::Target;
use shiftboss_queue::operation::StoredRun;

/// A complete name that was not seen being written counts as closed after this long unchanged.
const STEADY: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(super) struct Entry {
    pub(super) phase: Phase,
    pub(super) names: Names,
    /// The store knows the run, and must learn when it goes.
    pub(super) known: bool,
    /// Once its file rests, it must be compared with what was read of it.
    pub(super) unverified: bool,
    /// It is its turn: a tail is started for the comparison if the file rests.
    pub(super) due: bool,
    /// Number of tails in a row that failed without storing anything.
    pub(super) failures: u32,
    /// Link to its tail, or to the last one that it had.
    pub(super) tail: Rc<TailLink>,
    /// `NAME.txt` was written to, made or closed, and no tail was started or notified since: only reading it shows
    /// whether its content is still what was stored.
    pub(super) touched: bool,
    /// Bytes of `NAME.txt` were written since it was last read to its end.
    pub(super) written: bool,
    /// Its completion was logged already: a later comparison is not logged again.
    pub(super) ended: bool,
}

impl Entry {
    /// There is a file, but it could not be looked at yet, or the store must first forget an earlier one of the same
    /// name.
    pub(super) fn is_blocked(&self) -> bool {
        let is_there = self.names.has_growing || self.names.has_whole;
        is_there && matches!(self.phase, Phase::New | Phase::Deleting)
    }

    /// Its file is there, and it must be registered.
    pub(super) fn is_new(&self) -> bool {
        matches!(self.phase, Phase::New) && self.names.file().is_some()
    }

    /// The store has it, as far as is known.
    pub(super) fn is_stored(&self) -> bool {
        use Phase::{Complete, Idle, Queued, Stored, Tailing};
        matches!(self.phase, Stored(_) | Queued(_) | Tailing(_) | Complete(_) | Idle(_))
    }

    /// Whether more of its file was read than the store has, which means that the store was restored. A file that was
    /// not looked at yet was not read.
    pub(super) fn is_ahead_of(&self, stored: &StoredRun) -> bool {
        match self.phase {
            Phase::Stored(_) => false,
            Phase::Complete(_) if !stored.complete => true,
            _ => self.tail.is_elsewhere(stored.position),
        }
    }

    /// Takes an event in, in the order in which they happened.
    pub(super) fn note(&mut self, growing: bool, happened: Happened) {
        self.names.note(growing, happened);
        if !growing {
            self.touched |= !matches!(happened, Happened::Removed | Happened::MovedAway(_));
            self.written |= happened == Happened::Modified;
        }
    }

    /// Notifies the run's tail, if it has one, that the file may have changed.
    pub(super) fn notify_tail(&mut self) {
        if matches!(self.phase, Phase::Tailing(_)) {
            self.touched = false;
            self.tail.notify(self.names.target());
        }
    }

    /// A tail is about to look into the file. Returns whether bytes were written to it since it
    /// was last read to its end.
    pub(super) fn begin_tail(&mut self) -> bool {
        self.tail = TailLink::new(self.names.target());
        self.touched = false;
        self.unverified = false;
        self.names.begin_tail();
        std::mem::take(&mut self.written)
    }

    /// Its tail has read all and ended. A notification after that did not reach it.
    pub(super) fn tail_is_done(&mut self) {
        self.failures = 0;
        self.touched |= self.tail.is_unheard();
        self.written &= self.touched;
    }

    /// Whether its file may hold other than when it was `read`.
    pub(super) fn is_changed_since(&mut self, read: Option<FileState>) -> bool {
        let same = read.zip(self.names.file()).is_some_and(|(read, now)| read.is_as_read(&now));
        self.touched |= !same;
        self.touched
    }
}

#[derive(Default)]
pub(super) struct Names {
    /// `NAME.txt.part`, when last looked at.
    growing: Option<FileState>,
    /// `NAME.txt`, when last looked at.
    whole: Option<FileState>,
    /// Whether the names are there, after the last look and the events since.
    has_growing: bool,
    has_whole: bool,
    /// The writer of `NAME.txt` is done with it.
    closed: bool,
    /// Somebody was seen writing to `NAME.txt`, and not yet closing it.
    pub(super) writing: bool,
    /// How `NAME.txt` was at all looks since then, or since a tail began.
    unchanged: Option<(FileState, Instant)>,
    /// Its last name was removed since the last look: what is there now is a new file.
    pub(super) emptied: bool,
    /// The number of the move that took its last name away.
    moved_away: Option<u32>,
    /// Both names were there at once, and that was logged.
    doubled: bool,
}

impl Names {
    /// The file to be read now, `None` when there is none. The complete name wins.
    pub(super) fn file(&self) -> Option<FileState> {
        self.whole.or(self.growing)
    }

    pub(super) fn target(&self) -> Target {
        Target { growing_name: self.whole.is_none(), complete: self.whole.is_some() && self.closed }
    }

    /// Takes an event in, in the order in which they happened.
    pub(super) fn note(&mut self, growing: bool, happened: Happened) {
        self.note_move(happened);
        let there = !matches!(happened, Happened::Removed | Happened::MovedAway(_));
        if growing {
            self.has_growing = there;
            // Finished by link and unlink. By copying, it would have been written to.
            self.closed |= !there && self.has_whole && !self.writing;
        } else {
            self.has_whole = there;
            self.closed = matches!(happened, Happened::Closed | Happened::MovedHere(_));
            self.writing = happened == Happened::Modified;
        }
        if !self.has_growing && !self.has_whole {
            match happened {
                Happened::Removed => self.emptied = true,
                Happened::MovedAway(number) => self.moved_away = Some(number),
                _ => {}
            }
        }
    }

    /// The last name was moved away: half of a rename to the other name, or a file that left. What
    /// comes here by another way than that same move is another file.
    fn note_move(&mut self, happened: Happened) {
        let Some(away) = self.moved_away else {
            return;
        };
        // Its writer may be heard of between the two halves.
        if let Happened::MovedHere(_) | Happened::Created = happened {
            self.emptied |= happened != Happened::MovedHere(away);
            self.moved_away = None;
        }
    }

    /// Takes over what a look at both names found. A complete name counts as closed, too, when nobody was seen
    /// writing to it and it has been as it is for a while.
    pub(super) fn saw(&mut self, growing: Option<FileState>, whole: Option<FileState>) {
        // Finished by link and unlink: it is the very file that grew.
        let finished = self.growing.is_some_and(|before| {
            growing.is_none() && whole.is_some_and(|now| now.is_same_file(&before))
        });
        self.closed = whole.is_some() && (self.closed || finished);
        (self.growing, self.whole) = (growing, whole);
        (self.has_growing, self.has_whole) = (growing.is_some(), whole.is_some());
        if self.unchanged.map(|(before, _)| before) != whole {
            self.unchanged = whole.map(|now| (now, Instant::now()));
        }
        let is_steady = |now: FileState| is_old(&now) || self.is_unchanged();
        self.closed |= !self.writing && whole.is_some_and(is_steady);
    }

    fn is_unchanged(&self) -> bool {
        self.unchanged.is_some_and(|(_, since)| since.elapsed() >= STEADY)
    }

    /// A tail begins: the time that the file rests counts from here.
    pub(super) fn begin_tail(&mut self) {
        self.unchanged = self.whole.map(|now| (now, Instant::now()));
    }

    /// Whether its writer is done with it, and it has been as it is for a while since a tail last began.
    pub(super) fn is_rested(&self) -> bool {
        self.target().complete && self.is_unchanged()
    }

    /// Whether time alone may close its file.
    pub(super) fn is_unsettled(&self) -> bool {
        self.whole.is_some() && !self.closed && !self.writing
    }

    /// True the first time that both names are there.
    pub(super) fn is_newly_doubled(&mut self) -> bool {
        let both = self.growing.is_some() && self.whole.is_some();
        !std::mem::replace(&mut self.doubled, both) && both
    }
}

/// Whether the file was last written longer than [`STEADY`] ago by the wall clock.
fn is_old(file: &FileState) -> bool {
    let written = u64::try_from(file.times.modified / 1_000_000_000).unwrap_or(0);
    (SystemTime::UNIX_EPOCH + Duration::from_secs(written)).elapsed().is_ok_and(|age| age > STEADY)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is in a file that was heard of, and cannot be looked at, nobody knows.
    #[test]
    fn what_was_heard_of_blocks() {
        let mut entry = Entry::default();
        assert!(!entry.is_blocked());
        entry.note(false, Happened::Created);
        assert!(entry.is_blocked());
        entry.note(false, Happened::Removed);
        assert!(!entry.is_blocked());
    }
}
