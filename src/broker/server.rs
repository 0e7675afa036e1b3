//! The daemon's side: takes what relays ask from the broker, has storage carry it out, and answers.
//!
//! [`Relays`] is a service of the supervision tree. A request is acknowledged when its answer is published, so a daemon that
//! dies leaves it to the next one; a relay's batch is carried out once all the same. What cannot be read becomes a dead
//! letter, with the reason.

mod backlog;
mod hints;
mod installation;
mod rows;

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use futures_util::StreamExt;
use futures_util::stream::SelectAll;
use lapin::Consumer;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions};
use lapin::types::FieldTable;
use shiftboss_actors::exit_notifier::ExitNotifier;
use shiftboss_actors::service::{LookAtBroker, Service, ServiceLinks};
use shiftboss_actors::storage::StorageActor;
use shiftboss_actors::storage::messages::{FollowWork, Perform};
use shiftboss_actors::store::{
    Installation, JoinRelay, LoseRelay, Outcome, Rejected, Relay, RelayAnswer, Relayed,
    Relays as KnownRelays, Request as StoreRequest, StoreError, StoreResult,
};
use shiftboss_protocol::backoff::{Backoff, shortened};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use self::backlog::Backlog;
use super::dead_letters;
use super::link::{Broker, CALL_MAX, Link, properties, version};
use super::liveness::Liveness;
use super::message::{Reply, Request, Unfit, check, decode, encode};

/// Requests that are taken before the first of them is answered.
const PREFETCH: u16 = 256;
/// How long storage may take for one.
const STORE_PATIENCE: Duration = Duration::from_secs(10);
/// How long a stop waits for what was taken.
const STOP_PATIENCE: Duration = Duration::from_secs(2);
/// How often it is looked who is silent.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Delays before a connection that failed is made again.
const RECONNECT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The service that serves relays.
pub(crate) struct Relays {
    broker: Broker,
    /// Relays whose workers may be operators.
    operators: Vec<String>,
    /// Several daemons have the queue.
    is_shared: bool,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    server: Weak<Server>,
}

impl Relays {
    pub(crate) fn new(broker: Broker, operators: Vec<String>, is_shared: bool) -> Self {
        Self { broker, operators, is_shared, running: None, server: Weak::new() }
    }
}

impl Service for Relays {
    fn name(&self) -> &'static str {
        "the service for relays"
    }

    fn start(&mut self, links: ServiceLinks, exit_notifier: ExitNotifier) {
        let (stop, stopped) = oneshot::channel();
        let server = Rc::new(Server {
            broker: self.broker.clone(),
            operators: self.operators.clone(),
            is_shared: self.is_shared,
            storage: links.storage,
            liveness: RefCell::default(),
            tasks: TaskTracker::new(),
            backlog: RefCell::default(),
        });
        self.server = Rc::downgrade(&server);
        let task = actix_rt::spawn(async move {
            let _exit_notifier = exit_notifier;
            server.run(stopped).await;
        });
        self.running = Some((stop, task));
    }

    fn broker(&self) -> Option<LookAtBroker> {
        let server = Weak::clone(&self.server);
        Some(Rc::new(move || server.upgrade().map(|server| server.live())))
    }

    fn stop(&mut self) -> Pin<Box<dyn Future<Output = ()>>> {
        let running = self.running.take();
        Box::pin(async move {
            if let Some((stop, task)) = running {
                let _ = stop.send(());
                let _ = task.await;
            }
        })
    }
}

/// What serves them.
struct Server {
    broker: Broker,
    operators: Vec<String>,
    is_shared: bool,
    storage: Addr<StorageActor>,
    /// Where the queue is this daemon's alone. Of a shared one the store knows who lives: each daemon hears only some of what
    /// a relay says.
    liveness: RefCell<Liveness>,
    /// Messages that were taken and are not answered yet.
    tasks: TaskTracker,
    /// `None`: there is no connection.
    backlog: RefCell<Option<Backlog>>,
}

impl Server {
    /// Serves over one connection after the other, until it is stopped.
    async fn run(self: Rc<Self>, mut stopped: oneshot::Receiver<()>) {
        let work = Arc::new(Notify::new());
        self.storage.do_send(FollowWork(Arc::clone(&work)));
        let mut backoff = Backoff::new(RECONNECT.0, RECONNECT.1);
        loop {
            let begun = Instant::now();
            let Err(error) = self.serve(&work, &mut stopped).await else { return };
            self.backlog.replace(None);
            if begun.elapsed() > RECONNECT.1 {
                backoff.reset();
            }
            let delay = shortened(backoff.next_delay());
            warn!(%error, delay_ms = delay.as_millis(), "The broker cannot be used: relays wait.");
            tokio::select! {
                () = sleep(delay) => {}
                _ = &mut stopped => return,
            }
        }
    }

