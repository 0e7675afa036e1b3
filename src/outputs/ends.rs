//! The ends of files of outputs, and of attempts in them: what a page shows, which is not to be long.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::time::{Duration, SystemTime};

use super::attempts::parts;
use super::{DAY, Outputs};
use crate::runner::log_directory::day;

/// Of the end of a file in which an attempt's part is looked for.
const SEARCHED_BYTES_MAX: u64 = 16 * 1024 * 1024;

impl Outputs {
    /// The day that has the output of an attempt, which was handed out at that second: its worker began it then, or on the next day.
    pub fn day_of(&self, key: &str, started: i64) -> Option<String> {
        let started = Duration::from_secs(started.try_into().ok()?);
        let begins = [started, started.saturating_add(DAY)].into_iter();
        let mut days = begins.filter_map(|it| SystemTime::UNIX_EPOCH.checked_add(it)).map(day);
        days.find(|day| matches!(self.open(key, day), Ok(Some(_))))
    }
}

/// The end of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct End {
    pub bytes: Vec<u8>,
    /// There is more before it.
    pub is_cut: bool,
}

/// A file, at the place from which on it has so many bytes at the most.
#[cfg(feature = "web")]
pub fn start_of_end(mut file: File, bytes_max: u64) -> io::Result<File> {
    seek_end(&mut file, bytes_max).map(|_| file)
}

fn seek_end(file: &mut File, bytes_max: u64) -> io::Result<u64> {
    let start = file.metadata()?.len().saturating_sub(bytes_max);
    file.seek(SeekFrom::Start(start))
}

/// The last bytes of a file, at most so many, from the beginning of a line on.
pub fn end_of(file: &mut File, bytes_max: u64) -> io::Result<End> {
    let start = seek_end(file, bytes_max)?;
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    if start > 0
        && let Some(line_end) = bytes.iter().position(|byte| *byte == b'\n')
    {
        bytes.drain(..=line_end);
    }
    Ok(End { bytes, is_cut: start > 0 })
}

/// The part of an attempt, the last one with its number, with the lines before and behind it that say what was run and how it ended.
pub fn attempt_in(file: &mut File, attempt: i64, bytes_max: u64) -> io::Result<Option<End>> {
    let from = file.metadata()?.len().saturating_sub(SEARCHED_BYTES_MAX);
    let found = parts(file, from)?.into_iter().rfind(|part| part.attempt == Some(attempt));
    let Some(part) = found else { return Ok(None) };
    let end = match part.ending {
        Some(ending) => ending.at,
        None => file.metadata()?.len(),
    };
    let start = end.saturating_sub(bytes_max).max(part.begin);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(end - start).read_to_end(&mut bytes)?;
    Ok(Some(End { bytes, is_cut: start > part.begin }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An attempt's output is in the file of the day on which its worker began it, or of the next one.
    #[test]
    fn the_day_of_an_attempt() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("2026-11-21")).unwrap();
        std::fs::write(directory.path().join("2026-11-21/a.log"), "").unwrap();
        let outputs = Outputs::of_log_dir(directory.path().to_owned());
        let midnight = 1_795_305_600;
        assert_eq!(outputs.day_of("a", midnight - 1).as_deref(), Some("2026-11-21"));
        assert_eq!(outputs.day_of("a", midnight - 86_401).as_deref(), Some("2026-11-21"));
        assert_eq!((outputs.day_of("a", midnight), outputs.day_of("a", i64::MAX)), (None, None));
    }

    /// The end is whole lines; of several attempts one is found, also while it runs.
    #[test]
    fn ends_and_attempts() {
        let mut file = tempfile::tempfile().unwrap();
        let t = "2026-11-21T00:00:00Z";
        let first = format!("=== {t} attempt 7 of a: x\none\n=== {t} exit code 0, after 1.0s\n");
        let text = format!("{first}=== {t} attempt 8 of a: x\n=== not an end\n");
        io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        let text = |end: End| (String::from_utf8(end.bytes).unwrap(), end.is_cut);
        assert_eq!(text(end_of(&mut file, 20).unwrap()), ("=== not an end\n".to_owned(), true));
        let part =
            |file: &mut File, attempt, max| attempt_in(file, attempt, max).unwrap().map(text);
        assert_eq!(part(&mut file, 7, 1_000), Some((first, false)));
        assert_eq!(part(&mut file, 7, 5), Some(("1.0s\n".to_owned(), true)));
        assert_eq!(part(&mut file, 9, 1_000), None);
        let running = part(&mut file, 8, 1_000).unwrap().0;
        assert!(running.ends_with("attempt 8 of a: x\n=== not an end\n"), "{running}");
    }
}
