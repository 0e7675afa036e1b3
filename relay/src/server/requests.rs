//! Requests of relays: each is read, checked, carried out and answered, beside the others.
//!
//! Part of the daemon's [`server`](super), which takes them one connection after the other.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::try_join_all;
use lapin::Consumer;
use lapin::message::Delivery;
use shiftboss_queue::error::{Rejected, StoreError, StoreResult};
use shiftboss_queue::operation::{
    Dispatched, JoinRelay, Operation, Outcome, Relay, RelayAnswer, Relayed, Relays as KnownRelays,
    Undo,
};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::{Server, ended};
use crate::link::{Link, version};
use crate::message::{
    ANSWER_BYTES_MAX, ESCAPED_BYTES_MAX, HAND_OUTS_MAX, Reply, Request, check, decode, encode,
};

/// How long to wait for a sign of life of a relay whose name another one wants: less than that one waits. A relay sends
/// one each second.
const WORD_PATIENCE: Duration = Duration::from_secs(3);
const WORD_LOOK: Duration = Duration::from_millis(200);
const SECOND_OF_NAME: &str =
    "A second relay of one name was refused: give each its own with --name.";

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

    /// Answers one request. A failure leaves it on the broker, and ends the connection: the next connection comes after
    /// a pause, and makes missing queues.
    async fn handle(&self, link: &Link, delivery: Delivery) {
        let read = decode(version(&delivery.properties), &delivery.data);
        let read = read.and_then(|request: Request| request.check().map(|()| request));
        let handled = match read {
            Ok(request) => {
                let answer = self.carry_out(request).await;
                self.answer(link, &delivery, answer).await
            }
            Err(unfit) => self.refuse(link, &delivery, &unfit).await,
        };
        self.settle(link, &delivery, handled).await;
    }

    async fn carry_out(&self, request: Request) -> Reply {
        let carried_out = match request {
            Request::Join { name, process, installation } => {
                self.join(JoinRelay { name, process, installation }).await
            }
            Request::Leave { epoch } => self.expire(epoch, true).await.map(|_| Reply::Left),
            Request::Batch { epoch, lane, number, operations } => {
                self.liveness.borrow_mut().note_seen(epoch, Instant::now());
                let batch = Relayed { epoch, lane, number, operations };
                self.perform(batch).await.map(Reply::Batch)
            }
        };
        carried_out.unwrap_or_else(|error| match error {
            StoreError::Full(text) => Reply::Full(text),
            StoreError::Rejected(text) => Reply::Refused(text),
            StoreError::Displaced(text) => Reply::Taken(text),
            // If the error ends this daemon, the next one can answer.
            error => Reply::Busy(error.to_string()),
        })
    }

    async fn join(&self, asked: JoinRelay) -> StoreResult<Reply> {
        let (name, process) = (Arc::clone(&asked.name), Arc::clone(&asked.process));
        if let Some(holder) = self.living_holder(&name, &process).await? {
            warn!(relay = &*name, has_it = &*holder, refused = &*process, "{SECOND_OF_NAME}");
            return Err(StoreError::Displaced(format!(
                "the relay {name} runs already, as {holder}: this one, {process}, cannot have its name. Stop that one, or give \
                 this one another name with --name"
            )));
        }
        let joined = self.ask(asked).await?;
        info!(relay = &*name, process = &*process, "A relay has joined.");
        let relay = Relay { name, process, epoch: joined.epoch, beat: 0 };
        self.liveness.borrow_mut().join(relay, Instant::now());
        Ok(Reply::Joined(joined))
    }

    /// The other process that has a name, if it is alive: waits for its next sign of life.
    ///
    /// # Errors
    /// `Busy` if it is silent, but was heard from too recently to be dead.
    async fn living_holder(&self, name: &str, process: &str) -> StoreResult<Option<Arc<str>>> {
        let Some(first) = self.holder(name, process).await? else { return Ok(None) };
        let deadline = Instant::now() + WORD_PATIENCE;
        while Instant::now() < deadline {
            sleep(WORD_LOOK).await;
            match self.holder(name, process).await? {
                Some(now) if now == first => {}
                now => return Ok(now.map(|(holder, _)| holder)),
            }
        }
        let (holder, _) = first;
        Err(StoreError::Busy(format!(
            "the relay {name}, {holder}, is silent, but not for long enough to be dead"
        )))
    }

    /// The other process that has a name and may be alive, with a number that changes while it is.
    async fn holder(&self, name: &str, process: &str) -> StoreResult<Option<(Arc<str>, i64)>> {
        if !self.is_shared {
            return Ok(self.liveness.borrow().holder(name, process, Instant::now()));
        }
        let known = self.ask(KnownRelays).await?;
        let is_other = |relay: &Relay| &*relay.name == name && &*relay.process != process;
        Ok(known.into_iter().find(is_other).map(|relay| (relay.process, relay.beat)))
    }

    /// Has storage carry out what a relay may ask. Each operation that it may not ask is rejected in its place, and of
    /// too many hand-outs the last ones are put off.
    async fn perform(&self, batch: Relayed) -> StoreResult<RelayAnswer> {
        let Relayed { epoch, lane, number, operations } = batch;
        let operators = self.may_operate(epoch).await?;
        let here = answered_here(&operations, operators);
        let asked = operations.into_iter().zip(&here).filter(|(_, answer)| answer.is_none());
        let operations: Vec<Operation> = asked.map(|(operation, _)| operation).collect();
        // A batch that had none from the start says by its number what the queue must have.
        let is_emptied = operations.is_empty() && !here.is_empty();
        let number = if is_emptied { 0 } else { number };
        match self.ask(Relayed { epoch, lane, number, operations }).await? {
            RelayAnswer::Answered(outcomes) => {
                let mut outcomes = outcomes.into_iter();
                let merged = here.into_iter().map(|answer| answer.or_else(|| outcomes.next()));
                // Too few answers: the number belonged to another batch.
                let Some(mut merged) = merged.collect::<Option<Vec<_>>>() else {
                    return Ok(RelayAnswer::Outdated);
                };
                // A repeated request repeats this: an attempt that was taken back stays so. Together they are one batch
                // of storage.
                let surplus = put_off(&mut merged).into_iter();
                try_join_all(surplus.map(|undo| self.ask(undo))).await?;
                Ok(RelayAnswer::Answered(merged))
            }
            answer => Ok(answer),
        }
    }

    async fn may_operate(&self, epoch: i64) -> StoreResult<bool> {
        if self.operators.is_empty() {
            return Ok(false);
        }
        if self.is_shared && self.liveness.borrow().name(epoch).is_none() {
            // The relay has joined at another daemon, or is gone.
            let known = self.ask(KnownRelays).await?;
            self.liveness.borrow_mut().reset(known, Instant::now());
        }
        let liveness = self.liveness.borrow();
        Ok(liveness.name(epoch).is_some_and(|name| self.operators.iter().any(|may| may == name)))
    }
}

