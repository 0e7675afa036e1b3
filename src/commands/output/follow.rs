//! An attempt that is running, to its end: the file and its index are looked at again and again, for a worker writes the end into
//! the file in which it began, also on the next day.

use std::io::{Read, Seek, SeekFrom};
use std::mem;
use std::thread::park_timeout;
use std::time::{Duration, SystemTime};

use super::{Found, Screen, unreadable};
use crate::exit::{ExitCode, Failure};
use crate::outputs::Outputs;
use crate::outputs::attempts::{Ending, Part, parts};
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
    mut found: Found,
    shown_to: u64,
    screen: Screen,
) -> Result<(), Failure> {
    let (mut tail, mut index_read) = (Tail { at: shown_to, begun: Vec::new() }, 0);
    let is_newest = |day: &str| outputs.latest(key, SystemTime::now()).is_none_or(|it| it == day);
    for look in 1_usize.. {
        let is_last = look % LOOKS_A_SEARCH == 0 && !is_newest(&found.day);
        // Before its end is looked for: what comes behind that is not of it.
        let length = found.file.metadata().map_err(unreadable)?.len();
        let ending = found.look_again(outputs, key, &mut index_read)?;
        let to = ending.as_ref().map_or(length, |ending| ending.at);
        if !tail.show(&mut found, to, screen)? {
            return Ok(());
        }
        match ending {
            Some(Ending { told: Some(told), .. }) => return ended(told.exit_code),
            Some(Ending { told: None, .. }) => break,
            None if is_last => break,
            None => park_timeout(LOOK_EVERY),
        }
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

impl Found {
    /// How the attempt ended, if it has by now; a file without one ends where one begins. `read`: how long the index was when
    /// it had no end; while it is as long it has none.
    fn look_again(
        &self,
        outputs: &Outputs,
        key: &str,
        read: &mut u64,
    ) -> Result<Option<Ending>, Failure> {
        let index = outputs.index(key, &self.day).map_err(unreadable)?;
        let Some(index) = index else { return Ok(None) };
        let length = index.metadata().map_err(unreadable)?.len();
        if mem::replace(read, length) == length {
            return Ok(None);
        }
        let parts = parts(&self.file, index).map_err(unreadable)?;
        let Some(part) = &self.part else {
            return Ok(parts.first().map(|part| Ending { at: part.begin, told: None }));
        };
        let is_it = |it: &&Part| (it.begin, &it.begun) == (part.begin, &part.begun);
        Ok(parts.iter().find(is_it).and_then(|part| part.ending.clone()))
    }
}

/// What comes at the end of a file.
struct Tail {
    at: u64,
    /// The beginning of a line, which is shown when it is whole.
    begun: Vec<u8>,
}

impl Tail {
    /// Shows all that came up to a place; whether anybody reads.
    fn show(&mut self, found: &mut Found, to: u64, screen: Screen) -> Result<bool, Failure> {
        while self.at < to {
            found.file.seek(SeekFrom::Start(self.at)).map_err(unreadable)?;
            let mut bytes = Vec::new();
            let mut piece = found.file.by_ref().take(PIECE_BYTES.min(to - self.at));
            piece.read_to_end(&mut bytes).map_err(unreadable)?;
            self.at += bytes.len() as u64;
            if bytes.is_empty() || !self.write(&bytes, screen)? {
                return Ok(bytes.is_empty());
            }
        }
        Ok(true)
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
