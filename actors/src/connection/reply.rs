//! What is written to a worker, and what is done then. Plain values, made by the requests of both protocols.

use std::pin::Pin;

use bytes::{BufMut, BytesMut};
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;

use crate::storage::messages::HandOut;
use shiftboss_protocol::wire::answers::{Answer, Job};
use shiftboss_protocol::wire::session::{ErrorCode, Refused};
use shiftboss_queue::operation::Ack;

/// A wait, while lines are still read.
pub(super) struct Wait {
    pub(super) end: Pin<Box<dyn Future<Output = Reply>>>,
    /// What is answered if the worker itself ends it.
    pub(super) given_up: Answer,
}

/// What is written, and what is done afterwards.
#[derive(Default)]
pub(super) struct Reply {
    pub(super) bytes: BytesMut,
    /// A job in the reply: once written, it is the worker's.
    pub(super) job: Option<HandOut>,
    /// There was no work, or the job goes on: the worker waits for news.
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
            Ack::Recorded | Ack::Stopping => Self::line(&Answer::Ok),
            Ack::Stale => refused(
                ErrorCode::Stale,
                "that attempt ended otherwise: its job was handed on, given back, or done",
            ),
            Ack::Unknown => refused(ErrorCode::Unknown, "there is no such attempt"),
        }
    }

    pub(super) fn beat(ack: Ack) -> Self {
        Self::line(match ack {
            Ack::Recorded => &Answer::Ok,
            Ack::Stopping => &Answer::Stop,
            Ack::Stale | Ack::Unknown => &Answer::Lost,
        })
    }

    pub(super) fn waiting(end: impl Future<Output = Self> + 'static, given_up: Answer) -> Self {
        Self { wait: Some(Wait { end: Box::pin(end), given_up }), ..Self::default() }
    }

    /// A job of a classic worker.
    pub(super) fn job(job: HandOut) -> Self {
        let reply = Self::line(&Answer::Job(Job::of(None, &job.job)));
        Self { job: Some(job), ..reply }
    }

    /// Likewise; `is_told`: its worker learns of whom it is.
    pub(super) fn leased(job: HandOut, is_told: bool) -> Self {
        let about = is_told.then(|| job.about.clone());
        let line = Job { about, ..Job::of(Some(job.attempt), &job.job) };
        Self { job: Some(job), ..Self::line(&Answer::Job(line)) }
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
