//! What is written to a worker, and what is done then. Plain values, made by the requests of both protocols.

use std::pin::Pin;

use bytes::{BufMut, BytesMut};
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;

use crate::storage::messages::HandOut;
use shiftboss_protocol::model::Attempt;
use shiftboss_protocol::wire::answers::{Answer, Job};
use shiftboss_protocol::wire::session::{ErrorCode, Refused};
use shiftboss_queue::operation::Ack;

/// A wait for work, while lines are still read.
pub(super) type Wait = Pin<Box<dyn Future<Output = Reply>>>;

/// What is written, and what is done afterwards.
#[derive(Default)]
pub(super) struct Reply {
    pub(super) bytes: BytesMut,
    /// A job in the reply: once written, it is the worker's.
    pub(super) job: Option<HandOut>,
    /// There was no work; the worker waits for some.
    pub(super) wait: Option<Wait>,
    pub(super) errors: Vec<ErrorCode>,
    /// Held until the reply is written, because a long report stays in memory until then.
    pub(super) _place: Option<OwnedSemaphorePermit>,
    pub(super) close: bool,
}

impl Reply {
    pub(super) fn line(answer: &Answer) -> Self {
        let mut reply = Self::default();
        answer.encode(&mut reply.bytes);
        reply
    }

    pub(super) fn refused(refused: Refused) -> Self {
        Self { errors: vec![refused.code], ..Self::line(&refused.into()) }
    }

    /// Errors that count towards a close. An error that says the daemon is busy is not the peer's fault.
    pub(super) fn faults(&self) -> usize {
        let is_fault = |code: &&ErrorCode| !matches!(code, ErrorCode::Busy | ErrorCode::Full);
        self.errors.iter().filter(is_fault).count()
    }

    pub(super) fn object(answer: impl Serialize) -> Result<Self, Refused> {
        Ok(Self { bytes: json_line(answer)?, ..Self::default() })
    }

    pub(super) fn ack(ack: Ack) -> Self {
        let refused = |code, text| Self::refused(Refused::new(code, text));
        match ack {
            Ack::Recorded => Self::line(&Answer::Ok),
            Ack::Stale => refused(
                ErrorCode::Stale,
                "that attempt ended otherwise: its job was handed on, given back, or done",
            ),
            Ack::Unknown => refused(ErrorCode::Unknown, "there is no such attempt"),
        }
    }

    /// A job, under an attempt in protocol 2.
    pub(super) fn job(attempt: Option<Attempt>, job: HandOut) -> Self {
        let reply = Self::line(&Answer::Job(Job::of(attempt, &job.job)));
        Self { job: Some(job), ..reply }
    }

    pub(super) fn leased(job: HandOut) -> Self {
        Self::job(Some(job.attempt), job)
    }

    pub(super) fn and_close(self) -> Self {
        Self { close: true, ..self }
    }

    /// The same, with the lines of another one before it.
    pub(super) fn after(self, mut before: Self) -> Self {
        before.bytes.unsplit(self.bytes);
        before.errors.extend(self.errors);
        Self { bytes: before.bytes, errors: before.errors, ..self }
    }
}

pub(super) fn json_line(answer: impl Serialize) -> Result<BytesMut, Refused> {
    let mut line = BytesMut::new().writer();
    serde_json::to_writer(&mut line, &answer).map_err(Refused::busy)?;
    let mut line = line.into_inner();
    line.put_u8(b'\n');
    Ok(line)
}

pub(super) fn together(replies: impl Iterator<Item = Reply>) -> Reply {
    replies.fold(Reply::default(), |before, reply| reply.after(before))
}
