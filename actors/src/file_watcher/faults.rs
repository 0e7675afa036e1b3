//! What is wrong with the input: rejected files, and a lost directory. Each is logged once, and shown by status for as
//! long as it lasts.
//!
//! The rest of the watcher reports the present state here. The store may be locked or full just then: a note is sent
//! until it is stored, at the end of each look at runs and once a second.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

use actix::prelude::*;
use tracing::{debug, error, info, warn};

use super::FileWatcherActor;
use super::watch::Happened;
use crate::directory::{Entry, FileState};
use crate::storage::messages::ask;
use shiftboss_protocol::fetcher_file::{FileName, Named};
use shiftboss_protocol::model::Run;
use shiftboss_queue::operation::{ForgetRejected, InputDirectory, NoteInput, RejectFile, Request};

/// Most hidden files that are logged as skipped; more are skipped in silence.
const HIDDEN_SAID_MAX: usize = 100;

/// The file that a note is about; `None`: the directory.
type Topic = Option<OsString>;

/// What keeps a file from being read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Its name, or what is there under it.
    Name,
    /// Its tails keep failing.
    Tails,
    /// Another daemon has its fetcher.
    Elsewhere,
}

/// The present faults, and which of them the store may not know yet.
#[derive(Default)]
pub(super) struct Faults {
    rejected: BTreeMap<OsString, (Cause, String)>,
    /// `None` before the first look for it.
    directory: Option<InputDirectory>,
    unsent: BTreeSet<Topic>,
    /// Names of hidden files that were logged as skipped.
    hidden: BTreeSet<OsString>,
}

impl Faults {
    /// Returns whether that, or the reason, is new.
    fn reject(&mut self, name: &OsStr, cause: Cause, reason: &str) -> bool {
        let before = self.rejected.insert(name.to_owned(), (cause, reason.to_owned()));
        let is_new = before.is_none_or(|(_, before)| before != reason);
        if is_new {
            self.unsent.insert(Some(name.to_owned()));
        }
        is_new
    }

    /// The cause is over, if there was one.
    fn accept(&mut self, name: &OsStr, cause: Cause) {
        if self.rejected.get(name).is_some_and(|(known, _)| *known == cause) {
            self.rejected.remove(name);
            self.unsent.insert(Some(name.to_owned()));
        }
    }

    /// The same for every file for which `is_over` is true.
    fn accept_where(&mut self, cause: Cause, is_over: impl Fn(&OsString) -> bool) {
        let over =
            |name: &OsString, (known, _): &mut (Cause, String)| *known == cause && is_over(name);
        let over = self.rejected.extract_if(.., over);
        self.unsent.extend(over.map(|(name, _)| Some(name)));
    }

    /// A run's file is rejected under the name that it has now; whether that, or the reason, is new.
    pub(super) fn reject_file(
        &mut self,
        run: &Run,
        growing: bool,
        cause: Cause,
        reason: &str,
    ) -> bool {
        self.accept(run.file_name(!growing).as_ref(), cause);
        self.reject(run.file_name(growing).as_ref(), cause, reason)
    }

    pub(super) fn accept_file(&mut self, run: &Run, cause: Cause) {
        for growing in [true, false] {
            self.accept(run.file_name(growing).as_ref(), cause);
        }
    }

    /// Logs once that a hidden file is skipped; nothing is wrong with it.
    pub(super) fn skip_hidden(&mut self, name: OsString) {
        if self.hidden.len() < HIDDEN_SAID_MAX && !self.hidden.contains(&name) {
            info!(file = escaped(&name), "A hidden file is skipped: its name begins with a dot.");
            self.hidden.insert(name);
        }
    }

    /// Returns whether that is new.
    pub(super) fn directory_is(&mut self, directory: InputDirectory) -> bool {
        let is_new = self.directory.as_ref() != Some(&directory);
        if is_new {
            self.directory = Some(directory);
            self.unsent.insert(None);
        }
        is_new
    }

    /// Why the directory is lost, if it was noted as lost.
    pub(super) fn lost_because(&self) -> Option<&str> {
        match self.directory.as_ref()? {
            InputDirectory::Lost(reason) => Some(reason),
            InputDirectory::There(_) => None,
        }
    }
}

