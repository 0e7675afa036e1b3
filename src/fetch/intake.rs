//! Takes a command's output: writes whole lines to the growing file as they come, and counts them as
//! the daemon will. Knows nothing of the command or of the directory.

use std::fs::File;
use std::io::{self, Read, Write};

use shiftboss_protocol::fetcher_file::{LINE_MAX_BYTES, Line, LineReader, SkipReason};

use crate::child::LinePrefixer;

/// How much of a list is read at a time.
const CHUNK_BYTES: usize = 64 * 1024;
/// Faulty lines that are reported one by one.
const FAULTS_REPORTED_MAX: u64 = 20;

/// Shows a run while it goes on.
pub trait Observer: Send {
    /// A line that the command writes on standard error, with its end.
    fn complaint(&mut self, line: &[u8]);
    /// A line that the daemon will skip. Only the first of a run are reported.
    fn faulty(&mut self, line: u64, reason: SkipReason);
    /// How many good lines there are so far.
    fn lines(&mut self, accepted: u64);
}

/// The lines of a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Lines that the daemon takes.
    pub accepted: u64,
    pub faulty: u64,
}

/// The growing file, and what is known of it.
pub struct Intake {
    file: File,
    observer: Box<dyn Observer>,
    complaints: LinePrefixer,
    reader: LineReader,
    tally: Tally,
    /// The unfinished line: the daemon reads the file and should only find whole lines.
    held: Vec<u8>,
    /// Why nothing more can be written.
    error: Option<io::Error>,
}

impl Intake {
    /// Writes to `file`, which is empty.
    pub fn new(file: File, observer: Box<dyn Observer>) -> Self {
        let (reader, tally) = (LineReader::new(true, 0), Tally::default());
        let complaints = LinePrefixer::for_log("");
        Self { file, observer, complaints, reader, tally, held: Vec::new(), error: None }
    }

    /// Takes the next piece of the list; returns whether it could be written. After an error the rest is dropped.
    pub fn take(&mut self, piece: &[u8]) -> bool {
        if self.error.is_none() {
            let mut lines = Vec::new();
            self.reader.feed(piece, &mut lines);
            self.error = self.write_whole_lines(piece).err();
            self.count(lines);
        }
        !self.is_broken()
    }

    /// Passes on what the command complains of, line by line.
    pub fn complaint(&mut self, piece: &[u8]) {
        let lines = self.complaints.feed(piece);
        lines.split_inclusive(|byte| *byte == b'\n').for_each(|line| self.observer.complaint(line));
    }

    /// Whether something could not be written.
    pub fn is_broken(&self) -> bool {
        self.error.is_some()
    }

    /// Writes an unfinished last line, and gives the number of lines.
    pub fn finish(&mut self) -> io::Result<Tally> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        self.file.write_all(&std::mem::take(&mut self.held))?;
        let mut lines = Vec::new();
        self.reader.finish(&mut lines);
        self.count(lines);
        Ok(self.tally)
    }

    fn write_whole_lines(&mut self, piece: &[u8]) -> io::Result<()> {
        let line_end = piece.iter().rposition(|byte| matches!(byte, b'\n' | b'\r'));
        let end = match line_end {
            Some(last) => last + 1,
            // A line that is too long to be taken is not held back until its end.
            None if self.held.len() + piece.len() > LINE_MAX_BYTES => piece.len(),
            None => 0,
        };
        let (whole, rest) = piece.split_at(end);
        if !whole.is_empty() {
            self.held.extend_from_slice(whole);
            let written = self.file.write_all(&self.held);
            self.held.clear();
            written?;
        }
        self.held.extend_from_slice(rest);
        Ok(())
    }

    fn count(&mut self, lines: Vec<Line>) {
        for line in lines {
            match line {
                Line::Row(_) => self.tally.accepted += 1,
                Line::Skipped { number, reason } => {
                    self.tally.faulty += 1;
                    if self.tally.faulty <= FAULTS_REPORTED_MAX {
                        self.observer.faulty(number, reason);
                    }
                }
            }
        }
        self.observer.lines(self.tally.accepted);
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        let last = self.complaints.finish();
        last.split_inclusive(|byte| *byte == b'\n').for_each(|line| self.observer.complaint(line));
    }
}

/// Reads a list to its end, as the daemon will; one that is growing may end within a line.
pub fn read_lines(mut file: File, is_growing: bool, mut take: impl FnMut(Line)) -> io::Result<()> {
    let (mut reader, mut lines) = (LineReader::new(true, 0), Vec::new());
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let length = match file.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        match length {
            0 if !is_growing => reader.finish(&mut lines),
            _ => reader.feed(&chunk[..length], &mut lines),
        }
        lines.drain(..).for_each(&mut take);
        if length == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Seek;

    use shiftboss_protocol::fetcher_file::SkipReason;

    use super::*;

    struct Deaf;

    impl Observer for Deaf {
        fn complaint(&mut self, _: &[u8]) {}
        fn faulty(&mut self, _: u64, _: SkipReason) {}
        fn lines(&mut self, _: u64) {}
    }

    fn written(file: &mut File) -> String {
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    }

    /// The file always ends with a line's end, and is complete at last.
    #[test]
    fn whole_lines_are_written() {
        let mut file = tempfile::tempfile().unwrap();
        let mut intake = Intake::new(file.try_clone().unwrap(), Box::new(Deaf));
        for (piece, whole) in [
            ("a 1", ""),
            ("\nb", "a 1\n"),
            (" 2\r", "a 1\nb 2\r"),
            ("\n\nc 3\nd", "a 1\nb 2\r\n\nc 3\n"),
            (" 4", "a 1\nb 2\r\n\nc 3\n"),
        ] {
            assert!(intake.take(piece.as_bytes()));
            assert_eq!(written(&mut file), whole);
        }
        assert_eq!(intake.finish().unwrap(), Tally { accepted: 4, faulty: 1 });
        assert_eq!(written(&mut file), "a 1\nb 2\r\n\nc 3\nd 4");
    }

    /// A line without an end is not kept in memory.
    #[test]
    fn a_long_line_is_not_held() {
        let mut intake = Intake::new(tempfile::tempfile().unwrap(), Box::new(Deaf));
        for _ in 0..100 {
            assert!(intake.take(&[b'x'; 64 * 1024]));
            assert!(intake.held.len() <= LINE_MAX_BYTES);
        }
        assert_eq!(intake.finish().unwrap(), Tally { accepted: 0, faulty: 1 });
    }

    /// A full disk is reported at the end, and nothing is counted after it.
    #[test]
    fn a_full_disk_is_reported() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut intake = Intake::new(full, Box::new(Deaf));
        assert!(!intake.take(b"a 1\n"));
        assert!(!intake.take(b"b 2\n"));
        assert_eq!(intake.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
