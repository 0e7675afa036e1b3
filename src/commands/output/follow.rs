//! An attempt that is running, to its end: the file is looked at again and again, for a worker writes the end into the file in which
//! it began, also on the next day.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::thread::park_timeout;
use std::time::{Duration, SystemTime};

use super::{Found, Screen, unreadable};
use crate::exit::{ExitCode, Failure};
use crate::outputs::Outputs;
use crate::outputs::attempts::{Lines, Mark, Part};
use crate::text::shown;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Looks between two searches for a newer file of the key.
const LOOKS_A_SEARCH: usize = 10;
/// What is read at once.
const PIECE_BYTES: u64 = 64 * 1024;

/// Shows what comes behind the place `shown_to`, until the attempt ends.
pub(super) fn to_its_end(
    outputs: &Outputs,
    key: &str,
    found: Found,
    shown_to: u64,
    screen: Screen,
) -> Result<(), Failure> {
    let Found { mut file, day, part } = found;
    if let Some(ending) = part.as_ref().and_then(|part: &Part| part.ending.as_ref()) {
        return ended(ending.exit_code);
    }
    let mut tail = Tail::new(shown_to);
    let is_newest = |day: &str| outputs.latest(key, SystemTime::now()).is_none_or(|it| it == day);
    for look in 1_usize.. {
        let is_last = look % LOOKS_A_SEARCH == 0 && !is_newest(&day);
        match tail.show(&mut file, screen)? {
            Seen::More => {}
            Seen::End(exit_code) => return ended(exit_code),
            Seen::Nobody => return Ok(()),
            Seen::Another => break,
        }
        if is_last {
            break;
        }
        park_timeout(LOOK_EVERY);
    }
    let text = format!("{} began anew: the attempt before ended without a word", shown(key));
    Err(Failure::new(ExitCode::Unavailable, text))
}

fn ended(exit_code: Option<u8>) -> Result<(), Failure> {
    match exit_code {
        Some(0) => Ok(()),
        Some(code) => Err(Failure::of_job(code)),
        None => Err(Failure::silent(ExitCode::Unavailable)),
    }
}

/// What a look at a file showed.
enum Seen {
    More,
    /// The attempt ended.
    End(Option<u8>),
    /// Another attempt began.
    Another,
    /// Nobody reads what is shown.
    Nobody,
}

/// What comes at the end of a file.
struct Tail {
    at: u64,
    lines: Lines,
    /// The beginning of a line, which is shown when it is whole.
    begun: Vec<u8>,
}

impl Tail {
    fn new(at: u64) -> Self {
        Self { at, lines: Lines::new(at), begun: Vec::new() }
    }

    /// Shows all that came, up to the end of the attempt.
    fn show(&mut self, file: &mut File, screen: Screen) -> Result<Seen, Failure> {
        loop {
            file.seek(SeekFrom::Start(self.at)).map_err(unreadable)?;
            let mut bytes = Vec::new();
            file.take(PIECE_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
            if bytes.is_empty() {
                return Ok(Seen::More);
            }
            let (mark, behind) = self.mark_in(&bytes);
            let length = behind.map_or(bytes.len(), |behind| (behind - self.at) as usize);
            self.at += length as u64;
            if !self.write(&bytes[..length], screen)? {
                return Ok(Seen::Nobody);
            }
            match mark {
                Some(Mark::End { exit_code, .. }) => return Ok(Seen::End(exit_code)),
                Some(Mark::Begin { .. }) => return Ok(Seen::Another),
                None => {}
            }
        }
    }

    /// The first line of a worker in what came, and the place behind what is to be shown before that is told.
    fn mark_in(&mut self, bytes: &[u8]) -> (Option<Mark>, Option<u64>) {
        let (mut first, mut behind) = (None, None);
        self.lines.feed(bytes, |begin, head, end| {
            if first.is_some() {
                return;
            }
            first = Mark::parse(head);
            behind = first.as_ref().map(|mark| match mark {
                Mark::End { .. } => end,
                Mark::Begin { .. } => begin,
            });
        });
        (first, behind.map(|behind| behind.max(self.at)))
    }

    /// On a terminal lines are shown when they are whole.
    fn write(&mut self, bytes: &[u8], screen: Screen) -> Result<bool, Failure> {
        if screen.is_plain {
            return screen.write(bytes);
        }
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(piece);
            let is_whole = piece.ends_with(b"\n") || self.begun.len() as u64 >= PIECE_BYTES;
            if is_whole && !screen.write(&std::mem::take(&mut self.begun))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
