//! The guardian's own process: `shiftboss guardian` runs it. It reads records until the pipe ends,
//! which says that the shiftboss at its other end is gone, and then kills what is still registered.
//!
//! [`super::Guardian`] starts it, in a session of its own and with the signals ignored that end
//! others. It reads nothing else, writes nothing, and decides nothing.

use std::collections::HashMap;
use std::io::{self, BufReader, Read};
use std::os::fd::AsFd;

use rustix::fs::FileType;
use rustix::process::{Pid, Signal, kill_process_group};
use thiserror::Error;

use super::record::{RECORD_BYTES, Record};

#[derive(Debug, Error)]
pub enum GuardError {
    #[error("shiftboss starts its guardian itself: there is nothing to be had by starting one")]
    NotAPipe,
    #[error("the guardian's pipe has something in it that no shiftboss wrote")]
    Garbled,
    #[error("cannot read the guardian's pipe: {0}")]
    Pipe(#[source] io::Error),
}

/// Guards until `pipe` ends, and kills what is registered then.
pub fn guard(pipe: impl Read + AsFd) -> Result<(), GuardError> {
    let stat = rustix::fs::fstat(&pipe).map_err(|error| GuardError::Pipe(error.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Fifo {
        return Err(GuardError::NotAPipe);
    }
    for group in left_at_the_end(BufReader::new(pipe))?.into_values() {
        // It may be gone, or not be ours to kill: then there is nothing to be done.
        let _ = kill_process_group(group, Signal::KILL);
    }
    Ok(())
}

/// Reads all records; what was added and not removed is left.
fn left_at_the_end(mut pipe: impl Read) -> Result<HashMap<u64, Pid>, GuardError> {
    let mut groups = HashMap::new();
    let mut bytes = [0; RECORD_BYTES];
    loop {
        match pipe.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(groups),
            Err(error) => return Err(GuardError::Pipe(error)),
        }
        match Record::decode(bytes).ok_or(GuardError::Garbled)? {
            Record::Add { token, group } => groups.insert(token, group),
            Record::Remove { token } => groups.remove(&token),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was removed is not left; a removal of what was never added is harmless.
    #[test]
    fn what_was_not_removed_is_left() {
        let group = |raw| Pid::from_raw(raw).unwrap();
        let records = [
            Record::Remove { token: 9 },
            Record::Add { token: 1, group: group(11) },
            Record::Add { token: 2, group: group(12) },
            Record::Remove { token: 1 },
        ];
        let bytes = records.map(Record::encode).concat();
        let left = left_at_the_end(&*bytes).unwrap();
        assert_eq!(left, HashMap::from([(2, group(12))]));
        let garbled = left_at_the_end(&b"0123456789abcdef"[..]);
        assert!(matches!(garbled, Err(GuardError::Garbled)));
    }

    /// Started by hand it says that it is of no use.
    #[test]
    fn only_a_pipe_is_guarded() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(guard(file), Err(GuardError::NotAPipe)));
    }
}
