//! The ends of files of outputs, and of attempts in them: what a page shows, which is not to be long.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::time::{Duration, SystemTime};

use super::{DAY, Outputs};
use crate::runner::log_directory::day;

impl Outputs {
    /// The day that has the output of an attempt, which was handed out at that second: its worker began it then, or on the next day.
    pub fn day_of(&self, key: &str, started: i64) -> Option<String> {
        let started = Duration::from_secs(started.try_into().ok()?);
        let begins = [started, started.saturating_add(DAY)].into_iter();
        let mut days = begins.filter_map(|it| SystemTime::UNIX_EPOCH.checked_add(it)).map(day);
        days.find(|day| matches!(self.open(key, day), Ok(Some(_))))
    }

    /// The end of the output of a key's jobs on a day; or of an attempt, the last one with its number, with the lines
    /// before and after it that say what was run and how it ended.
    pub fn end(
        &self,
        key: &str,
        day: &str,
        attempt: Option<i64>,
        bytes_max: u64,
    ) -> io::Result<Option<End>> {
        let Some(mut file) = self.open(key, day)? else { return Ok(None) };
        if attempt.is_none() {
            return end_of(&mut file, bytes_max).map(Some);
        }
        let parts = self.parts(key, day, &file)?;
        let Some(part) = parts.into_iter().rfind(|part| part.attempt == attempt) else {
            return Ok(None);
        };
        let end = part.end(file.metadata()?.len());
        let start = end.saturating_sub(bytes_max).max(part.begin);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(end.saturating_sub(start)).read_to_end(&mut bytes)?;
        Ok(Some(End { bytes, is_cut: start > part.begin }))
    }
}

/// The end of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct End {
    pub bytes: Vec<u8>,
    /// There is more before it.
    pub is_cut: bool,
}

/// A file, positioned so that at most `bytes_max` bytes follow.
pub fn start_of_end(mut file: File, bytes_max: u64) -> io::Result<File> {
    seek_end(&mut file, bytes_max).map(|_| file)
}

fn seek_end(file: &mut File, bytes_max: u64) -> io::Result<u64> {
    let start = file.metadata()?.len().saturating_sub(bytes_max);
    file.seek(SeekFrom::Start(start))
}

/// The last bytes of a file, at most `bytes_max`, from the beginning of a line on.
fn end_of(file: &mut File, bytes_max: u64) -> io::Result<End> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::Output;
    use crate::runner::log_directory::LogDirectory;

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

    /// The end is whole lines; of several attempts one is found, also while it runs, however long it is.
    #[test]
    fn ends_and_attempts() {
        let directory = tempfile::tempdir().unwrap();
        let logs = LogDirectory::new(directory.path().to_owned(), Duration::ZERO).unwrap();
        let open = |number| {
            logs.open(b"a", Some(number), ["x".into()].iter(), SystemTime::UNIX_EPOCH).unwrap()
        };
        let write = |output: Output, text: &str| {
            let Output::File(mut file) = output else { unreachable!() };
            io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        };
        let t = "1970-01-01T00:00:00Z";
        let (output, mut log) = open(7);
        write(output, &"x".repeat(18_000_000));
        log.end("exit code 0", Some(0), SystemTime::UNIX_EPOCH);
        write(open(8).0, &format!("=== {t} exit code 1, after 1.0s\nno line"));
        let outputs = Outputs::of_log_dir(directory.path().to_owned());
        let end = |attempt, max| {
            let end = outputs.end("a", "1970-01-01", attempt, max).unwrap()?;
            Some((String::from_utf8(end.bytes).unwrap(), end.is_cut))
        };
        assert_eq!(end(None, 12), Some(("no line".to_owned(), true)));
        let tail = format!("x\n=== {t} exit code 0, after 0.0s\n");
        assert_eq!(end(Some(7), tail.len() as u64), Some((tail, true)));
        assert_eq!(end(Some(9), 1_000), None);
        let running =
            format!("=== {t} attempt 8 of a: x\n=== {t} exit code 1, after 1.0s\nno line");
        assert_eq!(end(Some(8), 1_000), Some((running.clone(), false)));
        let (_, mut log) = open(9);
        log.end("exit code 0", Some(0), SystemTime::UNIX_EPOCH);
        assert_eq!(end(Some(8), 1_000), Some((running + "\n", false)), "its worker died");
    }
}
