//! The names of commands' logs, and the days that they are sorted by. Pure.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Longest name before the hash and the ending, in bytes.
const NAME_BYTES_MAX: usize = 200;
const DAY_SECONDS: i64 = 86_400;

/// A day, in days since 1970, UTC. Shown as `2026-11-21`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day(pub i64);

impl Day {
    /// The day of a time.
    pub fn of(time: SystemTime) -> Self {
        Self(seconds(time).div_euclid(DAY_SECONDS))
    }

    /// Reads a day as it is shown; `None`: it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '-').map(|part| part.parse::<i64>().ok());
        let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
        let parsed = Self::from_date(year, month, day);
        ((0..=9_999).contains(&year) && parsed.to_string() == text).then_some(parsed)
    }

    /// Days from 1970 to a date: years begin in March, so that a leap day is a year's last.
    fn from_date(year: i64, month: i64, day: i64) -> Self {
        let year = if month <= 2 { year - 1 } else { year };
        let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let month_from_march = (month + 9).rem_euclid(12);
        let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        Self(era * 146_097 + day_of_era - 719_468)
    }

    /// Year, month and day: [`Day::from_date`] backwards.
    fn date(self) -> (i64, i64, i64) {
        let days = self.0 + 719_468;
        let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
        let year_of_era = (day_of_era - leap_days) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = (month_from_march + 2) % 12 + 1;
        (year_of_era + era * 400 + i64::from(month <= 2), month, day)
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.date();
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

pub fn time_of_day(time: SystemTime) -> String {
    let second = seconds(time).rem_euclid(DAY_SECONDS);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{}T{hour:02}:{minute:02}:{second:02}Z", Day::of(time))
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    i64::try_from(since).unwrap_or(i64::MAX)
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
    use std::time::Duration;

    use super::*;

    /// Days are shown as dates and read back, over leap years and centuries.
    #[test]
    fn days_are_dates() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(time_of_day(at(0)), "1970-01-01T00:00:00Z");
        assert_eq!(time_of_day(at(951_782_399)), "2000-02-28T23:59:59Z");
        assert_eq!(time_of_day(at(951_782_400)), "2000-02-29T00:00:00Z");
        assert_eq!(time_of_day(at(1_795_266_309)), "2026-11-21T13:05:09Z");
        for day in (0..300_000).step_by(17) {
            assert_eq!(Day::parse(&Day(day).to_string()), Some(Day(day)));
        }
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
            assert_eq!(Day::parse(wrong), None, "{wrong}");
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
