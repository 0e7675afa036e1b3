//! The words from a shiftboss to its guardian: records of one size, far below `PIPE_BUF`, so that each
//! write to the pipe is whole. Pure: bytes in, records out.

use rustix::process::Pid;

/// Bytes of a record: what, which group, under which number.
pub const RECORD_BYTES: usize = 16;
/// The words that begin a record. Chosen so that no text is taken for one.
const WORDS: [u32; 2] = [0x5342_fe01, 0x5342_fe02];

/// One word to the guardian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// From now on kill this group, should the pipe end.
    Add {
        /// The number by which it is taken off again. Never used twice.
        token: u64,
        group: Pid,
    },
    /// Forget what was added under this number, if anything was.
    Remove { token: u64 },
}

impl Record {
    /// The record's bytes. Allocates nothing: it is also called between `fork` and `exec`.
    pub fn encode(self) -> [u8; RECORD_BYTES] {
        let (word, group, token) = match self {
            Self::Add { token, group } => (WORDS[0], group.as_raw_pid(), token),
            Self::Remove { token } => (WORDS[1], 0, token),
        };
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&word.to_le_bytes());
        bytes[4..8].copy_from_slice(&group.to_le_bytes());
        bytes[8..].copy_from_slice(&token.to_le_bytes());
        bytes
    }

    /// Reads a record; `None` if it is none. The groups of init and of the guardian itself are none.
    pub fn decode(bytes: [u8; RECORD_BYTES]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h, token @ ..] = bytes;
        let token = u64::from_le_bytes(token);
        let group = i32::from_le_bytes([e, f, g, h]);
        match u32::from_le_bytes([a, b, c, d]) {
            word if word == WORDS[0] && group > 1 => {
                Some(Self::Add { token, group: Pid::from_raw(group)? })
            }
            word if word == WORDS[1] && group == 0 => Some(Self::Remove { token }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record is read back as it was written, and nothing else is taken for one.
    #[test]
    fn records_are_read_back() {
        let group = Pid::from_raw(4711).unwrap();
        for record in [Record::Add { token: u64::MAX, group }, Record::Remove { token: 7 }] {
            assert_eq!(Record::decode(record.encode()), Some(record));
        }
        assert_eq!(Record::decode([0; RECORD_BYTES]), None);
        assert_eq!(Record::decode(*b"typed by a user\n"), None);
        for group in [i32::MIN, -5, 0, 1] {
            let mut bytes = Record::Add { token: 1, group: Pid::INIT }.encode();
            bytes[4..8].copy_from_slice(&group.to_le_bytes());
            assert_eq!(Record::decode(bytes), None, "{group}");
        }
    }
}
