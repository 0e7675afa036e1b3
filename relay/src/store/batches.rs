//! The batches of a lane: one at a time, each carried out once however often it is sent.
//!
//! Each of the relay's stores has one. A batch that changes something has a number, and no later one is sent until it
//! is answered: even if a daemon says that it could not carry it out, it may still be on its way to storage.

use std::sync::atomic::Ordering;

use shiftboss_queue::error::{Rejected, StoreError, StoreResult};
use shiftboss_queue::operation::{Lane, Operation, Outcome, RelayAnswer};

use super::membership::{Membership, failure, misunderstood};
use super::rpc_client::RpcClient;
use crate::message::{Reply, Request};

pub(super) type Outcomes = Vec<Result<Outcome, Rejected>>;

pub(super) struct Batches {
    lane: Lane,
    number: i64,
    /// The last batch, if its result is not known.
    unanswered: Option<Vec<Operation>>,
}

/// Over which connection, and as which relay, a batch is sent.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    pub(super) membership: &'a Membership,
    pub(super) client: &'a RpcClient,
    pub(super) epoch: i64,
}

impl Batches {
    pub(super) fn new(lane: Lane) -> Self {
        Self { lane, number: 0, unanswered: None }
    }

    pub(super) fn is_unanswered(&self) -> bool {
        self.unanswered.is_some()
    }

    /// Learns the result of the unanswered batch, which is sent again before any other.
    pub(super) async fn resolve(
        &mut self,
        asker: Asker<'_>,
    ) -> StoreResult<Vec<(Operation, Result<Outcome, Rejected>)>> {
        let Some(operations) = self.unanswered.clone() else {
            return Ok(Vec::new());
        };
        let outcomes = self.carry_out(asker, operations).await?.unwrap_or_default();
        let operations = self.unanswered.take().unwrap_or_default();
        Ok(operations.into_iter().zip(outcomes).collect())
    }

    /// Has a batch carried out, under the next number if it changes something. There must be no unanswered one.
    pub(super) async fn ask(
        &mut self,
        asker: Asker<'_>,
        operations: Vec<Operation>,
    ) -> StoreResult<Outcomes> {
        if operations.is_empty() {
            return Ok(Vec::new());
        }
        if !operations.iter().all(Operation::only_reads) {
            self.number += 1;
            self.unanswered = Some(operations.clone());
        }
        let outcomes = self.carry_out(asker, operations).await?.ok_or_else(misunderstood)?;
        self.unanswered = None;
        Ok(outcomes)
    }

    /// `None`: a later batch was carried out.
    async fn carry_out(
        &mut self,
        asker: Asker<'_>,
        operations: Vec<Operation>,
    ) -> StoreResult<Option<Outcomes>> {
        match self.send(asker, operations).await? {
            RelayAnswer::Answered(outcomes) => {
                self.note_kept(asker, &outcomes);
                Ok(Some(outcomes))
            }
            RelayAnswer::Outdated => Ok(None),
            RelayAnswer::Lost => Err(asker.membership.lost(asker.epoch)),
        }
    }

    /// A batch with a lasting effect is in the queue with its number, whatever happens to this daemon. A rejected one
    /// may not have got that far.
    fn note_kept(&self, asker: Asker<'_>, outcomes: &Outcomes) {
        let operations = self.unanswered.iter().flatten();
        let mut lasting = operations.zip(outcomes).filter(|(asked, _)| !asked.only_reads());
        if self.lane == Lane::Lists && lasting.any(|(_, outcome)| outcome.is_ok()) {
            asker.client.lists_kept.store(self.number, Ordering::Relaxed);
        }
    }

    async fn send(
        &mut self,
        asker: Asker<'_>,
        operations: Vec<Operation>,
    ) -> StoreResult<RelayAnswer> {
        let (epoch, lane) = (asker.epoch, self.lane);
        let number = if self.is_unanswered() { self.number } else { 0 };
        let request = Request::Batch { epoch, lane, number, operations };
        match asker.client.ask(&request).await? {
            Reply::Batch(answer) => Ok(answer),
            Reply::Refused(text) => {
                self.unanswered = None;
                // One request of the batch is too large; the others are sent again without it.
                Err(StoreError::Busy(text))
            }
            other => Err(failure(other)),
        }
    }
}
