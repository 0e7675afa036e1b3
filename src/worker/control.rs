//! The file in which a job's command asks for things (`SHIFTBOSS_CONTROL`): a pause of its group, a longer delay, another
//! time for its task. Lines as in `group-wait=120s`.
//!
//! Each job has a file of its own, so what an earlier one left running cannot write there; [`source`](super::source) reads
//! it when the command has ended. Without a disk for it, commands have none.

use std::cell::Cell;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use shiftboss_protocol::verbs::{ASKED_SECONDS_MAX, Asks};
use tempfile::TempPath;
use tracing::warn;

use crate::runner::payload::file_to_write;
use crate::text::cut;

/// What a longer file has behind that is not read.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// What of a line that is unknown is said.
const LINE_SHOWN: usize = 100;
/// For how long a delay holds if the command does not say.
const DELAY_LASTS: &str = "1day";

#[derive(Default)]
pub struct Control {
    /// That of the present job.
    file: Cell<Option<(TempPath, File)>>,
}

impl Control {
    /// The path of an empty file.
    pub fn begin(&self) -> Option<OsString> {
        let failed = |error: &io::Error| warn!(%error, "A command has no SHIFTBOSS_CONTROL.");
        let (path, file) = file_to_write().inspect_err(failed).ok()?;
        let name = path.as_os_str().to_owned();
        self.file.set(Some((path, file)));
        Some(name)
    }

    /// What the command asked for that has just ended.
    pub fn asks(&self, key: &str) -> Asks {
        let Some((path, _file)) = self.file.take() else { return Asks::NOTHING };
        let unread = |error: &io::Error| warn!(key, %error, "SHIFTBOSS_CONTROL cannot be read.");
        let text = read(&path).inspect_err(unread).unwrap_or_default();
        let (mut asks, mut unknown) = (Asks::NOTHING, None);
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match asked(asks, line) {
                Some(more) => asks = more,
                None => unknown = unknown.or(Some(line)),
            }
        }
        if let Some(line) = unknown {
            let line = cut(line, LINE_SHOWN);
            warn!(key, line, "A command asked for what is unknown: see SHIFTBOSS_CONTROL.");
        }
        asks
    }
}

/// By its path: a command may have put another file there, or what is no file.
fn read(path: &Path) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// One line; `None`: it is none.
fn asked(asks: Asks, line: &str) -> Option<Asks> {
    let Some((word, value)) = line.split_once('=') else { return asks.with(line) };
    let (time, lasts) = value.split_once(" for=").unwrap_or((value, DELAY_LASTS));
    let time = seconds(time)?;
    match word.trim() {
        "group-delay" => asks.with(&format!("group-delay={time}/{}", seconds(lasts)?)),
        word => asks.with(&format!("{word}={time}")),
    }
}

/// A time such as `120s`, or a number of seconds, as servers send it; rounded up.
fn seconds(text: &str) -> Option<u64> {
    let seconds = match text.trim().parse() {
        Ok(seconds) => seconds,
        Err(_) => {
            let time = humantime::parse_duration(text.trim()).ok()?;
            time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
        }
    };
    // Whatever a server wants.
    Some(seconds.min(ASKED_SECONDS_MAX.into()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[test]
    fn commands_ask_for_what_they_write() {
        let control = Control::default();
        assert_eq!(control.asks("a"), Asks::NOTHING);
        let path = control.begin().unwrap();
        let text =
            "group-wait=120\ngroup-delay = 1\n group-delay=1500ms for=7days\nnot-before=2h\n";
        fs::write(&path, text).unwrap();
        let right = Asks {
            group_wait: Some(120),
            group_delay: Some((2, 604_800)),
            not_before: Some(7_200),
            forget_group: false,
        };
        assert_eq!(control.asks("a"), right);
        assert!(!fs::exists(&path).unwrap());
        control.begin().unwrap();
        assert_eq!(control.asks("a"), Asks::NOTHING);
        let path = control.begin().unwrap();
        fs::write(&path, "group-wait=18446744073709551615s 1ns").unwrap();
        assert_eq!(control.asks("a").group_wait, Some(ASKED_SECONDS_MAX));
        let path = control.begin().unwrap();
        let other = path.clone().into_string().unwrap() + ".new";
        fs::write(&other, "group-wait=1").unwrap();
        fs::rename(&other, &path).unwrap();
        assert_eq!(control.asks("a").group_wait, Some(1));
        let path = control.begin().unwrap();
        fs::remove_file(&path).unwrap();
        mknodat(CWD, Path::new(&path), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(control.asks("a"), Asks::NOTHING);
        let path = control.begin().unwrap();
        fs::write(&path, "group-delay=5\nforget-group").unwrap();
        let right = Asks { group_delay: Some((5, 86_400)), forget_group: true, ..Asks::NOTHING };
        assert_eq!(control.asks("a"), right);
    }
}
