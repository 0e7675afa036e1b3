//! The daemon's side: takes relays' requests from the broker, has storage carry them out, and answers.
//!
//! [`Relays`] is a service of the supervision tree. A request is acknowledged when its answer is published, so a daemon that
//! dies leaves it to the next one; a relay's batch is carried out once all the same. What cannot be read becomes a dead
//! letter, with the reason.

mod backlog;
mod installation;
mod lease;
mod liveness;
mod refused;
mod requests;
mod rows;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use lapin::Consumer;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicPublishOptions, BasicQosOptions};
use shiftboss_actors::exit_notifier::ExitNotifier;
use shiftboss_actors::service::{LookAtBroker, Service, ServiceLinks};
use shiftboss_actors::storage::StorageActor;
use shiftboss_actors::storage::messages::{FollowWork, Perform, unanswered};
use shiftboss_protocol::answers::live::BrokerLive;
use shiftboss_protocol::backoff::{Backoff, shortened};
use shiftboss_queue::error::{StoreError, StoreResult};
use shiftboss_queue::operation::{
    Installation, Lane, LoseRelay, Place, Relay, Relayed, Relays as KnownRelays,
    Request as StoreRequest,
};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use self::lease::{Holder, Lease};
use self::liveness::Liveness;
use crate::link::{Broker, Link, RECONNECT, consume, properties};
use crate::message::{BODY_BYTES_MAX, Reply, encode};

/// Requests that are taken before the first of them is answered: a relay has few at a time, and each may be as large as a message.
const PREFETCH: u16 = 64;
const STORE_PATIENCE: Duration = Duration::from_secs(10);
const STOP_PATIENCE: Duration = Duration::from_secs(2);
/// The shortest time between two hints; the next constant is the longest, even if there is nothing new.
const HINTS_APART: Duration = Duration::from_millis(10);
const HINTS_AT_LEAST: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub struct Relays {
    broker: Broker,
    operators: Vec<String>,
    /// The file of the queue; `None`: it is on a server, and several daemons share it.
    file: Option<PathBuf>,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    server: Weak<Server>,
}

