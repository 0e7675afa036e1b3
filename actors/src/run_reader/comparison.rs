//! Reading a complete file a second time, to see whether it still says what was stored of it.
//!
//! The run reader begins it when the file has rested, and calls it step by step. It stores nothing.

use std::fs::File;
use std::io;

use super::BATCH_BYTES_MAX;
use super::open_file::read_chunk;
use crate::directory::FileState;
use crate::file_identity::FileTimes;
use shiftboss_protocol::fetcher_file::{Content, Line, LineReader};

/// A file on its way through the second reading.
pub(super) struct Comparison {
    file: File,
    /// The file as it was when this began.
    pub(super) state: FileState,
    lines: LineReader,
    next: u64,
    content: Content,
}

impl Comparison {
    pub(super) fn new(file: File, state: FileState) -> Self {
        let lines = LineReader::new(true, 0);
        Self { file, state, lines, next: 0, content: Content::default() }
    }

    /// Reads on, a bounded piece. Returns the digest of all lines at the end of the file.
    pub(super) fn step(&mut self, chunk: &mut [u8]) -> io::Result<Option<u64>> {
        let limit = self.next + BATCH_BYTES_MAX;
        let mut lines = Vec::new();
        while self.next < limit {
            let length = read_chunk(&self.file, chunk, self.next)?;
            if length == 0 {
                self.lines.finish(&mut lines);
                self.take(&mut lines);
                return Ok(Some(self.content.value()));
            }
            self.next += length as u64;
            self.lines.feed(&chunk[..length], &mut lines);
            self.take(&mut lines);
        }
        Ok(None)
    }

    fn take(&mut self, lines: &mut Vec<Line>) {
        lines.drain(..).for_each(|line| self.content.add(&line));
    }
}

/// A file's times, as they are stored.
pub(crate) fn times_of(state: &FileState) -> FileTimes {
    let stored = |nanoseconds: i128| i64::try_from(nanoseconds).unwrap_or(i64::MAX);
    FileTimes { modified: stored(state.modified), changed: stored(state.changed) }
}
