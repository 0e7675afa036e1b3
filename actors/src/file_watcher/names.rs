//! What the watcher knows of the two names of a run, `NAME.txt.part` and `NAME.txt`: which are there, and whether
//! the writer is done. Fed with events and looks; plain state.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::directory::FileState;
use crate::run_reader::Target;
use crate::watch::Happened;
use shiftboss_protocol::fetcher_file::FileName;
use shiftboss_protocol::model::Run;

/// A complete name that nobody was seen to write counts as closed after this long unchanged.
const STEADY: Duration = Duration::from_secs(2);

/// Both names of one run.
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
    emptied: bool,
    /// The number of the move that took its last name away.
    moved_away: Option<u32>,
    /// Both names were there at once, and that was logged.
    doubled: bool,
}

/// The name that a run's file has while it grows, or once it is complete.
pub(super) fn name_of(run: &Run, growing: bool) -> String {
    FileName::of(run.clone()).spelled(growing)
}

impl Names {
    /// The file to be read now, `None` when there is none. The complete name wins.
    pub(super) fn file(&self) -> Option<FileState> {
        self.whole.or(self.growing)
    }

    /// What a tail is to read.
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

    /// Whether its last name was removed since that was asked last.
    pub(super) fn take_emptied(&mut self) -> bool {
        std::mem::take(&mut self.emptied)
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
