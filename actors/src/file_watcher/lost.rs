//! Opening the input directory, losing it, and finding it again (spec 4, loss 10).
//!
//! A lost directory is never created again: its operator may be about to mount or move something there. Its path is
//! checked every second; jobs are handed out meanwhile. Another directory at that path is not read, because its lists
//! would replace those of the known one. [`stranger`](super::stranger) decides which one may be taken.

use std::io;
use std::rc::Rc;

use actix::prelude::*;
use futures_util::stream;
use tracing::{info, warn};

use super::phase::Phase;
use super::stranger::{Stranger, holds_known};
use super::watch::Watch;
use super::{FileWatcherActor, Open};
use crate::directory::Directory;
use crate::fs_events::is_on_network;
use crate::storage::messages::ask;
use shiftboss_queue::file_identity::DirectoryIdentity;
use shiftboss_queue::operation::{InputDirectory, NoteInput, Runs, StoredRun};

/// Takes the directory that is at the input's path now, whichever it is. An error: there is none, or the store could
/// not note it yet.
#[derive(Debug, Message)]
#[rtype(result = "Result<Accepted, String>")]
pub struct AcceptInput;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// It is the input directory from now on.
    Taken,
    NotLost,
}

/// Asks why the input directory is lost; `None`: it is there.
#[derive(Debug, Message)]
#[rtype(result = "Option<String>")]
pub struct WhyLost;

/// The watch's descriptor became readable.
struct Readable;

impl Open {
    /// Whether a file that is gone from this directory is gone from the input: the directory is still at its path, or
    /// was removed, for which it had to be emptied. With a directory that was moved or unmounted, that is unknown.
    pub(super) fn speaks_for_the_input(&self) -> bool {
        self.directory.is_at_its_path() || self.directory.is_removed()
    }
}

impl FileWatcherActor {
    /// Opens the directory at the start and registers its runs, or starts waiting for it.
    pub(super) fn begin_watching(
        &mut self,
        known: &[StoredRun],
        ctx: &mut Context<Self>,
    ) -> Result<(), String> {
        let directory = Directory::open(&self.input.path).map_err(|error| error.to_string())?;
        self.input.locked.get_or_insert(directory.identity());
        self.take_if_ours(directory, known, self.input.accept, ctx);
        Ok(())
    }

    /// Makes a directory the one that is watched. Watch first, scan afterwards.
    fn take(&mut self, directory: Directory, why: &str, ctx: &mut Context<Self>) {
        if self.faults.lost_because().is_some() {
            let path = self.input.path.display();
            info!(%path, why, "The input directory is back; looking at everything.");
        }
        self.input.known = Some(directory.identity());
        self.faults.directory_is(InputDirectory::There(directory.identity()));
        self.stranger = None;
        let is_on_network = is_on_network(directory.path());
        if is_on_network {
            warn!(
                "The input directory is on a network file system, which tells nothing of changes made elsewhere: \
                 looking at it every second, too."
            );
        }
        let directory = Rc::new(directory);
        self.open = Some(Open { directory, watch: None, events: None, is_on_network });
        self.open_watch(ctx);
        self.rescan(ctx);
    }

    /// Tries to get a watch. Without one everything is looked at every second.
    fn open_watch(&mut self, ctx: &mut Context<Self>) {
        let Some(open) = &mut self.open else {
            return;
        };
        match Watch::new(&open.directory) {
            Ok(watch) => {
                let ready = stream::unfold(watch.ready(), |ready| async move {
                    // Cleared before the events are read: later ones make it readable again.
                    ready.readable().await.ok()?.clear_ready();
                    Some((Readable, ready))
                });
                open.events = Some(ctx.add_stream(ready));
                open.watch = Some(watch);
            }
            Err(error) => warn!(
                %error,
                "No inotify watch to be had: looking at the input directory every second instead. \
                 Raise fs.inotify.max_user_watches or fs.inotify.max_user_instances."
            ),
        }
    }

    /// Notices that the directory is gone, is no longer readable, or is back: while it is held open, no event says so.
    pub(super) fn find_directory(&mut self, ctx: &mut Context<Self>) {
        match &self.open {
            None => self.find_again(ctx),
            Some(open) if !open.directory.is_at_its_path() || open.directory.is_forbidden() => {
                self.lose(ctx);
            }
            Some(_) => {}
        }
    }

    /// Once a second: is the directory there; has a file come to rest; is there a note to repeat?
    pub(super) fn tick(&mut self, ctx: &mut Context<Self>) {
        self.take_back_sound();
        self.send_faults(ctx);
        self.find_directory(ctx);
        match &self.open {
            None => {}
            Some(open) if open.watch.is_none() => {
                self.open_watch(ctx);
                self.rescan(ctx);
            }
            Some(open) if open.is_on_network => self.rescan(ctx),
            Some(_) => {
                let unsettled = self.runs.iter().filter(|(_, entry)| entry.names.is_unsettled());
                let unsettled = unsettled.map(|(run, _)| run.clone()).collect();
                self.refresh(unsettled, ctx);
            }
        }
    }

    /// The directory is gone, or its watch is: looks for it.
    pub(super) fn lose(&mut self, ctx: &mut Context<Self>) {
        self.close(ctx);
        self.find_again(ctx);
    }

