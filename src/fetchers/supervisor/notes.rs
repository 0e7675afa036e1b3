//! What the schedules note, on its way into the database. Part of the FetchersActor.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use shiftboss_actors::storage::messages::Perform;
use shiftboss_actors::store::{ForgetFetcher, NoteFetcher, StoreError};
use tracing::{info, warn};

use super::super::begin::Begin;
use super::super::record;
use super::{FetchersActor, STORE_TIMEOUT};
use crate::fetch::ListName;
use crate::schedule::scheduler::Status;

/// Before something is stored again: a full disk stays full for a while.
const NOTE_RETRY: Duration = Duration::from_secs(5);

/// The answer of storage, on its way.
type Saved = Pin<Box<dyn Future<Output = Result<Result<(), StoreError>, MailboxError>>>>;

/// How a fetcher's machine is now.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Noted {
    pub name: ListName,
    pub status: Status,
}

impl Handler<Noted> for FetchersActor {
    type Result = ();

    fn handle(&mut self, Noted { name, status }: Noted, ctx: &mut Self::Context) {
        let fetcher = self.fetchers.get_mut(&name).filter(|_| self.stopping.is_none());
        let Some(fetcher) = fetcher else { return };
        // A run that is broken off has not ended: it is still to be done.
        let Some(running) = fetcher.lasting() else { return };
        running.is_on = status.run_started.is_some();
        if status.runs > 0 {
            fetcher.restarts.reset();
        }
        if let Some(record) = self.records.get_mut(name.as_str()) {
            record::update(record, &status);
            self.save(name.shared(), ctx);
        }
    }
}

impl Handler<Begin> for FetchersActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Begin(name): Begin, _: &mut Self::Context) -> Self::Result {
        // That the run is on is in the record; it is noted once more, and waited for.
        let record = self.records.get(name.as_str()).filter(|_| self.stopping.is_none()).cloned();
        let noted = record.map(|record| self.parts.links.note.send(Perform(NoteFetcher(record))));
        Box::pin(async move {
            if let Some(noted) = noted {
                // Should it fail, `save` warns of it.
                let _ = noted.timeout(STORE_TIMEOUT).await;
            }
        })
    }
}

impl FetchersActor {
    /// A fetcher is run no more.
    pub(super) fn forget(&mut self, name: Arc<str>, ctx: &mut Context<Self>) {
        info!(name = &*name, "The daemon does not run this fetcher any more; its list stays.");
        self.records.remove(&name);
        self.save(name, ctx);
    }

    /// Stores how a fetcher is, or that it is none any more; later, if that fails.
    fn save(&mut self, name: Arc<str>, ctx: &mut Context<Self>) {
        let links = &self.parts.links;
        let saved: Saved = match self.records.get(&name) {
            Some(record) => {
                let note = Perform(NoteFetcher(record.clone()));
                Box::pin(links.note.send(note).timeout(STORE_TIMEOUT))
            }
            None => {
                let forget = Perform(ForgetFetcher(Arc::clone(&name)));
                Box::pin(links.forget.send(forget).timeout(STORE_TIMEOUT))
            }
        };
        ctx.spawn(saved.into_actor(self).map(move |saved, act, ctx| {
            let error = match saved {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            if !act.unsaved.insert(Arc::clone(&name)) {
                return;
            }
            warn!(
                name = &*name,
                error, "The state of the fetcher could not be stored; trying again."
            );
            ctx.run_later(NOTE_RETRY, move |act, ctx| {
                act.unsaved.remove(&name);
                act.save(name, ctx);
            });
        }));
    }
}