impl Relays {
    pub fn new(broker: Broker, operators: Vec<String>, file: Option<PathBuf>) -> Self {
        Self { broker, operators, file, running: None, server: Weak::new() }
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
            is_shared: self.file.is_none(),
            file: self.file.clone(),
            storage: links.storage,
            takes_large: Cell::default(),
            liveness: RefCell::default(),
            tasks: TaskTracker::new(),
            backlog: RefCell::default(),
        });
        self.server = Rc::downgrade(&server);
        let task = actix_rt::spawn(async move {
            if let Err(text) = server.run(stopped).await {
                exit_notifier.wrong_setting(text);
            }
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

enum Unserved {
    Failed(StoreError),
    /// The prefix belongs to another installation; the text says so.
    Foreign(String),
}

impl From<StoreError> for Unserved {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

struct Opened {
    link: Rc<Link>,
    /// Held as long as relays are served: see [`lease`].
    lease: Option<Lease>,
    requests: Consumer,
    rows: rows::Messages,
}

struct Server {
    broker: Broker,
    operators: Vec<String>,
    is_shared: bool,
    file: Option<PathBuf>,
    storage: Addr<StorageActor>,
    /// The broker is known to take our largest messages.
    takes_large: Cell<bool>,
    /// Used if only this daemon has the queue. For a shared queue the store knows which relays are alive: each daemon
    /// hears only some of a relay's messages.
    liveness: RefCell<Liveness>,
    /// Messages that were taken and are not answered yet.
    tasks: TaskTracker,
    /// As last reported by the broker; empty if it has not reported yet. `None`: there is no connection.
    backlog: RefCell<Option<BrokerLive>>,
}

impl Server {
    /// Serves over one connection after the other, until it is stopped, or learns that its prefix belongs to another
    /// installation.
    async fn run(self: Rc<Self>, mut stopped: oneshot::Receiver<()>) -> Result<(), String> {
        let work = Arc::new(Notify::new());
        self.storage.do_send(FollowWork(Arc::clone(&work)));
        let mut backoff = Backoff::new(RECONNECT.0, RECONNECT.1);
        loop {
            let begun = Instant::now();
            let error = match self.serve(&work, &mut stopped).await {
                Ok(()) => return Ok(()),
                Err(Unserved::Foreign(text)) => return Err(text),
                Err(Unserved::Failed(error)) => error,
            };
            self.backlog.replace(None);
            if begun.elapsed() > RECONNECT.1 {
                backoff.reset();
            }
            let delay = shortened(backoff.next_delay());
            warn!(%error, delay_ms = delay.as_millis(), "The broker cannot be used: relays wait.");
            tokio::select! {
                () = sleep(delay) => {}
                _ = &mut stopped => return Ok(()),
            }
        }
    }

    /// Serves until something fails, or it is stopped: then it answers what it has taken, and leaves the rest to the
    /// next daemon.
    async fn serve(
        self: &Rc<Self>,
        work: &Notify,
        stopped: &mut oneshot::Receiver<()>,
    ) -> Result<(), Unserved> {
        let Opened { link, mut lease, requests, rows } = tokio::select! {
            opened = self.open() => opened?,
            _ = &mut *stopped => return Ok(()),
        };
        info!(broker = %self.broker, "Relays are served.");
        let error = tokio::select! {
            error = lease::is_lost(&mut lease) => error,
            error = self.take_requests(&link, requests) => error,
            error = rows::take(self, &link, rows) => error,
            error = self.hint(&link, work) => error,
            never = self.watch_relays(&link) => match never {},
            never = self.watch_backlog(&link) => match never {},
            _ = stopped => {
                self.tasks.close();
                let _ = timeout(STOP_PATIENCE, self.tasks.wait()).await;
                if let Some(lease) = lease {
                    lease::give_up(lease).await;
                }
                link.close().await;
                return Ok(());
            }
        };
        Err(self.broker.classify(&error).into())
    }

    async fn open(self: &Rc<Self>) -> Result<Opened, Unserved> {
        let link = Rc::new(self.broker.connect("shiftboss daemon").await?);
        let declared =
            async { self.broker.topology.declare(&link.channel, link.channel().await?).await };
        self.broker.answer(declared).await?;
        if !self.takes_large.get() {
            self.broker.require_large(&link).await?;
            self.takes_large.set(true);
        }
        let installation = self.ask(Installation).await?;
        installation::claim(&self.broker, &link, &installation).await?;
        let holder = match &self.file {
            Some(file) => Some(Holder::of_file(file)?),
            None => self.ask(Place).await?.map(Holder::of_database),
        };
        let lease = match &holder {
            Some(holder) => Some(lease::take(&self.broker, &link, holder).await?),
            None => None,
        };
        let opened = async { Ok((self.consume(&link).await?, rows::open(self, &link).await?)) };
        let (requests, rows) = self.broker.answer(opened).await?;
        let known = self.ask(KnownRelays).await?;
        self.liveness.borrow_mut().reset(known, Instant::now());
        self.backlog.replace(Some(BrokerLive::default()));
        Ok(Opened { link, lease, requests, rows })
    }

    async fn consume(&self, link: &Link) -> lapin::Result<Consumer> {
        link.channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
        consume(&link.channel, &self.broker.topology.requests()).await
    }

    /// Sends all relays hints that there may be work, and nothing else.
    async fn hint(&self, link: &Link, work: &Notify) -> lapin::Error {
        let exchange = self.broker.topology.hints();
        loop {
            // A hint is also sent if there is no news: it shows that hints arrive.
            let _ = timeout(HINTS_AT_LEAST, work.notified()).await;
            let options = BasicPublishOptions::default();
            let exchange = exchange.as_str().into();
            let sent =
                link.unconfirmed.basic_publish(exchange, "".into(), options, b"", properties());
            if let Err(error) = sent.await {
                return error;
            }
            sleep(HINTS_APART).await;
        }
    }

    async fn settle(&self, link: &Link, delivery: &Delivery, handled: Result<(), String>) {
        match handled {
            // Without the connection the broker delivers it to another daemon.
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
            return Ok(()); // No answer is awaited.
        };
        let properties = properties().with_correlation_id(id.clone());
        let mut body = encode(&reply);
        if body.len() > BODY_BYTES_MAX {
            let why = format!("the answer has {} bytes, and {BODY_BYTES_MAX} may be", body.len());
            body = encode(&Reply::Busy(why));
        }
        let options = BasicPublishOptions::default();
        // A relay that is gone no longer has a queue.
        let sent =
            link.unconfirmed.basic_publish("".into(), to.clone(), options, &body, properties);
        sent.await.map(drop).map_err(|error| error.to_string())
    }

    /// A relay is taken for dead, or was stopped: its leases become this daemon's.
    async fn expire(&self, epoch: i64, is_stopped: bool) -> StoreResult<Option<u64>> {
        let jobs = self.ask(LoseRelay { epoch, is_stopped }).await?;
        self.liveness.borrow_mut().forget(epoch);
        Ok(jobs)
    }

    /// Checks which relays are silent. During an alarm none can send, and a client that sends nothing itself does not
    /// learn of the alarm.
    async fn watch_relays(&self, link: &Link) -> std::convert::Infallible {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            if link.alarm.is_raised() || self.is_deaf(link).await {
                self.speak_for_relays().await;
            } else if self.tasks.len() < usize::from(PREFETCH) && self.knows_words().await {
                // Otherwise there may be messages that were not taken yet.
                self.expire_silent().await;
            }
        }
    }

    /// Whether it is known which relays were heard from: with a shared queue, other daemons hear relays, too.
    async fn knows_words(&self) -> bool {
        if !self.is_shared {
            return true;
        }
        let Ok(relays) = self.ask(KnownRelays).await else { return false };
        self.liveness.borrow_mut().heard_by_all(relays, Instant::now());
        true
    }

    /// Whether the broker takes no messages now, checked if a relay may be unable to send. With a shared queue, other
    /// daemons hear relays, too.
    async fn is_deaf(&self, link: &Link) -> bool {
        let is_quiet = self.is_shared || self.liveness.borrow().is_anybody_quiet(Instant::now());
        // The reader of the connection handles its end.
        is_quiet && !link.takes_messages(&self.broker.topology).await.unwrap_or(true)
    }

    async fn expire_silent(&self) {
        let silent = self.liveness.borrow().silent(Instant::now());
        for (epoch, name) in silent {
            // If it cannot be written now, it is tried again.
            if let Ok(Some(jobs)) = self.expire(epoch, false).await {
                warn!(
                    relay = &*name,
                    jobs, "A relay is silent: its leased jobs are this daemon's."
                );
            }
        }
    }

    /// Keeps relays from being taken for dead while the broker does not take their messages.
    async fn speak_for_relays(&self) {
        self.liveness.borrow_mut().note_all_seen(Instant::now());
        if !self.is_shared {
            return;
        }
        for Relay { epoch, .. } in self.ask(KnownRelays).await.unwrap_or_default() {
            // If it fails, it is repeated within the time that a relay may be silent.
            let beat = Relayed { epoch, lane: Lane::Jobs, number: 0, operations: Vec::new() };
            let _ = self.ask(beat).await;
        }
    }

    async fn ask<R: StoreRequest>(&self, request: R) -> StoreResult<R::Answer> {
        let answer = self.storage.send(Perform(request)).timeout(STORE_PATIENCE);
        answer.await.unwrap_or_else(|error| Err(unanswered(error)))
    }
}

/// The broker cancelled the consumer.
fn ended() -> lapin::Error {
    std::io::Error::other("the broker ended the taking of requests").into()
}
