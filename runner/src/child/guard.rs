//! The guardian's own process, run by the hidden command `guardian` of each program. It reads records until the pipe
//! ends, which means that the program at the other end is gone, and then kills what is still registered.
//!
//! [`super::Guardian`] starts it in a session of its own, with termination signals ignored. It reads nothing else,
//! writes nothing, and decides nothing. A [`Record`] has one size, far below `PIPE_BUF`, so that each write to the pipe
//! is whole.

use std::collections::HashMap;
use std::io::{self, BufReader, Read};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;
use rustix::process::{Pid, Signal, kill_process_group};
use thiserror::Error;

/// Bytes of a record: what, which group, under which number.
pub const RECORD_BYTES: usize = 16;
/// Pause between two reads. The pipe has room for what comes meanwhile.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// Begins a record. Chosen so that no text is taken for one.
const MAGIC: u32 = 0x5342_fe01;

/// One message to the guardian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Numbers a group. Never used twice.
    pub token: u64,
    /// The group to kill when the pipe ends; `None`: the group of this token is forgotten, if there is one.
    pub group: Option<Pid>,
}

impl Record {
    /// The record's bytes. Allocates nothing: it is also called between `fork` and `exec`.
    pub fn encode(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.group.map_or(0, Pid::as_raw_pid).to_le_bytes());
        bytes[8..].copy_from_slice(&self.token.to_le_bytes());
        bytes
    }

    /// Reads a record; `None` if it is none. The groups of init and of the guardian itself are none.
    pub fn decode(bytes: [u8; RECORD_BYTES]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h, token @ ..] = bytes;
        let (token, group) = (u64::from_le_bytes(token), i32::from_le_bytes([e, f, g, h]));
        let is_record = u32::from_le_bytes([a, b, c, d]) == MAGIC && group >= 0 && group != 1;
        is_record.then(|| Self { token, group: Pid::from_raw(group) })
    }
}

#[derive(Debug, Error)]
pub enum GuardError {
    #[error("this program starts its guardian itself: there is nothing to be had by starting one")]
    NotAPipe,
    #[error("the guardian's pipe has something in it that no program of ours wrote")]
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
    for group in left_at_the_end(BufReader::new(Unhurried(pipe)))?.into_values() {
        // It may be gone, or we may have no right to kill it: then there is nothing to do.
        let _ = kill_process_group(group, Signal::KILL);
    }
    Ok(())
}

/// Reads what has gathered since the last read: each command sends two records, and each would wake us up.
struct Unhurried<P>(P);

impl<P: Read + AsFd> Read for Unhurried<P> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        // Polled for no events, it still reports at once that the other end is closed.
        let mut pipe = [PollFd::new(&self.0, PollFlags::empty())];
        rustix::event::poll(&mut pipe, Some(&PAUSE))?;
        self.0.read(bytes)
    }
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
        let Record { token, group } = Record::decode(bytes).ok_or(GuardError::Garbled)?;
        match group {
            Some(group) => groups.insert(token, group),
            None => groups.remove(&token),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group that was removed is not left; removing one that was never added is harmless.
    #[test]
    fn what_was_not_removed_is_left() {
        let group = |raw| Pid::from_raw(raw).unwrap();
        let records = [
            Record { token: 9, group: None },
            Record { token: 1, group: Some(group(11)) },
            Record { token: 2, group: Some(group(12)) },
            Record { token: 1, group: None },
        ];
        let bytes = records.map(Record::encode).concat();
        let left = left_at_the_end(&*bytes).unwrap();
        assert_eq!(left, HashMap::from([(2, group(12))]));
        let garbled = left_at_the_end(&b"0123456789abcdef"[..]);
        assert!(matches!(garbled, Err(GuardError::Garbled)));
    }

    /// Started by hand it reports that it is useless.
    #[test]
    fn only_a_pipe_is_guarded() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(guard(file), Err(GuardError::NotAPipe)));
    }

    /// A record is read back as it was written, and nothing else is taken for one.
    #[test]
    fn records_are_read_back() {
        let group = Pid::from_raw(4711);
        for record in [Record { token: u64::MAX, group }, Record { token: 7, group: None }] {
            assert_eq!(Record::decode(record.encode()), Some(record));
        }
        assert_eq!(Record::decode([0; RECORD_BYTES]), None);
        assert_eq!(Record::decode(*b"typed by a user\n"), None);
        for group in [i32::MIN, -5, 1] {
            let mut bytes = Record { token: 1, group: None }.encode();
            bytes[4..8].copy_from_slice(&group.to_le_bytes());
            assert_eq!(Record::decode(bytes), None, "{group}");
        }
    }
}
