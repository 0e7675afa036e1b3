//! Names that are left out: noted once in the log, and in status for as long as they are there.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

use tracing::warn;

use super::FileWatcherActor;
use crate::directory::{Entry, FileState};
use crate::watch::Happened;

impl FileWatcherActor {
    pub(super) fn note_bad_name(&mut self, name: &OsStr, happened: Happened, reason: String) {
        if matches!(happened, Happened::Removed | Happened::MovedAway) {
            self.is_fit(name);
        } else {
            self.leave_out(name, reason);
        }
    }

    /// The file found under a name, unless it is something that is never read.
    pub(super) fn fit(&mut self, name: &str, entry: Entry) -> Option<FileState> {
        match entry {
            Entry::File(state) => {
                self.is_fit(name.as_ref());
                Some(state)
            }
            Entry::Absent => {
                self.is_fit(name.as_ref());
                None
            }
            Entry::Unfit(reason) => {
                self.leave_out(name.as_ref(), reason);
                None
            }
        }
    }

    /// Says once, in the log and in status, that a name is left out.
    pub(super) fn leave_out(&mut self, name: &OsStr, reason: String) {
        if self.unfit.get(name) == Some(&reason) {
            return;
        }
        let shown = escaped(name);
        warn!(file = shown, reason, "An input file is set aside.");
        self.notes.set_aside(shown, &reason);
        self.unfit.insert(name.to_owned(), reason);
    }

    fn is_fit(&mut self, name: &OsStr) {
        if self.unfit.remove(name).is_some() {
            self.notes.clear_aside(&escaped(name));
        }
    }

    /// Takes back the notes about names that are no longer there.
    pub(super) fn forget_unfit(&mut self, names: &[OsString]) {
        let there: BTreeSet<&OsString> = names.iter().collect();
        let gone: Vec<_> =
            self.unfit.keys().filter(|name| !there.contains(name)).cloned().collect();
        for name in gone {
            self.is_fit(&name);
        }
    }
}

/// A name as text: control characters and bytes that are not UTF-8 escaped.
pub(super) fn escaped(name: &OsStr) -> String {
    name.as_encoded_bytes().escape_ascii().to_string()
}
