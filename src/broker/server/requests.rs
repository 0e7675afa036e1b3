//! Requests of relays: each is read, checked, carried out and answered, beside the others.
//!
//! Part of the daemon's [`server`](super), which takes them one connection after the other.

use std::rc::Rc;
use std::sync::Arc;

use futures_util::StreamExt;
use lapin::Consumer;
use lapin::message::Delivery;
use shiftboss_actors::store::{
    JoinRelay, Outcome, Rejected, Relay, RelayAnswer, Relayed, Relays as KnownRelays, StoreError,
    StoreResult,
};
use tokio::time::Instant;
use tracing::info;

use super::{Server, ended};
use crate::broker::link::{Link, version};
use crate::broker::message::{Reply, Request, check, decode};

impl Server {
    /// Takes requests; each is answered beside the others.
    pub(super) async fn take_requests(
        self: &Rc<Self>,
        link: &Rc<Link>,
        mut requests: Consumer,
    ) -> lapin::Error {
        loop {
            match requests.next().await {
                Some(Ok(delivery)) => {
                    let (server, link) = (Rc::clone(self), Rc::clone(link));
                    let tasks = server.tasks.clone();
                    actix_rt::spawn(tasks.track_future(async move {
                        server.handle(&link, delivery).await;
                    }));
                }
                Some(Err(error)) => return error,
                None => return ended(),
            }
        }
    }

    /// Answers one request. What fails on the way leaves it on the broker, and ends the connection: the next one comes after a
    /// pause, and makes the queues that are missing.
    async fn handle(&self, link: &Link, delivery: Delivery) {
        let read = decode(version(&delivery.properties), &delivery.data);
        let read = read.and_then(|request: Request| request.check().map(|()| request));
        let handled = match read {
            Ok(request) => self.answer(link, &delivery, self.carry_out(request).await).await,
            Err(unfit) => self.refuse(link, &delivery, &unfit).await,
        };
        self.settle(link, &delivery, handled).await;
    }

    async fn carry_out(&self, request: Request) -> Reply {
        let carried_out = match request {
            Request::Join { name, process, installation } => {
                self.join(JoinRelay { name, process, installation }).await
            }
            Request::Leave { epoch } => self.expire(epoch).await.map(|_| Reply::Left),
            Request::Batch { epoch, lane, number, operations } => {
                self.liveness.borrow_mut().note_seen(epoch, Instant::now());
                let batch = Relayed { epoch, lane, number, operations };
                self.perform(batch).await.map(Reply::Batch)
            }
        };
        carried_out.unwrap_or_else(|error| match error {
            StoreError::Full(text) => Reply::Full(text),
            StoreError::Rejected(text) => Reply::Refused(text),
            // Of what ends this daemon the next one will know more.
            error => Reply::Busy(error.to_string()),
        })
    }

    async fn join(&self, asked: JoinRelay) -> StoreResult<Reply> {
        let (name, process) = (Arc::clone(&asked.name), Arc::clone(&asked.process));
        let is_taken = self.liveness.borrow().is_taken(&name, &process, Instant::now());
        if is_taken && !self.is_shared {
            return Err(StoreError::Rejected(format!(
                "another relay has the name {name}: give this one another with --name"
            )));
        }
        let joined = self.ask(asked).await?;
        info!(relay = &*name, "A relay has joined.");
        self.liveness
            .borrow_mut()
            .join(Relay { name, process, epoch: joined.epoch }, Instant::now());
        Ok(Reply::Joined(joined))
    }

    /// Has storage carry out what a relay may ask; each operation that it may not is rejected in its place.
    async fn perform(&self, batch: Relayed) -> StoreResult<RelayAnswer> {
        let Relayed { epoch, lane, number, operations } = batch;
        let operators = self.may_operate(epoch).await?;
        let refused: Vec<Option<Rejected>> = operations
            .iter()
            .map(|operation| check(operation, operators).err().map(|why| Rejected(why.to_string())))
            .collect();
        let allowed = operations.into_iter().zip(&refused).filter(|(_, refused)| refused.is_none());
        let operations = allowed.map(|(operation, _)| operation).collect();
        match self.ask(Relayed { epoch, lane, number, operations }).await? {
            RelayAnswer::Answered(outcomes) => {
                let mut outcomes = outcomes.into_iter();
                let merged = refused.into_iter().map(|refused| match refused {
                    Some(why) => Some(Err(why)),
                    None => outcomes.next(),
                });
                let merged: Option<Vec<Result<Outcome, Rejected>>> = merged.collect();
                // The number was another batch's.
                Ok(merged.map_or(RelayAnswer::Outdated, RelayAnswer::Answered))
            }
            answer => Ok(answer),
        }
    }

    async fn may_operate(&self, epoch: i64) -> StoreResult<bool> {
        if self.operators.is_empty() {
            return Ok(false);
        }
        if self.is_shared && self.liveness.borrow().name(epoch).is_none() {
            // It has joined at another daemon, or is gone.
            let known = self.ask(KnownRelays).await?;
            self.liveness.borrow_mut().reset(known, Instant::now());
        }
        let liveness = self.liveness.borrow();
        Ok(liveness.name(epoch).is_some_and(|name| self.operators.iter().any(|may| may == name)))
    }
}