type Answered = Result<Outcome, Rejected>;

/// Operations that are not passed to storage: those that a relay may not ask, and hand-outs beyond the limit.
fn answered_here(operations: &[Operation], operators: bool) -> Vec<Option<Answered>> {
    let mut hand_outs = 0;
    let answer = |operation: &Operation| {
        if let Err(why) = check(operation, operators) {
            return Some(Err(Rejected(why.to_string())));
        }
        let is_hand_out = matches!(operation, Operation::Dispatch(_));
        hand_outs += usize::from(is_hand_out);
        let later = Ok(Outcome::Dispatch(Dispatched::Later));
        (is_hand_out && hand_outs > HAND_OUTS_MAX).then_some(later)
    };
    operations.iter().map(answer).collect()
}

/// Puts off the last jobs if there are too many for one message, and returns the operations that take them back. The
/// first one always fits.
fn put_off(answered: &mut [Answered]) -> Vec<Undo> {
    let (mut bytes, mut surplus) = (0, Vec::new());
    for outcome in answered {
        let Ok(Outcome::Dispatch(Dispatched::Job(attempt, job, _))) = outcome else { continue };
        let its = encoded_bytes(&job.payload) + encoded_bytes(job.key.as_str());
        if bytes == 0 || bytes + its <= ANSWER_BYTES_MAX {
            bytes += its;
            continue;
        }
        surplus.push(Undo { key: job.key.clone(), attempt: *attempt });
        *outcome = Ok(Outcome::Dispatch(Dispatched::Later));
    }
    surplus
}

/// An upper bound for small texts, which are not scanned.
fn encoded_bytes(text: &str) -> usize {
    let most = text.len() * ESCAPED_BYTES_MAX;
    if most <= ANSWER_BYTES_MAX / HAND_OUTS_MAX { most } else { encode(&text).len() }
}

#[cfg(test)]
mod tests {
    use shiftboss_protocol::model::{About, Attempt, Key, Row};
    use shiftboss_queue::operation::{Dispatch, Heartbeat};

    use super::*;
    use crate::message::{BODY_BYTES_MAX, Reply};

    /// Of too many hand-outs the last ones are put off, and nothing else.
    #[test]
    fn hand_outs_are_few() {
        let mut operations =
            vec![Operation::Dispatch(Dispatch { holder: None, fetchers: None }); HAND_OUTS_MAX + 1];
        operations.push(Operation::Heartbeat(Heartbeat(Attempt(1))));
        let here = answered_here(&operations, false);
        let put_off: Vec<usize> = (0..here.len()).filter(|at| here[*at].is_some()).collect();
        assert_eq!(put_off, [HAND_OUTS_MAX]);
        assert_eq!(here[HAND_OUTS_MAX], Some(Ok(Outcome::Dispatch(Dispatched::Later))));
    }

    /// Whatever the payloads are, the answer is a valid message, and no job is lost.
    #[test]
    fn answers_fit() {
        for payload in
            ["p".repeat(1 << 20), "\u{1}".repeat(1 << 20), "\"".repeat(1 << 19), "p".into()]
        {
            let job = |attempt| {
                let row = Row { key: Key::new("a").unwrap(), payload: payload.clone() };
                Ok(Outcome::Dispatch(Dispatched::Job(Attempt(attempt), row, About::default())))
            };
            let mut answered: Vec<Answered> = (0..20).map(job).collect();
            let surplus = put_off(&mut answered);
            let later = Ok(Outcome::Dispatch(Dispatched::Later));
            let kept = answered.iter().filter(|outcome| **outcome != later).count();
            assert_eq!(kept + surplus.len(), 20);
            assert!(kept >= 1);
            assert_eq!(surplus.is_empty(), payload.len() == 1, "{}", payload.len());
            let answer = encode(&Reply::Batch(RelayAnswer::Answered(answered)));
            assert!(answer.len() <= BODY_BYTES_MAX, "{}", answer.len());
        }
    }
}
