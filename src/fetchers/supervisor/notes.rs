//! What the RunActors tell of themselves, on its way into the database. Part of the FetchersActor.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use shiftboss_actors::storage::messages::Perform;
use shiftboss_actors::store::{ForgetFetcher, NoteFetcher};
use tracing::{info, warn};

use super::super::begin::Begin;
use super::super::record;
use super::slot::Slot;
use super::{FetchersActor, STORE_TIMEOUT};
use crate::change::run_actor::Observer;
use crate::change::status::Status;
use crate::fetch::ListName;

/// Delay before something is noted that could not be: a full disk stays full for a while.
const NOTE_RETRY: Duration = Duration::from_secs(5);

/// How a fetcher's machine is now.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Noted {
    name: ListName,
    status: Status,
}

/// Tells the FetchersActor how one fetcher's machine is.
pub(super) struct Noter {
    name: ListName,
    to: Recipient<Noted>,
}

impl Noter {
    pub fn new(name: &ListName, to: Recipient<Noted>) -> Self {
        Self { name: name.clone(), to }
    }
}

impl Observer for Noter {
    fn note(&mut self, status: &Status) {
        self.to.do_send(Noted { name: self.name.clone(), status: status.clone() });
    }
}

impl Handler<Noted> for FetchersActor {
    type Result = ();

    fn handle(&mut self, Noted { name, status }: Noted, ctx: &mut Self::Context) {
        let slot = self.slots.get_mut(&name).filter(|slot| !slot.is_ending);
        let Some(slot) = slot.filter(|_| !self.is_stopping) else {
            // A run that is broken off has not ended: it is still to be done.
            return;
        };
        if status.runs > 0 {
            slot.deaths = 0;
        }
        let begins = status.run_started.is_some() && !slot.is_running;
        slot.is_running = status.run_started.is_some();
        if begins {
            // Whoever caused it: the next one by the clock is `every` away.
            self.wind_clock(&name, ctx);
        }
        let due = self.slots.get(&name).and_then(Slot::due_at);
        if let Some(record) = self.records.get_mut(name.as_str()) {
            record::update(record, &status, due);
            self.save(&name, ctx);
        }
    }
}

impl Handler<Begin> for FetchersActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Begin(name): Begin, _: &mut Self::Context) -> Self::Result {
        // That the run is on is in the record; it is noted once more, and waited for.
        let record = self.records.get(name.as_str()).filter(|_| !self.is_stopping).cloned();
        let noted = record.map(|record| self.parts.memory.note.send(Perform(NoteFetcher(record))));
        Box::pin(async move {
            if let Some(noted) = noted {
                // Should it fail, that is told of the other time it is noted.
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
        self.strike(name, ctx);
    }

    /// Has it forgotten; later, if that fails.
    fn strike(&mut self, name: Arc<str>, ctx: &mut Context<Self>) {
        let struck = self.parts.memory.forget.send(Perform(ForgetFetcher(Arc::clone(&name))));
        ctx.spawn(struck.timeout(STORE_TIMEOUT).into_actor(self).map(move |struck, _, ctx| {
            if matches!(struck, Ok(Ok(()))) {
                return;
            }
            ctx.run_later(NOTE_RETRY, move |act, ctx| {
                // It may be wanted again.
                if !act.records.contains_key(&name) {
                    act.strike(name, ctx);
                }
            });
        }));
    }

    /// Notes how a fetcher is; later, if that fails.
    pub(super) fn save(&mut self, name: &ListName, ctx: &mut Context<Self>) {
        let Some(record) = self.records.get(name.as_str()) else {
            return;
        };
        let noted = self.parts.memory.note.send(Perform(NoteFetcher(record.clone())));
        let name = name.clone();
        ctx.spawn(noted.timeout(STORE_TIMEOUT).into_actor(self).map(move |noted, act, ctx| {
            let error = match noted {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            act.save_later(name, &error, ctx);
        }));
    }

    fn save_later(&mut self, name: ListName, error: &str, ctx: &mut Context<Self>) {
        let Some(slot) = self.slots.get_mut(&name).filter(|slot| !slot.is_unsaved) else {
            return;
        };
        slot.is_unsaved = true;
        warn!(name = name.as_str(), error, "How the fetcher is could not be noted; trying again.");
        ctx.run_later(NOTE_RETRY, move |act, ctx| {
            if let Some(slot) = act.slots.get_mut(&name) {
                slot.is_unsaved = false;
                act.save(&name, ctx);
            }
        });
    }
}
