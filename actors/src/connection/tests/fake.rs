//! Storage and watcher in one: they answer as the tests of connections and listeners prescribe, and note what they are
//! asked.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use actix::prelude::*;
use futures_util::FutureExt;

use crate::connection::WorkLinks;
use crate::file_watcher::{AcceptInput, Accepted, CatchUpBarrier, CaughtUp};
use crate::storage::messages::{HandOut, TakeJob, UndoHandOut, Work};
use shiftboss_protocol::model::{About, Attempt, Key, Row};
use shiftboss_queue::error::{StoreError, StoreResult};
use shiftboss_queue::operation::{Complete, Request};

/// What the fake answers next.
pub enum Next {
    Job(&'static str),
    Nothing,
    Later,
    Error,
    Silence,
}

/// What a test has prescribed, and what was noted; clones share it.
#[derive(Clone, Default)]
pub struct Fake {
    pub next: Rc<RefCell<VecDeque<Next>>>,
    pub more: Rc<RefCell<VecDeque<bool>>>,
    /// How long every request for a job takes.
    pub takes: Rc<Cell<Duration>>,
    /// If set, every look takes this long, and finds more.
    pub endless: Rc<Cell<Option<Duration>>>,
    /// Barriers do not reach all files.
    pub missed: Rc<Cell<bool>>,
    asked: Rc<RefCell<Vec<String>>>,
}

impl Fake {
    pub fn links(&self) -> WorkLinks {
        let fake = self.clone().start();
        WorkLinks {
            dispatch: fake.clone().recipient(),
            finish: fake.clone().recipient(),
            barrier: fake.recipient(),
            metrics: Default::default(),
            session: None,
        }
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.borrow().clone()
    }
}

impl Actor for Fake {
    type Context = Context<Self>;
}

impl<R: Request<Answer = ()>> Handler<TakeJob<R>> for Fake {
    type Result = ResponseFuture<StoreResult<((), Work)>>;

    fn handle(&mut self, message: TakeJob<R>, ctx: &mut Self::Context) -> Self::Result {
        let ended = (&message.ended as &dyn Any).downcast_ref::<Complete>();
        let done = |it: &Complete| format!("done {} {}", it.key, it.exit_code);
        self.asked.borrow_mut().push(ended.map_or("ready".to_owned(), done));
        let (number, takes) = (self.asked.borrow().len(), self.takes.get());
        let (next, undo) = (self.next.borrow_mut().pop_front(), ctx.address().recipient());
        Box::pin(async move {
            if !takes.is_zero() {
                tokio::time::sleep(takes).await;
            }
            match next {
                Some(Next::Job(key)) => {
                    let job = Row { key: Key::new(key).unwrap(), payload: "1".to_owned() };
                    let attempt = Attempt(i64::try_from(number).unwrap());
                    Ok(((), Work::Job(HandOut::new(attempt, job, About::default(), undo))))
                }
                Some(Next::Later) => Ok(((), Work::Later)),
                Some(Next::Error) => Err(StoreError::Full("disk".to_owned())),
                Some(Next::Silence) => std::future::pending().await,
                Some(Next::Nothing) | None => Ok(((), Work::Nothing)),
            }
        })
    }
}

impl Handler<UndoHandOut> for Fake {
    type Result = ();

    fn handle(&mut self, undo: UndoHandOut, _: &mut Self::Context) {
        self.asked.borrow_mut().push(format!("undo {}", undo.attempt.0));
    }
}

impl Handler<CatchUpBarrier> for Fake {
    type Result = ResponseFuture<CaughtUp>;

    fn handle(&mut self, _: CatchUpBarrier, _: &mut Self::Context) -> Self::Result {
        self.asked.borrow_mut().push("look".to_owned());
        if let Some(time) = self.endless.get() {
            let found = if self.missed.get() { CaughtUp::Missed } else { CaughtUp::Some };
            return Box::pin(tokio::time::sleep(time).map(move |()| found));
        }
        let more = self.more.borrow_mut().pop_front().unwrap_or(false);
        Box::pin(std::future::ready(if more { CaughtUp::Some } else { CaughtUp::All }))
    }
}

impl Handler<AcceptInput> for Fake {
    type Result = Result<Accepted, String>;

    fn handle(&mut self, _: AcceptInput, _: &mut Self::Context) -> Self::Result {
        Ok(Accepted::NotLost)
    }
}
