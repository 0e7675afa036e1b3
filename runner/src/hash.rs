//! A short hash of bytes, the same in every version: it is part of file names and of entries' identities.

/// FNV-1a. It is not collision-resistant.
pub fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
