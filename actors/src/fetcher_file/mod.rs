//! Fetcher files (spec 4): what their names mean, and the rows their bytes hold.
//!
//! Pure: it is fed names and bytes and gives rows. The tails and `shiftboss check` read with
//! it, so both see the same. It opens no file, logs nothing and knows no actor.

mod lines;
#[cfg(test)]
mod lines_tests;
mod name;

pub use lines::{LINE_MAX_BYTES, Line, LineReader, SkipReason};
pub use name::{BadName, FileName, NameFault, Named};

use md5::{Digest, Md5};

/// How many bytes before a stored position its checksum covers, at most (spec 4, "At start").
pub const CHECKSUM_BYTES: usize = 4 * 1024;

/// The checksum of the bytes before a position: the first eight bytes of their MD5,
/// little-endian. The caller picks the (up to [`CHECKSUM_BYTES`]) bytes.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    let digest = Md5::digest(bytes);
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checksum is that of MD5 as published (RFC 1321: "" and "abc").
    #[test]
    fn the_checksum_is_the_head_of_md5() {
        assert_eq!(
            checksum(b"").to_le_bytes(),
            0xd41d_8cd9_8f00_b204_u64.to_be_bytes()
        );
        assert_eq!(
            checksum(b"abc").to_le_bytes(),
            0x9001_5098_3cd2_4fb0_u64.to_be_bytes()
        );
    }
}
