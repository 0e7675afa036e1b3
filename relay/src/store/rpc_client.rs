//! A relay's connection to its broker: requests and rows go to any daemon, and each answer comes back to its requester.
//!
//! Made by the relay's [membership](super::membership), and made anew when it fails. A request that is not answered in
//! time may have been carried out all the same: the store decides what to do then.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use lapin::options::{BasicConsumeOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Consumer};
use shiftboss_actors::clock::boot_time;
use shiftboss_queue::error::{StoreError, StoreResult};
use shiftboss_queue::operation::{RelayedRows, RowsAnswer};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::link::{
    Broker, CALL_MAX, Link, PERSISTENT, PublishError, begin_publish, properties, publish, version,
};
use crate::message::{Reply, Request, Unfit, decode, encode};
use crate::topology::Topology;

/// How long a request may wait on the broker, in milliseconds: shorter than its relay waits.
const EXPIRATION_MS: &str = "4000";

pub(super) struct RpcClient {
    broker: Broker,
    link: Link,
    /// Rows have a channel of their own, so that rows waiting for room do not hold up requests. It may be
    /// [renewed](Self::renew_rows).
    rows: Mutex<Channel>,
    reply_queue: String,
    shared: Arc<Shared>,
    _readers: [AbortOnDropHandle<()>; 2],
    last: AtomicU64,
    /// The number of the last batch about lists that is known to be in the queue, among those answered over this
    /// connection. 0: none.
    pub(super) lists_kept: AtomicI64,
}

type Waiting = HashMap<String, oneshot::Sender<Result<Reply, Unfit>>>;

#[derive(Default)]
struct Shared {
    /// Waiting requesters, by the request's number.
    waiting: Mutex<Waiting>,
    is_broken: AtomicBool,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn break_off(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
        self.waiting().clear();
    }
}

impl RpcClient {
    /// Connects; `on_hint` is called with each hint that there may be work.
    ///
    /// # Errors
    /// As for the connection; `Busy` if no daemon has declared the queues yet.
    pub(super) async fn open(
        broker: &Broker,
        name: &str,
        on_hint: impl FnMut() + Send + 'static,
    ) -> StoreResult<Self> {
        let link = broker.connect(&format!("shiftboss relay {name}")).await?;
        let opened = async {
            let (reply_queue, replies) = consume_own(&link.channel, FieldTable::default()).await?;
            // On another channel: without daemons there is no exchange yet, and that closes the channel.
            let hints = consume_hints(&link.channel().await?, &broker.topology.hints()).await?;
            let rows = link.confirming_channel().await?;
            Ok((reply_queue, replies, hints, Mutex::new(rows)))
        };
        let opened = timeout(CALL_MAX, opened).await;
        let opened = opened.map_err(|_| broker.late())?;
        let (reply_queue, replies, hints, rows) =
            opened.map_err(|error| broker.not_declared(&error))?;
        let shared = Arc::new(Shared::default());
        let readers = [
            AbortOnDropHandle::new(tokio::spawn(read_replies(replies, Arc::clone(&shared)))),
            AbortOnDropHandle::new(tokio::spawn(read_hints(hints, Arc::clone(&shared), on_hint))),
        ];
        let (broker, last, lists_kept) =
            (broker.clone(), AtomicU64::default(), AtomicI64::default());
        Ok(Self { broker, link, rows, reply_queue, shared, _readers: readers, last, lists_kept })
    }

    /// Whether only another connection can help.
    pub(super) fn is_broken(&self) -> bool {
        self.shared.is_broken.load(Ordering::Relaxed)
    }

    /// Sends a request to any daemon.
    ///
    /// # Errors
    /// `Busy`: it is not known whether it was carried out, unless the error says that it was not taken.
    pub(super) async fn ask(&self, request: &Request) -> StoreResult<Reply> {
        let (answer, properties) = self.expect_answer();
        let properties = properties.with_expiration(EXPIRATION_MS.into());
        let body = encode(request);
        let (sent, is_taken) = (boot_time(), AtomicBool::default());
        let asked = timeout(CALL_MAX, self.exchange(body, properties, answer, &is_taken)).await;
        // This process was frozen meanwhile: the daemon may have taken it for dead, and handed out again the jobs in
        // the answer.
        let is_late = boot_time().saturating_sub(sent) > CALL_MAX;
        let answered = asked.ok().filter(|answer| answer.is_err() || !is_late);
        answered.unwrap_or_else(|| Err(self.unanswered(is_taken.into_inner())))
    }

    /// `is_taken`: the broker has the request.
    fn unanswered(&self, is_taken: bool) -> StoreError {
        let (broker, seconds) = (&self.broker, CALL_MAX.as_secs());
        StoreError::Busy(if self.link.alarm.is_raised() {
            format!("the broker {broker} has an alarm, and takes no messages: see its log")
        } else if !is_taken {
            return broker.late();
        } else {
            format!("no daemon answered over the broker {broker} within {seconds} s")
        })
    }

