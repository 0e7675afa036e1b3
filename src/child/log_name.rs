//! The names of commands' logs, and the days that they are sorted by. Pure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest name before the hash and the ending, in bytes.
const NAME_BYTES_MAX: usize = 200;
/// The last time that is shown: 9999-12-31T23:59:59Z.
const SHOWN_MAX: Duration = Duration::from_secs(253_402_300_799);

/// A time as `2026-11-21T13:05:09Z`.
pub fn timestamp(time: SystemTime) -> String {
    let time = time.clamp(UNIX_EPOCH, UNIX_EPOCH + SHOWN_MAX);
    humantime::format_rfc3339_seconds(time).to_string()
}

/// The day of a time as `2026-11-21`, in UTC. Days are sorted as texts are.
pub fn day(time: SystemTime) -> String {
    timestamp(time)[..10].to_owned()
}

pub fn is_day(text: &str) -> bool {
    text.len() == 10 && humantime::parse_rfc3339(&format!("{text}T00:00:00Z")).is_ok()
}

/// The file name of a key's logs. Two keys have two names; one that is cut off ends with a hash of
/// the whole.
pub fn file_name(key: &[u8]) -> String {
    let mut name = String::new();
    for (index, byte) in key.iter().enumerate() {
        let encoded = encoded(*byte, index == 0);
        if name.len() + encoded.len() > NAME_BYTES_MAX {
            // No key is encoded with a tilde.
            return format!("{name}~{:016x}.log", hash(key));
        }
        name.push_str(&encoded);
    }
    format!("{name}.log")
}

/// A byte of a key; a dot in front would hide the file.
fn encoded(byte: u8, is_first: bool) -> String {
    match byte {
        b'.' if is_first => "%2E".to_owned(),
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    }
}

/// FNV-1a. Names that were made to collide share a file, in which each command still says its key.
fn hash(bytes: &[u8]) -> u64 {
    let (start, factor) = (0xcbf2_9ce4_8422_2325_u64, 0x0000_0100_0000_01b3);
    bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Days are shown as dates, and nothing else is one.
    #[test]
    fn days_are_dates() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(timestamp(at(951_782_400)), "2000-02-29T00:00:00Z");
        assert_eq!(day(at(1_795_266_309)), "2026-11-21");
        assert_eq!(day(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01");
        assert_eq!(day(at(1 << 60)), "9999-12-31");
        assert!(is_day("2026-11-21") && is_day("2000-02-29"));
        for wrong in [
            "",
            "2026-02-30",
            "2026-1-1",
            "2026-01-01x",
            "x",
            "2026-01",
            "2026-13-01",
            "+026-01-01",
        ] {
            assert!(!is_day(wrong), "{wrong}");
        }
    }

    /// Names are short, harmless, and as different as the keys.
    #[test]
    fn names_are_safe_and_different() {
        assert_eq!(file_name(b"python3Packages.requests-2_1"), "python3Packages.requests-2_1.log");
        assert_eq!(file_name(b".."), "%2E..log");
        assert_eq!(file_name("a/é~%\0\n".as_bytes()), "a%2F%C3%A9%7E%25%00%0A.log");
        let long = |last: u8| file_name(&[[b'/'; 4_095].as_slice(), &[last]].concat());
        assert_eq!(long(1).len(), 198 + "~0123456789abcdef.log".len());
        assert_ne!(long(1), long(2));
        assert!(!file_name(&[b'a'; 200]).contains('~') && file_name(&[b'a'; 201]).contains('~'));
    }
}
