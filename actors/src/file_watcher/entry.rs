//! What the watcher knows of one fetcher run. Plain state; the watcher's actor acts on it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use actix::prelude::*;
use tokio::time::Instant;

use crate::directory::FileState;
use crate::file_tail::{CatchUp, Changed, StopTail};
use crate::run_reader::Target;
use crate::store::StoredRun;
use crate::watch::Happened;
use shiftboss_protocol::fetcher_file::FileName;

/// A complete name that nobody was seen to write counts as closed after this long unchanged.
const STEADY: Duration = Duration::from_secs(2);

/// How a started tail is spoken to.
#[derive(Clone)]
pub struct TailLink {
    /// Tells it what to read from now on.
    pub changed: Recipient<Changed>,
    /// Makes it store what is unread.
    pub catch_up: Recipient<CatchUp>,
    /// Ends it.
    pub stop: Recipient<StopTail>,
}

/// Where a run stands between its file and the store.
pub(super) enum Phase {
    /// To be registered.
    New,
    /// The store is registering it.
    Registering,
    /// Registered; waits until fewer tails are running.
    Waiting(StoredRun),
    /// A tail reads it.
    Tailing(TailLink),
    /// Its tail failed; a new one is started after a delay.
    Delayed,
    /// It was read to its end, when its file was so.
    Complete(Option<FileState>),
    /// All that is there was read, and others waited for a tail; read on when there is more.
    Idle(Option<FileState>),
    /// It failed too often; tried again when its file is no longer so.
    Rejected(Option<FileState>),
    /// Its rows are being deleted.
    Deleting,
}

/// One run: its names in the directory and its phase.
pub(super) struct Entry {
    pub(super) name: FileName,
    pub(super) phase: Phase,
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
    writing: bool,
    /// `NAME.txt` is not known to be closed, and has been unchanged since then.
    steady_since: Option<(FileState, Instant)>,
    /// The store knows it, and learns when it goes.
    pub(super) known: bool,
    /// It waits in the watcher's queue for a free tail.
    pub(super) queued: bool,
    /// It waits in the watcher's queue of runs whose files are to be compared with what was read.
    pub(super) unverified: bool,
    /// It is its turn: a tail is to be started for that, if its file rests.
    pub(super) due: bool,
    /// How its file was at the looks since then.
    resting: Option<(FileState, Instant)>,
    /// Tails that failed in a row without storing anything.
    pub(super) failures: u32,
    /// Tells a tail's end from that of an earlier tail of the run.
    pub(super) generation: u64,
    /// The name under which its file is noted as rejected, until a tail has read from it.
    pub(super) rejected_name: Option<String>,
    /// Its tail has read from the file.
    pub(super) sound: Rc<Cell<bool>>,
    /// How often its tail was notified that the file may have changed.
    notified: u64,
    /// `NAME.txt` was written to, made or closed, and no tail was started or notified since: whether
    /// its content is still what was stored, only its content can tell.
    pub(super) touched: bool,
    /// Bytes of `NAME.txt` were written since it was last read to its end.
    written: bool,
    /// Its last name was removed since the last look: what is there now is a new file.
    pub(super) emptied: bool,
    /// The number of the move that took its last name away.
    moved_away: Option<u32>,
    /// Both names were there at once, and that was logged.
    doubled: bool,
    /// It was logged that it is complete: a look at what was read is no news.
    pub(super) ended: bool,
}

impl Entry {
    pub(super) fn new(name: FileName) -> Self {
        Self {
            name,
            phase: Phase::New,
            growing: None,
            whole: None,
            has_growing: false,
            has_whole: false,
            closed: false,
            writing: false,
            steady_since: None,
            known: false,
            queued: false,
            unverified: false,
            due: false,
            resting: None,
            failures: 0,
            generation: 0,
            rejected_name: None,
            sound: Rc::default(),
            notified: 0,
            touched: false,
            written: false,
            emptied: false,
            moved_away: None,
            doubled: false,
            ended: false,
        }
    }

    /// The file to be read now, `None` when there is none. The complete name wins.
    pub(super) fn file(&self) -> Option<FileState> {
        self.whole.or(self.growing)
    }

