//! Ranges of keys: which of the queues for rows those of a key go through.
//!
//! A relay groups rows by them, and a daemon refuses rows that are not of their queue's range. The rule is part of the messages
//! (docs/broker.md): it never changes, for the order of a key's rows is that of one queue.

use sha2::{Digest, Sha256};
use shiftboss_protocol::model::Key;
use shiftboss_queue::operation::RANGES;

/// The first eight bytes of the key's SHA-256, big-endian, modulo [`RANGES`]: that is the last of them.
pub(crate) fn range_of(key: &Key) -> u8 {
    Sha256::digest(key.as_str().as_bytes())[7] % RANGES
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another implementation's: `printf %s KEY | sha256sum`, the sixteenth digit.
    #[test]
    fn ranges_are_as_documented() {
        let known = [("alpha", 0xe), ("bravo", 0xd), ("python3Packages.requests", 0x3), ("é", 0x3)];
        for (key, range) in known {
            assert_eq!(range_of(&Key::new(key).unwrap()), range, "{key}");
        }
    }
}