    /// Serves until something fails, or it is stopped: then what was taken is answered, and the rest left to the next daemon.
    async fn serve(
        self: &Rc<Self>,
        work: &Notify,
        stopped: &mut oneshot::Receiver<()>,
    ) -> StoreResult<()> {
        let (link, requests, rows) = tokio::select! {
            opened = self.open() => opened?,
            _ = &mut *stopped => return Ok(()),
        };
        info!(broker = %self.broker, "Relays are served.");
        let error = tokio::select! {
            error = self.take(&link, requests) => error,
            error = rows::take(self, &link, rows) => error,
            error = self.hint(&link, work) => error,
            never = self.expire_silent(), if !self.is_shared => match never {},
            never = self.watch_backlog(&link) => match never {},
            _ = stopped => {
                self.tasks.close();
                let _ = timeout(STOP_PATIENCE, self.tasks.wait()).await;
                link.close().await;
                return Ok(());
            }
        };
        Err(self.broker.classify(&error))
    }

    /// Connects, and begins to take requests and rows.
    async fn open(self: &Rc<Self>) -> StoreResult<(Rc<Link>, Consumer, SelectAll<Consumer>)> {
        let link = Rc::new(self.broker.connect("shiftboss daemon").await?);
        let declared = timeout(CALL_MAX, self.broker.topology.declare(&link.channel)).await;
        let declared =
            declared.map_err(|_| StoreError::Busy("it did not answer in time".to_owned()))?;
        declared.map_err(|error| self.broker.classify(&error))?;
        if self.is_shared {
            let installation = self.ask(Installation).await?;
            installation::claim(&self.broker, &link, &installation).await?;
        }
        let opened = timeout(CALL_MAX, async {
            Ok((self.consume(&link).await?, rows::open(self, &link).await?))
        });
        let opened =
            opened.await.map_err(|_| StoreError::Busy("it did not answer in time".to_owned()))?;
        let (requests, rows) = opened.map_err(|error| self.broker.classify(&error))?;
        let known = self.ask(KnownRelays).await?;
        self.liveness.borrow_mut().reset(known, Instant::now());
        self.backlog.replace(Some(Backlog::default()));
        Ok((link, requests, rows))
    }

    async fn consume(&self, link: &Link) -> lapin::Result<Consumer> {
        link.channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
        let queue = self.broker.topology.requests();
        // A second daemon with another queue would split the relays between them.
        let exclusive = !self.is_shared;
        let options = BasicConsumeOptions { exclusive, ..BasicConsumeOptions::default() };
        link.channel
            .basic_consume(queue.as_str().into(), "".into(), options, FieldTable::default())
            .await
    }

    /// Takes requests; each is answered beside the others.
    async fn take(self: &Rc<Self>, link: &Rc<Link>, mut requests: Consumer) -> lapin::Error {
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

    /// Acknowledges what was answered.
    async fn settle(&self, link: &Link, delivery: &Delivery, handled: Result<(), String>) {
        match handled {
            // Without the connection the broker gives it to somebody else.
            Ok(()) => drop(delivery.acker.ack(BasicAckOptions::default()).await),
            Err(error) => {
                warn!(%error, "A relay's message could not be answered; it is tried again.");
                link.close().await;
            }
        }
    }

    async fn answer(&self, link: &Link, delivery: &Delivery, reply: Reply) -> Result<(), String> {
        let asked = &delivery.properties;
        let (Some(to), Some(id)) = (asked.reply_to(), asked.message_id()) else {
            return Ok(()); // Nobody waits.
        };
        let (properties, body) = (properties().with_correlation_id(id.clone()), encode(&reply));
        let options = BasicPublishOptions::default();
        // A relay that is gone has no queue any more.
        let sent =
            link.unconfirmed.basic_publish("".into(), to.clone(), options, &body, properties);
        sent.await.map(drop).map_err(|error| error.to_string())
    }

    /// Makes a dead letter of it, and says so.
    async fn refuse(&self, link: &Link, delivery: &Delivery, unfit: &Unfit) -> Result<(), String> {
        warn!(%unfit, "A message was refused, and is a dead letter.");
        let reason = unfit.to_string();
        let published = dead_letters::write(&link.channel, &self.broker, delivery, &reason).await;
        published.map_err(|error| error.to_string())?;
        self.answer(link, delivery, Reply::Refused(reason)).await
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

    /// A relay is taken for dead: what it had leased is this daemon's.
    async fn expire(&self, epoch: i64) -> StoreResult<Option<u64>> {
        let jobs = self.ask(LoseRelay { epoch }).await?;
        self.liveness.borrow_mut().forget(epoch);
        Ok(jobs)
    }

    async fn expire_silent(&self) -> std::convert::Infallible {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let silent = self.liveness.borrow().silent(Instant::now());
            for (epoch, name) in silent {
                // What cannot be written now is tried again.
                if let Ok(Some(jobs)) = self.expire(epoch).await {
                    warn!(
                        relay = &*name,
                        jobs, "A relay is silent: its leased jobs are this daemon's."
                    );
                }
            }
        }
    }

    async fn ask<R: StoreRequest>(&self, request: R) -> StoreResult<R::Answer> {
        let answer = self.storage.send(Perform(request)).timeout(STORE_PATIENCE);
        answer.await.unwrap_or_else(|error| Err(StoreError::Busy(error.to_string())))
    }
}

/// The broker cancelled the consumer.
fn ended() -> lapin::Error {
    std::io::Error::other("the broker ended the taking of requests").into()
}
