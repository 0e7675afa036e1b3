//! Opening the input directory, losing it, and finding it again (spec 4, loss 10).
//!
//! A directory that is lost is never made again: whoever removed it may be about to mount or move
//! something there. It is looked for by its path every second; jobs are handed out meanwhile.

use std::rc::Rc;

use actix::prelude::*;
use futures_util::stream;
use tracing::{info, warn};

use super::entry::Phase;
use super::{FileWatcherActor, Open, StopTail};
use crate::directory::Directory;
use crate::watch::Watch;

/// The watch's descriptor became readable.
struct Readable;

impl FileWatcherActor {
    /// Opens and watches the directory. Watch first, scan afterwards.
    pub(super) fn open_directory(&mut self, ctx: &mut Context<Self>) -> Result<(), String> {
        let directory = Directory::open(&self.path).map_err(|error| error.to_string())?;
        self.open = Some(Open { directory: Rc::new(directory), watch: None, events: None });
        self.open_watch(ctx);
        self.notes.directory_lost(false);
        Ok(())
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

    /// Notices that the directory is gone, or back: no event tells as long as it is held open.
    pub(super) fn find_directory(&mut self, ctx: &mut Context<Self>) {
        match &self.open {
            None => self.find_again(ctx),
            Some(open) if !open.directory.is_at_its_path() => self.lose(ctx),
            Some(_) => {}
        }
    }

    /// Once a second: is the directory there; has a file come to rest; is there a note to repeat?
    pub(super) fn tick(&mut self, ctx: &mut Context<Self>) {
        self.take_back_sound();
        self.send_notes(ctx);
        self.find_directory(ctx);
        match &self.open {
            None => {}
            Some(open) if open.watch.is_none() => {
                self.open_watch(ctx);
                self.rescan(ctx);
            }
            Some(_) => {
                let unsettled = self.runs.iter().filter(|(_, entry)| entry.is_unsettled());
                let unsettled = unsettled.map(|(run, _)| run.clone()).collect();
                self.refresh(unsettled, ctx);
            }
        }
    }

    /// The directory is gone: keeps the runs and waits for it.
    pub(super) fn lose(&mut self, ctx: &mut Context<Self>) {
        let Some(open) = self.open.take() else {
            return;
        };
        if let Some(events) = open.events {
            ctx.cancel_future(events);
        }
        warn!(path = %self.path.display(), "The input directory is lost; waiting for it to come back.");
        self.notes.directory_lost(true);
        self.send_notes(ctx);
        // Their descriptors lead to the old directory.
        for entry in self.runs.values_mut() {
            if let Phase::Tailing(tail) = &entry.phase {
                tail.stop.do_send(StopTail);
                entry.phase = Phase::New;
            }
        }
        self.find_again(ctx);
    }

    fn find_again(&mut self, ctx: &mut Context<Self>) {
        if self.open_directory(ctx).is_ok() {
            info!(path = %self.path.display(), "The input directory is back; looking at everything.");
            self.rescan(ctx);
        }
    }
}

impl StreamHandler<Readable> for FileWatcherActor {
    fn handle(&mut self, _: Readable, ctx: &mut Context<Self>) {
        self.drain(ctx);
    }

    /// The descriptor cannot be waited on any longer: opened again by way of a loss.
    fn finished(&mut self, ctx: &mut Context<Self>) {
        self.lose(ctx);
    }
}