    /// There is a file, and the store still has to forget an earlier one of the same name first.
    pub(super) fn is_held_up(&self) -> bool {
        (self.has_growing || self.has_whole) && matches!(self.phase, Phase::New | Phase::Deleting)
    }

    /// What a tail is to read.
    pub(super) fn target(&self) -> Target {
        Target { growing_name: self.whole.is_none(), complete: self.whole.is_some() && self.closed }
    }

    /// The name of the file to be read.
    pub(super) fn file_name(&self) -> String {
        self.name.spelled(self.whole.is_none())
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
            self.touched |= there;
            self.written |= self.writing;
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

    /// Takes over what a look at both names found.
    pub(super) fn saw(&mut self, growing: Option<FileState>, whole: Option<FileState>) {
        // Finished by link and unlink: it is the very file that grew.
        let finished = self.growing.is_some_and(|before| {
            growing.is_none() && whole.is_some_and(|now| now.is_same_file(&before))
        });
        self.closed = whole.is_some() && (self.closed || finished);
        (self.growing, self.whole) = (growing, whole);
        (self.has_growing, self.has_whole) = (growing.is_some(), whole.is_some());
        self.note_rest();
    }

    /// Forgets who is writing: events were lost.
    pub(super) fn forget_writer(&mut self) {
        self.writing = false;
    }

    /// Tells the run's tail, if it has one, that the file may have changed.
    pub(super) fn notify_tail(&mut self) {
        let target = self.target();
        if let Phase::Tailing(tail) = &self.phase {
            self.notified += 1;
            self.touched = false;
            tail.changed.do_send(Changed { target, number: self.notified });
        }
    }

    /// A tail is about to look into the file. Returns whether bytes were written to it since it
    /// was last read to its end.
    pub(super) fn begin_tail(&mut self) -> bool {
        self.notified = 0;
        self.sound = Rc::default();
        self.touched = false;
        self.resting = None;
        std::mem::take(&mut self.written)
    }

    /// Its tail has read all and ended. A notification after that did not reach it.
    pub(super) fn tail_is_done(&mut self, heard: u64) {
        self.failures = 0;
        self.touched |= heard < self.notified;
        self.written &= self.touched;
    }

    /// Whether its file may hold other than when it was `read`.
    pub(super) fn is_changed_since(&mut self, read: Option<FileState>) -> bool {
        let same = read.zip(self.file()).is_some_and(|(read, now)| read.is_as_read(&now));
        self.touched |= !same;
        self.touched
    }

    /// Whether its writer is done with it, and it has been as it is for a while since a tail last began.
    pub(super) fn is_rested(&self) -> bool {
        let rests = |(_, since): &(FileState, Instant)| since.elapsed() >= STEADY;
        self.target().complete && self.resting.as_ref().is_some_and(rests)
    }

    fn note_rest(&mut self) {
        let same = |(before, _): &(FileState, Instant)| Some(*before) == self.whole;
        if !self.resting.as_ref().is_some_and(same) {
            self.resting = self.whole.map(|now| (now, Instant::now()));
        }
    }

    /// Whether time alone may close its file.
    pub(super) fn is_unsettled(&self) -> bool {
        self.whole.is_some() && !self.closed && !self.writing
    }

    /// A complete name that nobody was seen writing to (it was linked here, or found by a scan)
    /// counts as closed when it has been as it is for a while.
    pub(super) fn settle(&mut self) {
        let Some(file) = self.whole.filter(|_| self.is_unsettled()) else {
            self.steady_since = None;
            return;
        };
        let steady = match self.steady_since {
            Some((before, since)) if before == file => since.elapsed() >= STEADY,
            _ => {
                self.steady_since = Some((file, Instant::now()));
                is_old(&file)
            }
        };
        self.closed = steady;
    }

    /// True the first time that both names are there.
    pub(super) fn is_newly_doubled(&mut self) -> bool {
        let both = self.growing.is_some() && self.whole.is_some();
        !std::mem::replace(&mut self.doubled, both) && both
    }
}

/// Whether the file was last written longer than [`STEADY`] ago by the wall clock.
fn is_old(file: &FileState) -> bool {
    let written = u64::try_from(file.modified / 1_000_000_000).unwrap_or(0);
    (SystemTime::UNIX_EPOCH + Duration::from_secs(written)).elapsed().is_ok_and(|age| age > STEADY)
}
