//! What `status` is to show of the input: the files that are rejected, and whether the directory
//! is lost and why. The store may be locked or full just then, so a note is sent until it is stored.
//!
//! The rest of the watcher says what is so now; [`FileWatcherActor::send_notes`] does the sending, at
//! the end of each look at runs and once a second.

use std::collections::BTreeMap;

use actix::prelude::*;
use tracing::debug;

use super::{FileWatcherActor, STORE_TIMEOUT};
use crate::storage::messages::Perform;
use crate::store::{ForgetRejected, InputDirectory, NoteInput, RejectFile, Request};

/// What a note is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Topic {
    /// An input file, by its escaped name.
    File(String),
    Directory,
}

/// What is so, for the store to know.
struct Note {
    /// Why the file is left out, or the directory lost; `None`: all is well.
    trouble: Option<String>,
    state: State,
}

/// How far a note is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Unsent,
    Sent(u64),
    Stored,
}

/// All notes that the store does not have, or that tell of some trouble.
#[derive(Default)]
pub(super) struct Notes {
    notes: BTreeMap<Topic, Note>,
    sent: u64,
}

impl Notes {
    /// A file is left out. Returns whether that, or the reason, is new.
    pub(super) fn reject(&mut self, name: String, reason: &str) -> bool {
        self.put(Topic::File(name), Some(reason.to_owned()))
    }

    /// A file is no longer left out, if it was.
    pub(super) fn clear_rejected(&mut self, name: &str) {
        let topic = Topic::File(name.to_owned());
        if self.notes.get(&topic).is_some_and(|note| note.trouble.is_some()) {
            self.put(topic, None);
        }
    }

    /// The directory is lost. Returns whether that, or the reason, is new.
    pub(super) fn directory_lost(&mut self, reason: &str) -> bool {
        self.put(Topic::Directory, Some(reason.to_owned()))
    }

    /// Why the directory is lost, if it was noted as lost.
    pub(super) fn lost_because(&self) -> Option<&str> {
        self.notes.get(&Topic::Directory)?.trouble.as_deref()
    }

    pub(super) fn directory_found(&mut self) {
        self.put(Topic::Directory, None);
    }

    fn put(&mut self, topic: Topic, trouble: Option<String>) -> bool {
        let same = self.notes.get(&topic).is_some_and(|note| note.trouble == trouble);
        if !same {
            self.notes.insert(topic, Note { trouble, state: State::Unsent });
        }
        !same
    }

    /// The answer to the sending of that number. One that was overtaken by another note says
    /// nothing; what is fine and stored need not be remembered.
    fn answered(&mut self, topic: &Topic, number: u64, stored: bool) {
        let Some(note) = self.notes.get_mut(topic).filter(|note| note.state == State::Sent(number))
        else {
            return;
        };
        note.state = if stored { State::Stored } else { State::Unsent };
        if stored && note.trouble.is_none() {
            self.notes.remove(topic);
        }
    }
}

impl FileWatcherActor {
    /// Sends every note that the store is not known to have.
    pub(super) fn send_notes(&mut self, ctx: &mut Context<Self>) {
        let Notes { notes, sent } = &mut self.notes;
        let unsent = notes.iter_mut().filter(|(_, note)| note.state == State::Unsent);
        let mut messages = Vec::new();
        for (topic, note) in unsent {
            *sent += 1;
            note.state = State::Sent(*sent);
            messages.push((topic.clone(), note.trouble.clone(), *sent));
        }
        for (topic, trouble, number) in messages {
            self.send_note(topic, trouble, number, ctx);
        }
    }

    fn send_note(
        &self,
        topic: Topic,
        trouble: Option<String>,
        number: u64,
        ctx: &mut Context<Self>,
    ) {
        match (topic.clone(), trouble) {
            (Topic::File(name), Some(reason)) => {
                self.send_to(RejectFile { name, reason }, topic, number, ctx);
            }
            (Topic::File(name), None) => {
                self.send_to(ForgetRejected(name), topic, number, ctx);
            }
            (Topic::Directory, trouble) => {
                let there = || self.input.known.map(InputDirectory::There);
                if let Some(input) = trouble.map(InputDirectory::Lost).or_else(there) {
                    self.send_to(NoteInput(input), topic, number, ctx);
                }
            }
        }
    }

    fn send_to(
        &self,
        note: impl Request<Answer = ()>,
        topic: Topic,
        number: u64,
        ctx: &mut Context<Self>,
    ) {
        let sent = self.storage.send(Perform(note)).timeout(STORE_TIMEOUT).into_actor(self);
        ctx.spawn(sent.map(move |answer, watcher, _| {
            let stored = matches!(answer, Ok(Ok(())));
            if !stored {
                // Storage has warned of it already, and not too often.
                debug!(?topic, ?answer, "A note could not be stored yet; trying again.");
            }
            watcher.notes.answered(&topic, number, stored);
        }));
    }
}
