//! Names that are left out: noted once in the log, and in status for as long as they are there.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

use tracing::{debug, error, warn};

use super::FileWatcherActor;
use super::entry::Entry as RunEntry;
use super::phase::Phase;
use crate::directory::{Entry, FileState};
use crate::watch::Happened;
use shiftboss_protocol::fetcher_file::{FileName, Named};
use shiftboss_protocol::model::Run;

impl FileWatcherActor {
    /// An event of a bad name.
    pub(super) fn note_bad_name(&mut self, name: &OsStr, happened: Happened, reason: String) {
        if matches!(happened, Happened::Removed | Happened::MovedAway(_)) {
            self.accept_name(name);
        } else {
            self.reject_name(name, reason);
        }
    }

    /// The file found under a name, unless it is something that is never read.
    pub(super) fn accept(&mut self, name: &str, entry: Entry) -> Option<FileState> {
        match entry {
            Entry::File(state) => {
                self.accept_name(name.as_ref());
                Some(state)
            }
            Entry::Absent => {
                self.accept_name(name.as_ref());
                None
            }
            Entry::Unfit(reason) => {
                self.reject_name(name.as_ref(), reason);
                None
            }
        }
    }

    /// Says once, in the log and in status, that a name is left out.
    pub(super) fn reject_name(&mut self, name: &OsStr, reason: String) {
        if self.rejected_names.get(name) == Some(&reason) {
            return;
        }
        let shown = escaped(name);
        warn!(file = shown, reason, "An input file is rejected.");
        self.notes.reject(shown, &reason);
        self.rejected_names.insert(name.to_owned(), reason);
    }

    fn accept_name(&mut self, name: &OsStr) {
        if self.rejected_names.remove(name).is_some() {
            self.notes.clear_rejected(&escaped(name));
        }
    }

    /// A run's file keeps failing: says so in status until it is read, and in the log unless that
    /// is known.
    pub(super) fn reject(&mut self, run: &Run, reason: &str) {
        let Some(entry) = self.runs.get_mut(run) else {
            return;
        };
        let name = escaped(entry.file_name().as_ref());
        let before = entry.rejected_name.replace(name.clone());
        if let Some(before) = before.filter(|before| *before != name) {
            self.notes.clear_rejected(&before);
        }
        if self.notes.reject(name, reason) {
            error!(%run, reason, "The run's file keeps failing and is rejected.");
        } else {
            debug!(%run, reason, "The run's file fails as before and stays rejected.");
        }
    }

    /// The run whose file of that name is rejected: what kept it from being read may be over.
    pub(super) fn rejected_under(&self, name: &OsStr) -> Option<Run> {
        let Named::Fetcher(file) = FileName::parse(name) else {
            return None;
        };
        let is_rejected = |run: &Run| {
            self.runs.get(run).is_some_and(|entry| matches!(entry.phase, Phase::Rejected(_)))
        };
        Some(file.run).filter(is_rejected)
    }

    /// A run's file was read, or is gone: it is not rejected any longer.
    pub(super) fn take_back(&mut self, run: &Run) {
        if let Some(name) = self.runs.get_mut(run).and_then(|entry| entry.rejected_name.take()) {
            self.notes.clear_rejected(&name);
        }
    }

    /// Takes back the notes about files that were tried again, and read.
    pub(super) fn take_back_sound(&mut self) {
        let sound = |entry: &RunEntry| entry.rejected_name.is_some() && entry.sound.get();
        let sound: Vec<Run> = self
            .runs
            .iter()
            .filter(|(_, entry)| sound(entry))
            .map(|(run, _)| run.clone())
            .collect();
        sound.iter().for_each(|run| self.take_back(run));
    }

    /// Takes back the notes about names that are no longer there.
    pub(super) fn forget_absent(&mut self, names: &[OsString]) {
        let there: BTreeSet<&OsString> = names.iter().collect();
        let gone: Vec<_> =
            self.rejected_names.keys().filter(|name| !there.contains(name)).cloned().collect();
        for name in gone {
            self.accept_name(&name);
        }
    }
}

/// A name as text: control characters and bytes that are not UTF-8 escaped.
pub(super) fn escaped(name: &OsStr) -> String {
    name.as_encoded_bytes().escape_ascii().to_string()
}
