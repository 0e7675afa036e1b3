//! The index beside the log of a key and day, `KEY.log.index`: where each attempt begins and ends in it. A command holds its
//! log and may print what it likes; it does not hold the index. Written by [`super::log_directory`], read by the code
//! that shows output.

use std::fs::File;
use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

/// What the name of an index adds to that of its log.
pub const ENDING: &str = ".index";

/// A line of an index; places are in bytes from the log's beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    Begin {
        /// Position of the line before the attempt.
        at: u64,
        time: String,
        attempt: Option<i64>,
    },
    End {
        /// The position of its beginning.
        of: u64,
        /// Position after the line that reports the end.
        at: u64,
        words: String,
        /// `None`: it was killed by its worker, or did not start.
        exit_code: Option<u8>,
    },
}

impl Record {
    /// Appends it. It begins a new line, because the record before it may be torn.
    pub fn append(&self, index: &mut File) -> io::Result<()> {
        index.write_all(format!("\n{}", serde_json::to_string(self)?).as_bytes())
    }
}

/// Whether `bytes`, the beginning of a file, are those of an index.
pub fn is_form(bytes: &[u8]) -> bool {
    bytes.is_empty() || bytes.starts_with(b"\n{\"begin\":{\"at\":")
}

/// The records of an index, without torn ones.
pub fn records(index: impl BufRead) -> impl Iterator<Item = io::Result<Record>> {
    index
        .split(b'\n')
        .filter_map(|line| line.map(|line| serde_json::from_slice(&line).ok()).transpose())
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Seek};

    use super::*;

    /// A torn record does not lose any other.
    #[test]
    fn a_torn_record_is_none() {
        let mut file = tempfile::tempfile().unwrap();
        let begin = Record::Begin { at: 0, time: "T".to_owned(), attempt: None };
        let end = Record::End { of: 0, at: 9, words: "\n".to_owned(), exit_code: Some(1) };
        begin.append(&mut file).unwrap();
        file.write_all(b"\n{\"end\":").unwrap();
        end.append(&mut file).unwrap();
        file.rewind().unwrap();
        let read: io::Result<Vec<Record>> = records(BufReader::new(file)).collect();
        assert_eq!(read.unwrap(), [begin, end]);
    }
}
