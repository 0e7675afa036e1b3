//! Names and lines of fetcher files (spec 4). Pure: names and bytes in, runs and rows out.
//!
//! The watcher parses names, the run reader feeds bytes, `shiftboss check` does both. No file is
//! touched here.

mod content;
mod lines;
mod name;

use md5::{Digest, Md5};

pub use crate::task_line::{LINE_MAX_BYTES, SkipReason};
pub use content::Content;
pub use lines::{Line, LineReader};
pub use name::{FileName, NameFault, Named};

/// Bytes before a stored position that its checksum covers (spec 4, "At start").
pub const CHECKSUM_BYTES: usize = 4096;

/// A checksum that shows whether a file is still the one that was read: the first eight bytes of the MD5,
/// little-endian.
pub fn checksum(bytes: &[u8]) -> u64 {
    u128::from_le_bytes(Md5::digest(bytes).into()) as u64
}
