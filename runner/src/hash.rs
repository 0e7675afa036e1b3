//! A short number for bytes, the same in every version: it stands in names of files, and in identities of entries.

/// FNV-1a. Nobody is kept from finding bytes that have the same.
pub fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
