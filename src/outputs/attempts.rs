//! Which attempts are in a file of outputs, and where, according to its index ([`log_index`]). The lines that begin
//! with `===` in the file itself are for people; a job may print such lines, too.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::runner::log_index::{self, Record};

/// An attempt in a file; places are in bytes from its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Of the line before it.
    pub begin: u64,
    /// When its command was started.
    pub begun: String,
    /// `None`: its worker had no number.
    pub attempt: Option<i64>,
    /// `None`: it is running, or its worker died and no other attempt has begun since.
    pub ending: Option<Ending>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// Position after the line that reports the end.
    pub at: u64,
    /// `None`: its worker died, and another attempt has begun since.
    pub told: Option<Told>,
}

/// A worker's record of an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub words: String,
    /// `None`: it was killed by its worker, or did not start.
    pub exit_code: Option<u8>,
}

impl Part {
    /// Where it ends, in a file of `length` bytes.
    pub fn end(&self, length: u64) -> u64 {
        self.ending.as_ref().map_or(length, |ending| ending.at.min(length))
    }
}

/// The attempts in a file, in order, by its index.
pub fn parts(file: &File, index: File) -> io::Result<Vec<Part>> {
    let mut parts: Vec<Part> = Vec::new();
    for record in log_index::records(io::BufReader::new(index)) {
        match record? {
            Record::Begin { at, time, attempt } => {
                if let Some(lost) = parts.last_mut().filter(|part| part.ending.is_none()) {
                    lost.ending = Some(Ending { at, told: None });
                }
                parts.push(Part { begin: at, begun: time, attempt, ending: None });
            }
            Record::End { of, at, words, exit_code } => {
                if let Some(part) = parts.iter_mut().rfind(|part| part.begin == of) {
                    part.ending = Some(Ending { at, told: Some(Told { words, exit_code }) });
                }
            }
        }
    }
    parts.retain(|part| is_there(file, part));
    Ok(parts)
}

/// Whether its first line is where the index says: the file may have been cut off or replaced.
fn is_there(file: &File, part: &Part) -> bool {
    let head = format!("=== {} ", part.begun);
    let mut found = vec![0; head.len()];
    file.read_exact_at(&mut found, part.begin).is_ok() && found == head.as_bytes()
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;

    const TIME: &str = "2026-11-21T00:00:00Z";

    /// Marks are read from the index, and not from the file; each stands where that one has an attempt's line.
    #[test]
    fn marks_are_read() {
        let (mut file, mut index) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let head = format!("=== {TIME} attempt 7 of a: x\n");
        write!(file, "{head}=== {TIME} exit code 0, after 1.0s\n{head}{head}").unwrap();
        let places = [0, file.metadata().unwrap().len() - 2 * head.len() as u64];
        let begin = |at| Record::Begin { at, time: TIME.to_owned(), attempt: Some(7) };
        let mut append = |record: Record| record.append(&mut index).unwrap();
        append(begin(places[0]));
        append(begin(places[1]));
        append(Record::End { of: places[1], at: 99, words: "end".to_owned(), exit_code: Some(3) });
        append(begin(places[1] + 1));
        append(begin(1_000));
        index.rewind().unwrap();
        let found = parts(&file, index).unwrap();
        let told = Told { words: "end".to_owned(), exit_code: Some(3) };
        let endings = [Ending { at: places[1], told: None }, Ending { at: 99, told: Some(told) }];
        let expected = places.into_iter().zip(endings);
        let found: Vec<_> = found.into_iter().map(|it| (it.begin, it.ending.unwrap())).collect();
        assert_eq!(found, expected.collect::<Vec<_>>());
    }
}
