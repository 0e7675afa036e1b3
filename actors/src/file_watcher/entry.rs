//! What the watcher knows of one fetcher run. Plain state; the watcher's actor acts on it.

use std::rc::Rc;

use super::names::Names;
use super::phase::Phase;
use crate::directory::FileState;
use crate::file_tail::TailLink;
use crate::watch::Happened;

/// One run: its file and its phase.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) phase: Phase,
    pub(super) names: Names,
    /// The store knows it, and learns when it goes.
    pub(super) known: bool,
    /// Its file is to be compared with what was read of it, once it rests.
    pub(super) unverified: bool,
    /// It is its turn: a tail is to be started for that, if its file rests.
    pub(super) due: bool,
    /// Tails that failed in a row without storing anything.
    pub(super) failures: u32,
    /// To its tail, or the last one that it had.
    pub(super) tail: Rc<TailLink>,
    /// `NAME.txt` was written to, made or closed, and no tail was started or notified since: whether
    /// its content is still what was stored, only its content can tell.
    pub(super) touched: bool,
    /// Bytes of `NAME.txt` were written since it was last read to its end.
    pub(super) written: bool,
    /// It was logged that it is complete: a look at what was read is no news.
    pub(super) ended: bool,
}

impl Entry {
    /// There is a file, and the store still has to forget an earlier one of the same name first.
    pub(super) fn is_blocked(&self) -> bool {
        self.names.file().is_some() && matches!(self.phase, Phase::New | Phase::Deleting)
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