impl FileWatcherActor {
    /// An event of a bad name.
    pub(super) fn note_bad_name(&mut self, name: &OsStr, happened: Happened, reason: &str) {
        if matches!(happened, Happened::Removed | Happened::MovedAway(_)) {
            self.faults.accept(name, Cause::Name);
        } else {
            self.reject_name(name, reason);
        }
    }

    /// The file found under a name, unless it is something that is never read.
    pub(super) fn accept(&mut self, name: &OsStr, entry: &Entry) -> Option<FileState> {
        match entry {
            Entry::Unfit(reason) => self.reject_name(name, reason),
            Entry::File(_) | Entry::Absent => self.faults.accept(name, Cause::Name),
        }
        match entry {
            Entry::File(state) => Some(*state),
            Entry::Absent | Entry::Unfit(_) => None,
        }
    }

    /// Logs once that a name is left out.
    pub(super) fn reject_name(&mut self, name: &OsStr, reason: &str) {
        if self.faults.reject(name, Cause::Name, reason) {
            warn!(file = escaped(name), reason, "An input file is rejected.");
        }
    }

    /// A run's file keeps failing.
    pub(super) fn reject(&mut self, run: &Run, reason: &str) {
        let Some(entry) = self.runs.get(run) else {
            return;
        };
        let growing = entry.names.target().growing_name;
        if self.faults.reject_file(run, growing, Cause::Tails, reason) {
            error!(%run, reason, "The run's file keeps failing and is rejected.");
        } else {
            debug!(%run, reason, "The run's file fails as before and stays rejected.");
        }
    }

    /// A run's file is gone, so it is no longer rejected.
    pub(super) fn take_back(&mut self, run: &Run) {
        self.faults.accept_file(run, Cause::Tails);
        self.faults.accept_file(run, Cause::Elsewhere);
    }

    /// Takes back the notes about files that were tried again, and read.
    pub(super) fn take_back_sound(&mut self) {
        let runs = &self.runs;
        self.faults.accept_where(Cause::Tails, |name| {
            run_of(name).and_then(|run| runs.get(&run)).is_some_and(|entry| entry.tail.is_sound())
        });
    }

    /// Takes back the notes about names that are no longer there.
    pub(super) fn take_back_absent(&mut self, names: &[OsString]) {
        let there: BTreeSet<&OsString> = names.iter().collect();
        self.faults.accept_where(Cause::Name, |name| !there.contains(name));
    }

    /// Sends every note that the store may not have.
    pub(super) fn send_faults(&mut self, ctx: &mut Context<Self>) {
        for topic in std::mem::take(&mut self.faults.unsent) {
            match &topic {
                None => {
                    if let Some(directory) = self.faults.directory.clone() {
                        self.send_note(NoteInput(directory), topic, ctx);
                    }
                }
                Some(file) => match (escaped(file), self.faults.rejected.get(file)) {
                    (name, Some((_, reason))) => {
                        let reason = reason.clone();
                        self.send_note(RejectFile { name, reason }, topic, ctx);
                    }
                    (name, None) => self.send_note(ForgetRejected(name), topic, ctx),
                },
            }
        }
    }

    /// Storage answers in order. A note that failed is sent again with the state at that time.
    fn send_note(&self, note: impl Request<Answer = ()>, topic: Topic, ctx: &mut Context<Self>) {
        let sent = ask(&self.storage, note).into_actor(self);
        ctx.spawn(sent.map(move |answer, watcher, _| {
            if let Err(error) = answer {
                // Storage has already logged a warning, at a limited rate.
                debug!(?topic, %error, "A note could not be stored yet; trying again.");
                watcher.faults.unsent.insert(topic);
            }
        }));
    }
}

/// A name as text: control characters and bytes that are not UTF-8 escaped.
fn escaped(name: &OsStr) -> String {
    name.as_encoded_bytes().escape_ascii().to_string()
}

fn run_of(name: &OsStr) -> Option<Run> {
    match FileName::parse(name) {
        Named::Fetcher(file) => Some(file.run),
        Named::Bad(_) | Named::Hidden | Named::Other => None,
    }
}
