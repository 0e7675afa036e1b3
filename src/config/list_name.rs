//! The names that a list may have: those of fetchers whose files the daemon reads. Pure.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shiftboss_protocol::fetcher_file::{FileName, Named};
use shiftboss_protocol::model::{Run, TASKS_FETCHER};

use crate::lock;

const FILE_NAME_BYTES_MAX: usize = 255;

/// The name of a list, of which files can be named.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListName(Arc<str>);

impl ListName {
    /// The name, or why it is invalid.
    pub fn new(text: &str) -> Result<Self, String> {
        if text == TASKS_FETCHER {
            return Err(format!(
                "a list cannot be called {TASKS_FETCHER}: that name is reserved for single tasks"
            ));
        }
        let parsed = FileName::parse(OsStr::new(&format!("{text}.0.txt")));
        let is_named = matches!(parsed, Named::Fetcher(file) if *file.run.fetcher == *text);
        if !is_named || text.contains(['/', '\0']) {
            return Err("a list's name is not empty, and has no dot, slash or NUL in it".to_owned());
        }
        let longest_suffix = format!(".{}.txt.part", i64::MAX).len();
        let (length, max) = (text.len(), FILE_NAME_BYTES_MAX - longest_suffix);
        if length > max {
            return Err(format!(
                "a list's name has {max} bytes at most, and this one has {length}"
            ));
        }
        Ok(Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same, to be kept elsewhere.
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }

    pub fn file(&self, stamp: i64, growing: bool) -> String {
        Run { fetcher: Arc::clone(&self.0), started: stamp }.file_name(growing)
    }

    /// Reads the name of a file of this list; `None` for any other.
    pub fn parse(&self, file: &OsStr) -> Option<(i64, bool)> {
        match FileName::parse(file) {
            Named::Fetcher(file) if file.run.fetcher == self.0 => {
                Some((file.run.started, file.growing))
            }
            _ => None,
        }
    }

    /// The file that is locked while the list is fetched. The daemon passes such names over.
    pub fn lock_file(&self) -> String {
        format!(".{}.fetch.lock", self.0)
    }

    /// The file that a list is written to until it is whole. The daemon passes it over.
    pub fn draft_file(&self) -> String {
        format!(".{}.fetch.part", self.0)
    }

    /// The file that names what changed before a run of the daemon's, for its command: beside the database, or the
    /// socket if the database is on a server. Only the daemon writes there.
    pub fn changed_file(&self, beside: &Path) -> PathBuf {
        lock::hidden(beside, &format!("{}.changed", self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names are the daemon's, and whatever is made of them can be a file.
    #[test]
    fn names_are_fetchers_names() {
        for bad in ["", "a.b", ".a", "a/b", "/", "a\0b"] {
            assert!(ListName::new(bad).unwrap_err().contains("is not empty"), "{bad:?}");
        }
        assert!(ListName::new("@tasks").unwrap_err().contains("reserved"));
        for good in ["f", "a b\nc", "-", "é"] {
            let name = ListName::new(good).unwrap();
            assert_eq!(name.parse(name.file(7, true).as_ref()), Some((7, true)));
            assert_eq!(name.parse(name.file(8, false).as_ref()), Some((8, false)));
            assert_eq!(name.parse("x.7.txt".as_ref()), None);
            for file in [name.lock_file(), name.draft_file()] {
                assert_eq!(FileName::parse(file.as_ref()), Named::Other, "{file}");
            }
        }
        let long = "n".repeat(226);
        assert_eq!(ListName::new(&long).unwrap().file(i64::MAX, true).len(), 255);
        let refused = ListName::new(&"n".repeat(227)).unwrap_err();
        assert!(refused.contains("226 bytes at most"), "{refused}");
    }
}
