//! Files with the output of commands: `DIRECTORY/2026-11-21/KEY.log`, one for each key and day (UTC). A command holds
//! the file itself and writes to it; this module adds what was run, when, and how it ended. Where attempts begin and
//! end is also in the index beside it ([`super::log_index`]), because a command could write the same lines. Used by
//! [`super::command`]; only the source of jobs knows what a key is.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
use tracing::warn;

use super::log_index::{self, Record};
use crate::child::Output;
use crate::escape::shown_bytes;
use crate::hash::fnv;
use crate::safe_file;

/// Most bytes of a command that are shown in its log.
const COMMAND_BYTES_MAX: usize = 4 * 1024;
/// Longest name of a file before the hash and the ending, in bytes.
const NAME_BYTES_MAX: usize = 200;
/// The last time that is shown: 9999-12-31T23:59:59Z.
const SHOWN_MAX: Duration = Duration::from_secs(253_402_300_799);

#[derive(Debug, Clone)]
pub struct LogDirectory {
    pub(super) path: PathBuf,
    pub(super) keep: Duration,
}

#[derive(Debug)]
pub struct CommandLog {
    file: File,
    index: File,
    /// Position of the line before its output.
    begin: u64,
    path: PathBuf,
    started: SystemTime,
}

impl LogDirectory {
    /// Makes the directory if there is none. Logs older than `keep`, in whole days, are removed.
    pub fn new(path: PathBuf, keep: Duration) -> io::Result<Self> {
        fs::create_dir_all(&path)?;
        Ok(Self { path, keep })
    }

    /// Opens a key's log, and writes what is about to be run.
    pub fn open<'a>(
        &self,
        key: &[u8],
        attempt: Option<i64>,
        command: impl Iterator<Item = &'a OsString>,
        now: SystemTime,
    ) -> io::Result<(Output, CommandLog)> {
        let day = day(now);
        // It may have been removed.
        fs::create_dir_all(&self.path)?;
        let directory = safe_file::directory(&self.path)?;
        let directory = safe_file::subdirectory(&directory, day.as_ref())?;
        let name = file_name(key);
        let (mut file, _) = safe_file::open_own(&directory, name.as_ref(), OFlags::APPEND, 0o666)?;
        let index = name.clone() + log_index::ENDING;
        let (mut index, _) =
            safe_file::open_own(&directory, index.as_ref(), OFlags::APPEND, 0o666)?;
        let (time, line_end) = (timestamp(now), line_end(&file));
        let of = attempt.map(|attempt| format!(" attempt {attempt}")).unwrap_or_default();
        let head = format!("=== {time}{of} of {}: {}\n", shown_bytes(key), shown(command));
        file.write_all((line_end.to_owned() + &head).as_bytes())?;
        let begin = file.stream_position()?.saturating_sub(head.len() as u64);
        Record::Begin { at: begin, time, attempt }.append(&mut index)?;
        let output = Output::File(file.try_clone()?);
        let path = self.path.join(day).join(name);
        Ok((output, CommandLog { file, index, begin, path, started: now }))
    }
}

impl CommandLog {
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn end(&mut self, ending: &str, exit_code: Option<u8>, now: SystemTime) {
        let took = now.duration_since(self.started).unwrap_or_default();
        let (time, took) = (timestamp(now), took.as_secs_f64());
        let tail = format!("{}=== {time} {ending}, after {took:.1}s\n", line_end(&self.file));
        let mut write = || {
            self.file.write_all(tail.as_bytes())?;
            let (of, at) = (self.begin, self.file.stream_position()?);
            Record::End { of, at, words: ending.to_owned(), exit_code }.append(&mut self.index)
        };
        if let Err(error) = write() {
            warn!(%error, "The end of a command's log cannot be written.");
        }
    }
}

/// What must precede an appended line: the end of the line before, if that has none.
fn line_end(file: &File) -> &'static str {
    let mut last = [b'\n'];
    if let Ok(length) = file.metadata().map(|meta| meta.size())
        && let Some(at) = length.checked_sub(1)
    {
        // If it cannot be read, it counts as a line's end.
        let _ = file.read_at(&mut last, at);
    }
    if last == *b"\n" { "" } else { "\n" }
}

/// A command in one line.
fn shown<'a>(command: impl Iterator<Item = &'a OsString>) -> String {
    let words = command.map(|word| shown_bytes(word.as_encoded_bytes()));
    let mut shown = words.collect::<Vec<_>>().join(" ");
    if shown.len() > COMMAND_BYTES_MAX {
        shown.truncate(shown.floor_char_boundary(COMMAND_BYTES_MAX));
        shown.push_str("...");
    }
    shown
}

/// A time as `2026-11-21T13:05:09Z`.
fn timestamp(time: SystemTime) -> String {
    let time = time.clamp(UNIX_EPOCH, UNIX_EPOCH + SHOWN_MAX);
    humantime::format_rfc3339_seconds(time).to_string()
}