    /// Awaits the broker's confirmation even if the answer comes first: the client keeps unawaited confirmations for
    /// ever.
    async fn exchange(
        &self,
        body: Vec<u8>,
        properties: BasicProperties,
        answer: Answer,
        is_taken: &AtomicBool,
    ) -> StoreResult<Reply> {
        self.link.alarm.over().await;
        let queue = self.broker.topology.requests();
        let published = publish(&self.link.channel, ("", &queue), &body, properties).await;
        published.map_err(|error| self.unpublished(&error))?;
        is_taken.store(true, Ordering::Relaxed);
        answer.wait().await.map_err(|error| self.unpublished(&error))
    }

    /// Sends rows by their range's queue, in order. The returned future yields the daemon's answer, however long that
    /// takes.
    ///
    /// # Errors
    /// `Busy`, also from the returned future: it is not known whether they are stored.
    pub(super) async fn send_rows(
        &self,
        rows: &RelayedRows,
    ) -> Result<impl Future<Output = Result<RowsAnswer, PublishError>> + Send + use<>, PublishError>
    {
        self.link.alarm.over().await;
        let (answer, properties) = self.expect_answer();
        let exchange = self.broker.topology.rows();
        let route = (&*exchange, &*Topology::range_key(rows.range));
        let properties = properties.with_delivery_mode(PERSISTENT);
        let channel = self.rows().clone();
        let confirmed = begin_publish(&channel, route, &encode(rows), properties).await?;
        Ok(async {
            confirmed.await?;
            match answer.wait().await? {
                Reply::Rows(answer) => Ok(answer),
                Reply::Refused(why) => Ok(RowsAnswer::Rejected(why)),
                _ => Err(PublishError::NoAnswer),
            }
        })
    }

    /// Switches rows to a new channel, after a refusal: if a channel's first message for a quorum queue found the
    /// queue's leader down, RabbitMQ 3 refuses everything on that channel for ever, even when there is a new leader.
    pub(super) async fn renew_rows(&self) -> Result<(), PublishError> {
        let renewed = self.link.confirming_channel().await?;
        // The old channel is closed with its last user.
        *self.rows() = renewed;
        Ok(())
    }

    fn rows(&self) -> MutexGuard<'_, Channel> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Directs the answer to a message to the holder of the returned value.
    fn expect_answer(&self) -> (Answer, BasicProperties) {
        let id = self.last.fetch_add(1, Ordering::Relaxed).to_string();
        let (answer, received) = oneshot::channel();
        self.shared.waiting().insert(id.clone(), answer);
        let properties = properties()
            .with_message_id(id.as_str().into())
            .with_reply_to(self.reply_queue.as_str().into());
        (Answer { id, received, shared: Arc::clone(&self.shared) }, properties)
    }

    pub(super) fn unpublished(&self, error: &PublishError) -> StoreError {
        if matches!(error, PublishError::Broker(_)) {
            self.shared.break_off();
        }
        StoreError::Busy(format!("a message to the broker {} failed: {error}", self.broker))
    }

    pub(super) async fn close(&self) {
        self.link.close().await;
    }
}

struct Answer {
    id: String,
    received: oneshot::Receiver<Result<Reply, Unfit>>,
    shared: Arc<Shared>,
}

impl Answer {
    /// An unreadable answer does not show what was done.
    async fn wait(mut self) -> Result<Reply, PublishError> {
        let answer = (&mut self.received).await.map_err(|_| PublishError::NoAnswer)?;
        answer.map_err(PublishError::Unreadable)
    }
}

/// No longer waits.
impl Drop for Answer {
    fn drop(&mut self) {
        self.shared.waiting().remove(&self.id);
    }
}

/// A queue of this connection alone, and what comes to it.
async fn consume_own(
    channel: &Channel,
    arguments: FieldTable,
) -> lapin::Result<(String, Consumer)> {
    let own = QueueDeclareOptions {
        exclusive: true,
        auto_delete: true,
        ..QueueDeclareOptions::default()
    };
    let name = channel.queue_declare("".into(), own, arguments).await?.name().to_string();
    let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
    let none = FieldTable::default();
    let consumer = channel.basic_consume(name.as_str().into(), "".into(), options, none).await?;
    Ok((name, consumer))
}

/// Hints; one that waits is as good as many.
async fn consume_hints(channel: &Channel, exchange: &str) -> lapin::Result<Consumer> {
    let mut one = FieldTable::default();
    one.insert("x-max-length".into(), AMQPValue::LongInt(1));
    one.insert("x-overflow".into(), AMQPValue::LongString("drop-head".into()));
    let (queue, hints) = consume_own(channel, one).await?;
    let (options, none) = (QueueBindOptions::default(), FieldTable::default());
    channel.queue_bind(queue.into(), exchange.into(), "".into(), options, none).await?;
    Ok(hints)
}

async fn read_replies(mut replies: Consumer, shared: Arc<Shared>) {
    while let Some(Ok(delivery)) = replies.next().await {
        let id = delivery.properties.correlation_id().as_ref().map(ToString::to_string);
        let Some(waiting) = id.and_then(|id| shared.waiting().remove(&id)) else {
            continue; // The requester has given up.
        };
        // If the requester has just given up, it asks again.
        let _ = waiting.send(decode(version(&delivery.properties), &delivery.data));
    }
    shared.break_off();
}

async fn read_hints(mut hints: Consumer, shared: Arc<Shared>, mut on_hint: impl FnMut()) {
    while let Some(Ok(_)) = hints.next().await {
        on_hint();
    }
    shared.break_off();
}
