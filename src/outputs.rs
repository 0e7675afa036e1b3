//! The output of jobs, in files of workers: found by key and day, and read from their ends. For `shiftboss output`,
//! `top` and the web page. Which attempts are in a file, by the index beside it: [`attempts`]; how it is shown:
//! [`screen`].
//!
//! [`runner`](crate::runner) writes them; its `--log-dir` has `DAY/KEY.log`, and another worker may have another order.
//! Keys come from outside and files may be replaced, so a file is only opened beneath the directory, and through no
//! link.

pub mod attempts;
pub mod ends;
pub mod screen;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use crate::runner::log_directory::{day, file_name};
use crate::runner::log_index;
use crate::safe_file;
use attempts::{Part, parts};

const DAY: Duration = Duration::from_secs(24 * 3_600);
/// How many days back from today the latest output is looked for.
const DAYS_MAX: u32 = 400;

/// Where outputs are: a directory, and below it a name with `{day}` and `{key}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outputs {
    directory: PathBuf,
    name: String,
}

impl FromStr for Outputs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let has = |word| text.matches(word).count() == 1;
        if !has("{day}") || !has("{key}") {
            return Err("{day} and {key} are needed, as in 'logs/{day}/{key}.log'".to_owned());
        }
        let first = text.find('{').unwrap_or_default();
        let (directory, name) = match text[..first].rfind('/') {
            Some(slash) => (&text[..=slash], &text[slash + 1..]),
            None => (".", text),
        };
        Ok(Self { directory: directory.into(), name: name.to_owned() })
    }
}

impl Outputs {
    /// Those of workers with this `--log-dir`.
    pub fn of_log_dir(directory: PathBuf) -> Self {
        Self { directory, name: "{day}/{key}.log".to_owned() }
    }

    /// The file of a key's output of a day, if there is one.
    ///
    /// # Errors
    /// If there is something else in its place, or it cannot be read.
    pub fn open(&self, key: &str, day: &str) -> io::Result<Option<File>> {
        self.open_file(key, day, "")
    }

    /// The attempts in that file, in order; none in one that no worker wrote.
    pub fn parts(&self, key: &str, day: &str, file: &File) -> io::Result<Vec<Part>> {
        self.index(key, day)?.map_or_else(|| Ok(Vec::new()), |index| parts(file, index))
    }

    /// The index of that file, if a worker wrote it.
    pub fn index(&self, key: &str, day: &str) -> io::Result<Option<File>> {
        self.open_file(key, day, log_index::ENDING)
    }

    fn open_file(&self, key: &str, day: &str, ending: &str) -> io::Result<Option<File>> {
        // Its ending is the template's.
        let key = file_name(key.as_bytes());
        let key = key.strip_suffix(".log").unwrap_or(&key);
        let name = self.name.replace("{day}", day).replace("{key}", key) + ending;
        match safe_file::open_beneath(&self.directory, Path::new(&name)) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The newest day that has output of a key.
    pub fn latest(&self, key: &str, now: SystemTime) -> Option<String> {
        days_until(now).find(|day| matches!(self.open(key, day), Ok(Some(_))))
    }
}

/// Days that may have output, the newest one first: a worker's clock may be ahead.
pub fn days_until(now: SystemTime) -> impl Iterator<Item = String> {
    (0..=DAYS_MAX).filter_map(move |back| (now + DAY).checked_sub(DAY * back)).map(day)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode};

    use super::*;

    fn outputs(directory: &Path, name: &str) -> Outputs {
        format!("{}/{name}", directory.display()).parse().unwrap()
    }

    fn read(file: io::Result<Option<File>>) -> Option<String> {
        file.unwrap().map(|file| io::read_to_string(file).unwrap())
    }

    /// Day and key stand in either order; a key's name is as a worker writes it.
    #[test]
    fn a_file_is_found_by_key_and_day() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["logs/2026-11-21", "logs/a%2Fb"] {
            std::fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        let write = |name: &str| std::fs::write(directory.path().join(name), name).unwrap();
        write("logs/2026-11-21/a%2Fb.log");
        write("logs/a%2Fb/2026-11-22.txt");
        let usual = outputs(directory.path(), "logs/{day}/{key}.log");
        let found = read(usual.open("a/b", "2026-11-21"));
        assert_eq!(found.as_deref(), Some("logs/2026-11-21/a%2Fb.log"));
        assert_eq!(read(usual.open("a/b", "2026-11-22")), None);
        let other = outputs(directory.path(), "logs/{key}/{day}.txt");
        let found = read(other.open("a/b", "2026-11-22"));
        assert_eq!(found.as_deref(), Some("logs/a%2Fb/2026-11-22.txt"));
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_305_600) + DAY * 30;
        assert_eq!(other.latest("a/b", now).as_deref(), Some("2026-11-22"));
        for wrong in ["logs/{day}.log", "{key}/{key}/{day}", ""] {
            assert!(wrong.parse::<Outputs>().is_err(), "{wrong}");
        }
    }

    /// No link is followed, nothing outside is read, and no pipe is waited for.
    #[test]
    fn nothing_else_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::create_dir_all(path("logs/2026-11-21")).unwrap();
        std::fs::write(path("secret.log"), "secret").unwrap();
        symlink("../../secret.log", path("logs/2026-11-21/link.log")).unwrap();
        symlink("2026-11-21", path("logs/2026-11-20")).unwrap();
        std::fs::write(path("logs/2026-11-21/a.log"), "a").unwrap();
        nix_fifo(&path("logs/2026-11-21/pipe.log"));
        let outputs = outputs(directory.path(), "logs/{day}/{key}.log");
        for (key, day) in [("link", "2026-11-21"), ("pipe", "2026-11-21"), ("a", "2026-11-20")] {
            assert!(outputs.open(key, day).is_err(), "{key}");
        }
        assert_eq!(read(outputs.open("../../secret", "2026-11-21")), None);
        assert!(outputs.open("a", "..").is_err());
        assert!(outputs.open("a", "../..").is_err());
        assert!(outputs.open("a", "2026-11-21").is_ok_and(|file| file.is_some()));
    }

    fn nix_fifo(path: &Path) {
        rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }
}
