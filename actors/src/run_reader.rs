//! Reads one fetcher run's file in batches, from wherever the queue stands. Plain and synchronous.
//!
//! The FileTailActor calls it. It opens, follows and re-reads the file (spec 4, "Life") and
//! turns bytes into [`Portion`]s; it stores nothing and decides nothing about restarts.
//!
//! A complete file that has rested is compared with what was read from it. If it differs, it is read as a
//! *listing*: from start to end without a change meanwhile. What a listing lacks can leave the queue.

mod open_file;
mod portion;

use std::io;
use std::rc::Rc;

use tracing::{info, warn};

use crate::directory::{self, Directory, Entry, FileState};
use open_file::OpenFile;
pub(crate) use open_file::still_holds;
pub use portion::Portion;
use shiftboss_protocol::fetcher_file::checksum;
use shiftboss_protocol::model::Run;
use shiftboss_queue::file_identity::Position;
use shiftboss_queue::operation::{Reading, RowBatch, StoredRun};

/// Most rows of one batch; a batch of a single read may also have the rest of the last chunk. A worker's request waits
/// for one batch; four times as many rows load no faster.
const BATCH_ROWS_MAX: usize = 250;
/// Most bytes read for one batch, so that a file of faulty lines also lets others in.
const BATCH_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Faulty lines of one batch that are logged one by one; the others are counted.
const WARNINGS_PER_BATCH: u64 = 20;

/// Which of a run's two names to read, and whether its writer is done with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Target {
    pub growing_name: bool,
    /// No more bytes are expected: an unterminated last line counts, and the run is complete.
    pub complete: bool,
}

pub struct RunReader {
    directory: Rc<Directory>,
    stored: StoredRun,
    open: Option<OpenFile>,
    /// The last batch was full before the file ended.
    interrupted: bool,
    task: Task,
    /// Reading began at the start of a file of which something was stored.
    anew: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    Follow,
    /// Reading from the start, storing nothing, to see whether the file is still as it was read.
    Compare,
    List,
}

impl RunReader {
    /// A reader that goes on at the position of `stored`.
    pub fn new(directory: Rc<Directory>, stored: StoredRun) -> Self {
        let task = Task::Follow;
        Self { directory, stored, open: None, interrupted: false, task, anew: false }
    }

    /// Reads a known file from its start, whatever the bytes before the stored position are.
    pub fn read_anew(&mut self) {
        if let Some(at) = &mut self.stored.position {
            let (offset, checksum) = (0, checksum(&[]));
            *at = Position { offset, lines: 0, checksum, content: None, verified: None, ..*at };
        }
        self.open = None;
        self.anew = true;
    }

    /// Checks first whether a complete file that rests is the one that was read, and reads it as a listing if not.
    pub fn reconcile(&mut self) {
        if self.stored.stale {
            self.list();
        } else {
            self.task = Task::Compare;
        }
    }

    fn list(&mut self) {
        self.read_anew();
        self.task = Task::List;
    }

    /// Whether everything in the file was read as a listing, and it has not changed since that began. Call it when
    /// there is nothing more to read.
    pub fn is_listed(&self) -> bool {
        self.task == Task::List
    }

    pub fn pruned(&mut self) {
        self.task = Task::Follow;
        self.stored.stale = false;
    }

    pub fn run(&self) -> &Run {
        &self.stored.run
    }

    /// The next rows, or `None` if there is nothing to store. `target` says what to read. An error says what could not
    /// be done, with which file, and why.
    pub fn read_on(&mut self, target: Target) -> Result<Option<Portion>, String> {
        self.interrupted = false;
        let name = self.stored.run.file_name(target.growing_name);
        let failed = |doing| {
            let name = name.clone();
            move |error: io::Error| format!("cannot {doing} {name}: {error}")
        };
        if let Some(seen) = self.compare(target).map_err(failed("compare"))? {
            return Ok(Some(Portion::new(seen.clone(), seen)));
        }
        if self.interrupted || !self.follow(target).map_err(failed("open"))? {
            return Ok(None);
        }
        self.read_rows(target).map_err(failed("read"))
    }

