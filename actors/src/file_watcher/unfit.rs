//! Names that are left out: noted once in the log, and in status for as long as they are there.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

use tracing::{debug, error, warn};

use super::FileWatcherActor;
use super::entry::{Entry as RunEntry, Phase};
use crate::directory::{Entry, FileState};
use crate::watch::Happened;
use shiftboss_protocol::fetcher_file::{FileName, Named};
use shiftboss_protocol::model::Run;

impl FileWatcherActor {
    /// An event of a bad name.
    pub(super) fn note_bad_name(&mut self, name: &OsStr, happened: Happened, reason: String) {
        if matches!(happened, Happened::Removed | Happened::MovedAway(_)) {
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

    /// A run's file keeps failing: says so in status until it is read, and in the log unless that
    /// is known.
    pub(super) fn set_aside(&mut self, run: &Run, reason: &str) {
        let Some(entry) = self.runs.get_mut(run) else {
            return;
        };
        let name = escaped(entry.file_name().as_ref());
        let before = entry.aside.replace(name.clone());
        if let Some(before) = before.filter(|before| *before != name) {
            self.notes.clear_aside(&before);
        }
        if self.notes.set_aside(name, reason) {
            error!(%run, reason, "The run's file keeps failing and is set aside.");
        } else {
            debug!(%run, reason, "The run's file fails as before and stays set aside.");
        }
    }

    /// The run whose file of that name is set aside: what kept it from being read may be over.
    pub(super) fn set_aside_under(&self, name: &OsStr) -> Option<Run> {
        let Named::Fetcher(file) = FileName::parse(name) else {
            return None;
        };
        let aside = |run: &Run| {
            self.runs.get(run).is_some_and(|entry| matches!(entry.phase, Phase::Aside(_)))
        };
        Some(file.run).filter(aside)
    }

    /// A run's file was read, or is gone: it is not set aside any longer.
    pub(super) fn take_back(&mut self, run: &Run) {
        if let Some(name) = self.runs.get_mut(run).and_then(|entry| entry.aside.take()) {
            self.notes.clear_aside(&name);
        }
    }

    /// Takes back the notes about files that were tried again, and read.
    pub(super) fn take_back_sound(&mut self) {
        let sound = |entry: &RunEntry| entry.aside.is_some() && entry.sound.get();
        let sound: Vec<Run> = self
            .runs
            .iter()
            .filter(|(_, entry)| sound(entry))
            .map(|(run, _)| run.clone())
            .collect();
        sound.iter().for_each(|run| self.take_back(run));
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