/// The day of a time as `2026-11-21`, in UTC. Days sort like texts.
pub fn day(time: SystemTime) -> String {
    timestamp(time)[..10].to_owned()
}

pub fn is_day(text: &str) -> bool {
    text.len() == 10 && humantime::parse_rfc3339(&format!("{text}T00:00:00Z")).is_ok()
}

/// The file name of a key's logs. Different keys have different names; a name that is cut off ends with a hash of the
/// whole.
pub fn file_name(key: &[u8]) -> String {
    let mut name = String::new();
    for byte in key {
        // A leading dot would hide the file.
        let is_plain = byte.is_ascii_alphanumeric()
            || b"_-".contains(byte)
            || (*byte == b'.' && !name.is_empty());
        let encoded = if is_plain { char::from(*byte).to_string() } else { format!("%{byte:02X}") };
        if name.len() + encoded.len() > NAME_BYTES_MAX {
            // The encoding of a key never contains a tilde.
            return format!("{name}~{:016x}.log", fnv(key));
        }
        name.push_str(&encoded);
    }
    format!("{name}.log")
}

/// The key that a log's name stands for: its bytes, as far as the name has them, and whether it is cut off. `None`: not
/// the name of a log.
pub fn key_in(name: &str) -> Option<(Vec<u8>, bool)> {
    let encoded = name.strip_suffix(".log")?;
    let (encoded, is_cut) = encoded.split_once('~').map_or((encoded, false), |(it, _)| (it, true));
    let mut bytes = Vec::new();
    let mut left = encoded.as_bytes();
    while let Some((first, rest)) = left.split_first() {
        let code = rest.get(..2).filter(|_| *first == b'%');
        let byte = code.map(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        bytes.push(byte.map_or(Some(*first), |byte| byte)?);
        left = if code.is_some() { &rest[2..] } else { rest };
    }
    (is_cut || file_name(&bytes) == name).then_some((bytes, is_cut))
}

/// Whether `bytes` is the beginning of a log of such a key ([`key_in`]).
pub(super) fn is_head_of((key, is_cut): &(Vec<u8>, bool), bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let has_time = |time: &&str| humantime::parse_rfc3339(time).is_ok();
    let time = text.strip_prefix("=== ").and_then(|text| text.split_once(' '));
    let Some((_, rest)) = time.filter(|(time, _)| has_time(time)) else { return false };
    let of = match rest.strip_prefix("attempt ").and_then(|rest| rest.split_once(' ')) {
        Some((number, of)) if number.parse::<i64>().is_ok() => of,
        _ => rest,
    };
    let key_begins = shown_bytes(key) + ": ";
    of.strip_prefix("of ").is_some_and(|it| *is_cut || it.starts_with(&key_begins))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new day has a new file; the end goes where it began.
    #[test]
    fn a_new_day_has_a_new_file() {
        let directory = tempfile::tempdir().unwrap();
        let logs = LogDirectory::new(directory.path().join("logs"), Duration::ZERO).unwrap();
        let command = ["sh".into(), "\x1b".into()];
        let midnight = UNIX_EPOCH + Duration::from_secs(1_795_305_600);
        let before = midnight - Duration::from_millis(1_500);
        let (_, mut log) = logs.open(b"a\n", Some(7), command.iter(), before).unwrap();
        let (_, mut next) = logs.open(b"a\n", Some(7), command.iter(), midnight).unwrap();
        log.end("exit code 0", Some(0), midnight);
        next.end("exit code 1", Some(1), midnight);
        let text = |day| fs::read_to_string(logs.path.join(day).join("a%0A.log")).unwrap();
        let head = "attempt 7 of a\\n: sh \\u{1b}\n===";
        for (day, began, ended) in [
            ("2026-11-21", "2026-11-21T23:59:58Z", "exit code 0, after 1.5s"),
            ("2026-11-22", "2026-11-22T00:00:00Z", "exit code 1, after 0.0s"),
        ] {
            assert_eq!(text(day), format!("=== {began} {head} 2026-11-22T00:00:00Z {ended}\n"));
        }
        logs.sweep(midnight).unwrap();
        assert!(!logs.path.join("2026-11-21").exists() && logs.path.join("2026-11-22").exists());
    }

    /// Days are shown as dates, and nothing else is taken for one.
    #[test]
    fn days_are_dates() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(timestamp(at(951_782_400)), "2000-02-29T00:00:00Z");
        assert_eq!(day(at(1_795_266_309)), "2026-11-21");
        assert_eq!(day(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01");
        assert_eq!(day(at(1 << 60)), "9999-12-31");
        assert!(is_day("2026-11-21") && is_day("2000-02-29"));
        let wrong = "|2026-02-30|2026-1-1|2026-01-01x|x|2026-01|2026-13-01|+026-01-01";
        for wrong in wrong.split('|') {
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
