//! An open fetcher file, and how far it was read. The part of the run reader that reads bytes; the reader decides which
//! file, and from where.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use tracing::warn;

use super::{BATCH_BYTES_MAX, BATCH_ROWS_MAX, WARNINGS_PER_BATCH};
use crate::directory::FileState;
use shiftboss_protocol::fetcher_file::{CHECKSUM_BYTES, Content, Line, LineReader, checksum};
use shiftboss_protocol::model::Row;
use shiftboss_queue::file_identity::Position;

const CHUNK_BYTES: usize = 8 * 1024;

pub(super) struct OpenFile {
    pub(super) file: File,
    pub(super) state: FileState,
    /// It had only just been changed when it was looked at: its times may not show the next change.
    pub(super) fresh: bool,
    pub(super) lines: LineReader,
    /// Where reading began, in this process; `lines.consumed()` counts from here.
    began: u64,
    /// The next byte to read. Ahead of the position by an unfinished line.
    pub(super) next: u64,
    /// Faulty lines since the last batch.
    pub(super) skipped: u64,
    /// Digest of all lines up to the position, if that of the lines before the first one read here is known.
    content: Option<Content>,
}

impl OpenFile {
    pub(super) fn at(file: File, state: FileState, position: Option<Position>) -> Self {
        let (offset, lines) = position.map_or((0, 0), |at| (at.offset, at.lines));
        let content = match position.filter(|at| at.offset > 0) {
            Some(at) => at.content.map(Content::stored),
            None => Some(Content::default()),
        };
        Self {
            file,
            state,
            fresh: state.is_fresh(),
            lines: LineReader::new(offset == 0, lines),
            began: offset,
            next: offset,
            skipped: 0,
            content,
        }
    }

    pub(super) fn looked(&mut self, now: FileState) {
        self.state = now;
        self.fresh = now.is_fresh();
    }

    pub(super) fn skip_to_end(&mut self) {
        self.began = self.state.length;
        self.next = self.state.length;
        self.lines = LineReader::new(false, 0);
        self.content = None;
    }

    /// Reads until a batch is full or the file ends; returns whether it ended.
    pub(super) fn read_lines(&mut self, lines: &mut Vec<Line>) -> io::Result<bool> {
        let mut chunk = [0; CHUNK_BYTES];
        let limit = self.next + BATCH_BYTES_MAX;
        while lines.len() < BATCH_ROWS_MAX && self.next < limit {
            let length = match self.file.read_at(&mut chunk, self.next) {
                // On some file systems a signal can interrupt a read.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                length => length?,
            };
            if length == 0 {
                return Ok(true);
            }
            self.next += length as u64;
            self.lines.feed(&chunk[..length], lines);
        }
        Ok(false)
    }

    /// Reads on, a bounded piece, and keeps nothing. Returns the digest of all lines at the end of the file.
    pub(super) fn digest(&mut self) -> io::Result<Option<u64>> {
        let limit = self.next + BATCH_BYTES_MAX;
        let mut at_end = false;
        while !at_end && self.next < limit {
            let mut lines = Vec::new();
            at_end = self.read_lines(&mut lines)?;
            if at_end {
                self.lines.finish(&mut lines);
            }
            if let Some(content) = &mut self.content {
                lines.iter().for_each(|line| content.add(line));
            }
        }
        Ok(self.content.filter(|_| at_end).map(Content::value))
    }

    /// Keeps the rows; warns of the faulty lines, the first few of them by number.
    pub(super) fn sort_out(&mut self, lines: Vec<Line>, file: &str) -> Vec<Row> {
        let mut rows = Vec::with_capacity(lines.len());
        let mut skipped = 0;
        for line in lines {
            if let Some(content) = &mut self.content {
                content.add(&line);
            }
            match line {
                Line::Row(row) => rows.push(row),
                Line::Skipped { number, reason } => {
                    skipped += 1;
                    if skipped <= WARNINGS_PER_BATCH {
                        warn!(file, line = number, %reason, "A line was skipped.");
                    }
                }
            }
        }
        if skipped > WARNINGS_PER_BATCH {
            let more = skipped - WARNINGS_PER_BATCH;
            warn!(file, more, "More lines were skipped; `shiftboss check` lists them all.");
        }
        self.skipped += skipped;
        rows
    }

    /// The position behind what was read; the `stored` one if they are the same.
    pub(super) fn position(&self, stored: Option<Position>) -> io::Result<Position> {
        let offset = self.began + self.lines.consumed();
        let position = Position {
            offset,
            lines: self.lines.lines(),
            device: self.state.device,
            inode: self.state.inode,
            checksum: checksum_before(&self.file, offset)?.unwrap_or(0),
            content: self.content.map(Content::value),
            verified: None,
        };
        let same = |at: &Position| Position { verified: None, ..*at } == position;
        Ok(stored.filter(same).unwrap_or(position))
    }
}

/// Whether the file still has the bytes that were read: long enough, and the same before the place.
pub(crate) fn still_holds(
    file: &File,
    now: &FileState,
    position: Option<Position>,
) -> io::Result<bool> {
    let Some(at) = position else {
        return Ok(true);
    };
    Ok(now.length >= at.offset && checksum_before(file, at.offset)? == Some(at.checksum))
}

/// Checksum of the bytes before `offset`; `None` when the file is shorter.
fn checksum_before(file: &File, offset: u64) -> io::Result<Option<u64>> {
    let length = offset.min(CHECKSUM_BYTES as u64);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(CHECKSUM_BYTES)];
    match file.read_exact_at(&mut bytes, offset - length) {
        Ok(()) => Ok(Some(checksum(&bytes))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}