    /// Goes on with a comparison. If the file is as it was read, the comparison ends with a batch that says so.
    fn compare(&mut self, target: Target) -> io::Result<Option<RowBatch>> {
        let (Task::Compare, Some(at)) = (self.task, self.stored.position) else {
            return Ok(None);
        };
        let name = self.stored.run.file_name(false);
        let seen = self.directory.look(name.as_ref())?;
        if self.open.is_none() && seen != Entry::Absent {
            let (file, state) = self.directory.open_file(name.as_ref())?;
            self.open = Some(OpenFile::at(file, state, None));
        }
        let Some(open) = &mut self.open else {
            return Ok(None);
        };
        let state = open.state;
        if !target.complete || seen != Entry::File(state) || state.length != at.offset {
            (self.task, self.open) = (Task::Follow, None);
            return Ok(None);
        }
        let Some(content) = open.digest()? else {
            self.interrupted = true;
            return Ok(None);
        };
        if at.content.is_some_and(|stored| stored != content) {
            info!(file = name, "The file was changed: reading it again, as the whole list.");
            self.list();
            return Ok(None);
        }
        (self.task, self.open) = (Task::Follow, None);
        let position = Position { content: Some(content), verified: Some(state.times), ..at };
        let of_none = RowBatch::of(self.stored.run.clone(), Vec::new());
        Ok(Some(RowBatch { from: Some(at.offset), position, ..of_none }))
    }

    /// Notes that what was read last is stored, or will be before anything else of this file.
    pub fn taken(&mut self, portion: &Portion) {
        self.stored.position = Some(portion.behind().position);
        self.stored.complete = portion.behind().complete;
    }

    /// Opens the file, or opens it again from the start when the name leads to another one, or the
    /// one that was read is shorter or other than it was (spec 4, losses 8 and 11).
    fn follow(&mut self, target: Target) -> io::Result<bool> {
        let name = self.stored.run.file_name(target.growing_name);
        let Entry::File(now) = self.directory.look(name.as_ref())? else {
            return Ok(false);
        };
        let position = self.stored.position;
        if let Some(open) = &mut self.open {
            if open.state == now && !open.fresh {
                return Ok(true);
            }
            if open.state != now {
                // The file changed during the listing, which begins anew when the file rests.
                self.task = Task::Follow;
            }
            if open.state.is_same_file(&now)
                && still_holds(&open.file, &now, position)?
                && now.length >= open.next
            {
                open.looked(now);
                return Ok(true);
            }
            self.open = None;
        }
        let (file, state) = match self.directory.open_file(name.as_ref()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened?,
        };
        let resumed = position.filter(|at| (at.device, at.inode) == (state.device, state.inode));
        let resumed = match resumed {
            Some(at) if still_holds(&file, &state, Some(at))? => Some(at),
            _ => None,
        };
        if position.is_some() && resumed.is_none() {
            warn!(
                file = name,
                "The file is not the one that was read before: reading it from the start."
            );
            self.anew = true;
        }
        self.open = Some(OpenFile::at(file, state, resumed));
        Ok(true)
    }

    fn read_rows(&mut self, target: Target) -> io::Result<Option<Portion>> {
        let Some(open) = &mut self.open else {
            return Ok(None);
        };
        if self.stored.complete && self.stored.position.is_none() && self.stored.rows > 0 {
            // The run was taken over from a database without positions: a known complete run is not read again.
            open.skip_to_end();
        }
        let before = open.position(self.stored.position)?;
        let mut lines = Vec::new();
        let at_end = open.read_lines(&mut lines)?;
        self.interrupted = !at_end;
        let complete = target.complete && at_end;
        if complete {
            open.lines.finish(&mut lines);
        }
        let name = self.stored.run.file_name(target.growing_name);
        let rows = open.sort_out(lines, &name);
        let position = open.position(self.stored.position)?;
        // A complete run that is appended to stays complete: its rows so far are all there.
        let was_complete = self.stored.complete && !target.growing_name;
        let complete = complete || was_complete;
        let same = self.stored.position == Some(position) && self.stored.complete == complete;
        if same && !self.anew {
            return Ok(None);
        }
        let skipped = std::mem::take(&mut open.skipped);
        let from = self.stored.position.filter(|_| !self.anew).map_or(0, |at| at.offset);
        let reading = match (std::mem::take(&mut self.anew), self.task) {
            (false, _) => Reading::Onward,
            (true, Task::List) => Reading::Listing,
            (true, _) => Reading::Anew,
        };
        let behind = RowBatch::of(self.stored.run.clone(), rows);
        let behind = RowBatch { skipped, from: Some(from), position, complete, reading, ..behind };
        let before = RowBatch { position: before, complete: was_complete, ..behind.without_rows() };
        Ok(Some(Portion::new(before, behind)))
    }

    /// The file that was read, with the length up to which it was; `None` when none was opened.
    pub fn read_state(&self) -> Option<FileState> {
        self.open.as_ref().map(|open| FileState { length: open.next, ..open.state })
    }

    /// Whether the last call of [`read_on`](Self::read_on) ended before the file did: in the middle of a very long line
    /// there is nothing to store yet, but more to read.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    pub fn has_unread(&self) -> bool {
        let length =
            |open: &OpenFile| directory::state_of(&open.file).map_or(0, |state| state.length);
        let is_unread = |open: &OpenFile| length(open) > open.next;
        self.task != Task::Compare && self.open.as_ref().is_some_and(is_unread)
    }
}
