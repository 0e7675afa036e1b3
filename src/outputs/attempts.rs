//! Which attempts are in a file of outputs, and where: workers write a line before and behind what a job writes, `=== TIME attempt
//! 7 of KEY: COMMAND` and `=== TIME exit code 0, after 1.5s`. Pure but for reading. A job that writes such lines itself misleads.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};

/// Of a line so much is looked at: a key has 4 KiB, and may be shown in more.
const HEAD_BYTES_MAX: usize = 16 * 1024;

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
    /// Behind the line that tells it.
    pub at: u64,
    pub words: String,
    /// `None`: it was killed by its worker, or its worker died.
    pub exit_code: Option<u8>,
}

/// What a line is that a worker wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    Begin { time: String, attempt: Option<i64> },
    End { words: String, exit_code: Option<u8> },
}

impl Mark {
    pub fn parse(line: &[u8]) -> Option<Self> {
        let line = line.strip_prefix(b"=== ")?;
        let line = String::from_utf8_lossy(line);
        let (time, rest) = line.split_once(' ')?;
        humantime::parse_rfc3339(time).ok()?;
        let time = time.to_owned();
        if rest.starts_with("of ") {
            return Some(Self::Begin { time, attempt: None });
        }
        if let Some((number, _)) =
            rest.strip_prefix("attempt ").and_then(|it| it.split_once(" of "))
        {
            return Some(Self::Begin { time, attempt: Some(number.parse().ok()?) });
        }
        let (words, took) = rest.trim_end().rsplit_once(", after ")?;
        took.strip_suffix('s')?.parse::<f64>().ok()?;
        let code = words.rsplit_once("exit code ").map(|(_, code)| code.parse());
        Some(Self::End { words: words.to_owned(), exit_code: code.and_then(Result::ok) })
    }
}

/// The attempts in a file from a place on, in order.
pub fn parts(file: &mut File, from: u64) -> io::Result<Vec<Part>> {
    file.seek(SeekFrom::Start(from))?;
    let mut parts: Vec<Part> = Vec::new();
    let mut lines = Lines::new(from);
    let mut reader = BufReader::new(file);
    loop {
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() {
            return Ok(parts);
        }
        let length = bytes.len();
        lines.feed(bytes, |begin, head, end| match Mark::parse(head) {
            Some(Mark::Begin { time, attempt }) => {
                if let Some(lost) = parts.last_mut().filter(|part| part.ending.is_none()) {
                    let words = "ended without a word".to_owned();
                    lost.ending = Some(Ending { at: begin, words, exit_code: None });
                }
                parts.push(Part { begin, begun: time, attempt, ending: None });
            }
            Some(Mark::End { words, exit_code }) => {
                if let Some(part) = parts.last_mut().filter(|part| part.ending.is_none()) {
                    part.ending = Some(Ending { at: end, words, exit_code });
                }
            }
            None => {}
        });
        reader.consume(length);
    }
}

/// Lines of what comes piece by piece: of each its beginning.
#[derive(Debug)]
pub struct Lines {
    /// Where the line begins that is not whole yet.
    begin: u64,
    /// Behind all that came.
    end: u64,
    head: Vec<u8>,
}

impl Lines {
    /// Of what begins at that place.
    pub fn new(at: u64) -> Self {
        Self { begin: at, end: at, head: Vec::new() }
    }

    /// Shows each line that became whole: where it begins, its beginning, and the place behind it.
    pub fn feed(&mut self, bytes: &[u8], mut show: impl FnMut(u64, &[u8], u64)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = HEAD_BYTES_MAX.saturating_sub(self.head.len());
            self.head.extend_from_slice(&piece[..piece.len().min(room)]);
            self.end += piece.len() as u64;
            if piece.ends_with(b"\n") {
                show(self.begin, &self.head, self.end);
                self.begin = self.end;
                self.head.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Lines of workers are told from others.
    #[test]
    fn marks_are_read() {
        let begin =
            |attempt| Some(Mark::Begin { time: "2026-11-21T23:59:58Z".to_owned(), attempt });
        let end = |words: &str, exit_code| Some(Mark::End { words: words.to_owned(), exit_code });
        for (line, mark) in [
            ("=== 2026-11-21T23:59:58Z attempt 7 of a: sh", begin(Some(7))),
            ("=== 2026-11-21T23:59:58Z of a of b: sh", begin(None)),
            ("=== 2026-11-21T23:59:58Z exit code 3, after 1.5s\n", end("exit code 3", Some(3))),
            (
                "=== 2026-11-21T23:59:58Z signal 9, exit code 137, after 0.0s",
                end("signal 9, exit code 137", Some(137)),
            ),
            (
                "=== 2026-11-21T23:59:58Z killed by the worker, after 2.0s",
                end("killed by the worker", None),
            ),
            ("=== 2026-11-21T23:59:58Z attempt x of a: sh", None),
            ("=== yesterday exit code 3, after 1.5s", None),
            ("=== 2026-11-21T23:59:58Z exit code 3, after a while", None),
            ("== 2026-11-21T23:59:58Z exit code 3, after 1.5s", None),
            ("===", None),
        ] {
            assert_eq!(Mark::parse(line.as_bytes()), mark, "{line}");
        }
    }

    /// Attempts are found with their places, ended or not; what is between them belongs to none.
    #[test]
    fn attempts_are_found() {
        let mut file = tempfile::tempfile().unwrap();
        let begin = "=== 2026-11-21T00:00:00Z attempt 7 of a: x\n";
        let end = "=== 2026-11-21T00:00:01Z exit code 0, after 1.0s\n";
        let long = "y".repeat(100_000);
        write!(file, "stray\n{end}{begin}{long}\n{end}{end}{begin}and so on").unwrap();
        let found = parts(&mut file, 0).unwrap();
        let first = (6 + end.len()) as u64;
        let ended = first + (begin.len() + long.len() + 1 + end.len()) as u64;
        assert_eq!((found.len(), found[0].begin), (2, first));
        let ending = found[0].ending.clone().unwrap();
        assert_eq!((ending.at, ending.exit_code), (ended, Some(0)));
        assert_eq!((found[1].begin, &found[1].ending), (ended + end.len() as u64, &None));
        assert_eq!(parts(&mut file, first + 1).unwrap().len(), 1);
        write!(file, "\n{begin}").unwrap();
        let lost = parts(&mut file, 0).unwrap()[1].ending.clone().unwrap();
        let at = found[1].begin + (begin.len() + "and so on\n".len()) as u64;
        assert_eq!((lost.at, lost.exit_code), (at, None), "it ends where the next one begins");
    }
}