    /// Closes the directory, and keeps the runs. If it was removed, its runs went before it.
    fn close(&mut self, ctx: &mut Context<Self>) {
        if self.open.as_ref().is_some_and(|open| open.directory.is_removed()) {
            self.refresh(self.runs.keys().cloned().collect(), ctx);
        }
        let Some(open) = self.open.take() else {
            return;
        };
        if let Some(events) = open.events {
            ctx.cancel_future(events);
        }
        (self.lost, self.overflow) = (false, false);
        // Their descriptors lead to the old directory.
        for entry in self.runs.values_mut() {
            if matches!(entry.phase, Phase::Tailing(_)) {
                entry.phase.stop_tail();
                entry.phase.enter(Phase::New);
            }
        }
    }

    /// Takes what is at the path if that is the input directory. Nothing else is handled meanwhile.
    fn find_again(&mut self, ctx: &mut Context<Self>) {
        let directory = match Directory::open(&self.input.path) {
            Ok(directory) => directory,
            Err(error) => {
                self.stranger = None;
                return self.stay_lost(&unreadable(&error), ctx);
            }
        };
        let known = ask(&self.storage, Runs).into_actor(self);
        ctx.wait(known.map(move |known, watcher, ctx| {
            // If the store does not answer, nothing is known; it is asked again in a second.
            if let Ok(known) = known {
                watcher.take_if_ours(directory, &known, false, ctx);
            }
        }));
    }

    fn take_if_ours(
        &mut self,
        directory: Directory,
        known: &[StoredRun],
        accept: bool,
        ctx: &mut Context<Self>,
    ) {
        match self.recognise(&directory, known, accept) {
            Ok(why) => self.take(directory, why, ctx),
            Err(reason) => self.stay_lost(reason, ctx),
        }
    }

    /// Why a directory is the input directory; an error: why it is not, or not yet. If it is, it is locked for this
    /// daemon.
    fn recognise(
        &mut self,
        directory: &Directory,
        known: &[StoredRun],
        accept: bool,
    ) -> Result<&'static str, &'static str> {
        let identity = directory.identity();
        let is_one = |of: Option<DirectoryIdentity>| of.is_some_and(|of| of.is_same(&identity));
        let why = if accept {
            "an operator accepts what is there"
        } else if self.input.known.is_none() || is_one(self.input.known) {
            "it is the one that it was"
        } else if holds_known(directory, known) {
            "it holds all complete lists that are known"
        } else {
            let stranger = Stranger::seen(directory, self.stranger.take());
            if !self.stranger.insert(stranger).has_rested(self.input.accept_after) {
                return Err("another directory is at its path");
            }
            "another directory has held lists for long enough without a change"
        };
        let is_free = is_one(self.input.locked) || directory.lock();
        let taken = "another daemon watches the directory at its path: stop one of the two";
        if is_free { Ok(why) } else { Err(taken) }
    }

    /// Logs once that the directory is lost, why, and what to do.
    fn stay_lost(&mut self, reason: &str, ctx: &mut Context<Self>) {
        if !self.faults.directory_is(InputDirectory::Lost(reason.to_owned())) {
            return;
        }
        let path = self.input.path.display();
        let advice = "Mount it or move it back, and it is read again. Another directory in its place \
            is read once `shiftboss accept-input` accepts it, or once it has held lists for a \
            while without a change.";
        warn!(
            %path, reason, advice,
            "The input directory is lost: no list is withdrawn, and jobs go on from what is queued."
        );
        self.send_faults(ctx);
    }
}

/// Why the directory is lost when it cannot be opened.
fn unreadable(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("it cannot be read: {error}; let the daemon's user list and enter it")
        }
        _ => format!("it cannot be opened: {error}"),
    }
}

impl Handler<AcceptInput> for FileWatcherActor {
    type Result = ResponseActFuture<Self, Result<Accepted, String>>;

    fn handle(&mut self, _: AcceptInput, ctx: &mut Self::Context) -> Self::Result {
        if self.open.as_ref().is_some_and(|open| open.directory.is_at_its_path()) {
            return Box::pin(fut::ready(Ok(Accepted::NotLost)));
        }
        let opened = Directory::open(&self.input.path).map_err(|error| {
            format!("the directory {} cannot be opened: {error}", self.input.path.display())
        });
        let recognised = opened.and_then(|directory| {
            let why = self.recognise(&directory, &[], true)?;
            Ok((directory, why))
        });
        let (directory, why) = match recognised {
            Ok(recognised) => recognised,
            Err(reason) => return Box::pin(fut::ready(Err(reason))),
        };
        let noted = NoteInput(InputDirectory::There(directory.identity()));
        self.close(ctx);
        self.take(directory, why, ctx);
        let noted = ask(&self.storage, noted).into_actor(self);
        Box::pin(noted.map(|noted, _, _| match noted {
            Ok(()) => Ok(Accepted::Taken),
            Err(error) => Err(error.to_string()),
        }))
    }
}

impl Handler<WhyLost> for FileWatcherActor {
    type Result = Option<String>;

    fn handle(&mut self, _: WhyLost, _: &mut Self::Context) -> Self::Result {
        match &self.open {
            Some(open) if open.directory.is_at_its_path() => None,
            _ => Some(self.faults.lost_because().unwrap_or("it is not at its path").to_owned()),
        }
    }
}

impl StreamHandler<Readable> for FileWatcherActor {
    fn handle(&mut self, _: Readable, ctx: &mut Context<Self>) {
        self.drain(ctx);
    }

    /// The descriptor can no longer be waited on: the directory is treated as lost, and so opened again.
    fn finished(&mut self, ctx: &mut Context<Self>) {
        self.lose(ctx);
    }
}
