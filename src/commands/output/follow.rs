//! Follows a running attempt to its end: the file and its index are polled, because a worker writes the end into the
//! file where the attempt began, even on the next day.

use std::mem;
use std::thread::park_timeout;
use std::time::{Duration, SystemTime};

use super::{Found, Screen, unreadable};
use crate::exit::{ExitCode, Failure};
use crate::outputs::Outputs;
use crate::outputs::attempts::{Ending, Part, parts};
use crate::text::shown;

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Looks between two searches for a newer file of the key.
const LOOKS_A_SEARCH: usize = 10;

/// Shows what comes after the position `shown_to`, until the attempt ends.
pub(super) fn to_its_end(
    outputs: &Outputs,
    key: &str,
    mut found: Found,
    shown_to: u64,
    screen: Screen,
) -> Result<(), Failure> {
    let (mut at, mut index_read) = (shown_to, 0);
    let is_newest = |day: &str| outputs.latest(key, SystemTime::now()).is_none_or(|it| it == day);
    for look in 1_usize.. {
        let is_last = look % LOOKS_A_SEARCH == 0 && !is_newest(&found.day);
        // Read before looking for its end: what comes after that does not belong to it.
        let length = found.file.metadata().map_err(unreadable)?.len();
        let ending = found.look_again(outputs, key, &mut index_read)?;
        let to = ending.as_ref().map_or(length, |ending| ending.at);
        match screen.follow(&mut found.file, at, to)? {
            Some(shown_to) => at = shown_to,
            None => return Ok(()),
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
