//! The dead letters of a broker, for `shiftboss broker dead-letters`: shows them, and puts them back or deletes them.
//!
//! The daemon's [`server`](crate::server) makes them, by [`write`](write()). They are read without being acknowledged,
//! so none is lost if a look is broken off.

use std::time::Duration;

use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicGetOptions, BasicNackOptions};
use lapin::types::{AMQPValue, FieldTable, LongString};
use lapin::{BasicProperties, Channel};
use serde::Serialize;
use shiftboss_queue::error::{StoreError, StoreResult};
use tokio::time::timeout;

use crate::link::{Broker, Link, PERSISTENT, PublishError, properties_of, publish, version};
use crate::topology::look_up;

/// The longest time for one of them, which may be large.
const STEP_MAX: Duration = Duration::from_secs(30);
const REASON_HEADER: &str = "shiftboss-reason";
const QUEUE_HEADER: &str = "shiftboss-queue";
/// Most bytes of a reason that are shown; others may write to the queue, too.
const REASON_BYTES_MAX: usize = 4096;
/// The longest name of a queue that AMQP has.
const NAME_BYTES_MAX: usize = 255;
/// Most bytes of a dead letter that are shown.
const EXCERPT_BYTES_MAX: usize = 160;

/// What happens to the dead letters that are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposal {
    Keep,
    Requeue,
    Drop,
}

#[derive(Debug, Serialize)]
pub struct DeadLetters {
    pub letters: Vec<DeadLetter>,
    /// How many more there are.
    pub more: u32,
}

#[derive(Debug, Serialize)]
pub struct DeadLetter {
    /// `None`: the sender did not say.
    pub reason: Option<String>,
    /// Where it came from; `None`, likewise.
    pub queue: Option<String>,
    pub bytes: usize,
    /// Its beginning, with `U+FFFD` for what is not UTF-8.
    pub excerpt: String,
    /// Whether it is in its queue again, and no longer here.
    pub requeued: bool,
    /// Why it is not, though that was asked.
    pub problem: Option<String>,
}

/// Makes a dead letter of a message, and waits until the broker has it. It no longer expires.
pub(crate) async fn write(
    channel: &Channel,
    broker: &Broker,
    refused: &Delivery,
    reason: &str,
) -> Result<(), PublishError> {
    let topology = &broker.topology;
    let queue = topology.queue_of(refused.exchange.as_str(), refused.routing_key.as_str());
    let mut headers = FieldTable::default();
    headers.insert(REASON_HEADER.into(), AMQPValue::LongString(reason.into()));
    headers.insert(QUEUE_HEADER.into(), AMQPValue::LongString(queue.into()));
    let kept = kept(&refused.properties, headers);
    publish(channel, ("", &topology.dead()), &refused.data, kept).await
}

/// The properties that are needed to answer it, with further headers.
fn kept(of: &BasicProperties, headers: FieldTable) -> BasicProperties {
    let mut kept = properties_of(version(of), headers).with_delivery_mode(PERSISTENT);
    if let Some(id) = of.message_id() {
        kept = kept.with_message_id(id.clone());
    }
    if let Some(to) = of.reply_to() {
        kept = kept.with_reply_to(to.clone());
    }
    kept
}

/// Dead letters that are being looked at. They return to the queue when this is dropped.
pub struct Look<'a> {
    broker: &'a Broker,
    link: Link,
    pub found: DeadLetters,
}

impl<'a> Look<'a> {
    /// Takes the oldest, at most `count`, and puts them back where they came from, if `disposal` says so.
    ///
    /// # Errors
    /// As the connection's; and when there is no such queue.
    pub async fn take(broker: &'a Broker, count: u16, disposal: Disposal) -> StoreResult<Look<'a>> {
        let link = broker.connect("shiftboss broker dead-letters").await?;
        let all = in_time(broker, depth(broker, &link)).await?;
        let count = all.min(count.into());
        let mut letters = Vec::new();
        for _ in 0..count {
            match in_time(broker, one(broker, &link, disposal)).await? {
                Some(letter) => letters.push(letter),
                None => break,
            }
        }
        let shown = u32::try_from(letters.len()).unwrap_or(u32::MAX);
        let found = DeadLetters { letters, more: all.saturating_sub(shown) };
        Ok(Self { broker, link, found })
    }

    /// Deletes those that were found, or leaves those in the queue that were not put back.
    ///
    /// # Errors
    /// When it is not known whether they are deleted.
    pub async fn settle(self, delete: bool) -> StoreResult<()> {
        let Self { broker, link, .. } = self;
        let settled = in_time(broker, async {
            // Tag 0: all that are not settled yet.
            if delete {
                link.channel.basic_ack(0, BasicAckOptions { multiple: true }).await?;
            } else {
                let all = BasicNackOptions { multiple: true, requeue: true };
                link.channel.basic_nack(0, all).await?;
            }
            // Answers come in order: when this one is here, the acknowledgement is done.
            depth(broker, &link).await
        });
        settled.await?;
        link.close().await;
        Ok(())
    }
}

async fn in_time<T>(
    broker: &Broker,
    step: impl Future<Output = lapin::Result<T>>,
) -> StoreResult<T> {
    let late = |_| {
        let seconds = STEP_MAX.as_secs();
        StoreError::Busy(format!(
            "the broker {broker} did not answer within {seconds} s: `shiftboss broker check` says whether it takes messages"
        ))
    };
    let done = timeout(STEP_MAX, step).await.map_err(late)?;
    done.map_err(|error| broker.not_declared(&error))
}

async fn depth(broker: &Broker, link: &Link) -> lapin::Result<u32> {
    Ok(look_up(&link.channel, &broker.topology.dead()).await?.message_count())
}

/// The next dead letter; `None`: there are no more.
async fn one(
    broker: &Broker,
    link: &Link,
    disposal: Disposal,
) -> lapin::Result<Option<DeadLetter>> {
    let dead = broker.topology.dead().as_str().into();
    let got = link.channel.basic_get(dead, BasicGetOptions { no_ack: false }).await?;
    let Some(got) = got else { return Ok(None) };
    let mut letter = describe(&got.delivery);
    if disposal == Disposal::Requeue {
        letter.problem = put_back(broker, link, &got.delivery, letter.queue.as_deref()).await?;
        letter.requeued = letter.problem.is_none();
    }
    Ok(Some(letter))
}

fn describe(delivery: &Delivery) -> DeadLetter {
    let begin = &delivery.data[..delivery.data.len().min(EXCERPT_BYTES_MAX)];
    DeadLetter {
        reason: header(&delivery.properties, REASON_HEADER, REASON_BYTES_MAX),
        queue: header(&delivery.properties, QUEUE_HEADER, NAME_BYTES_MAX),
        bytes: delivery.data.len(),
        excerpt: String::from_utf8_lossy(begin).into_owned(),
        requeued: false,
        problem: None,
    }
}

fn header(properties: &BasicProperties, name: &str, bytes_max: usize) -> Option<String> {
    let headers = properties.headers().as_ref()?;
    let AMQPValue::LongString(text) = headers.inner().get(name)? else { return None };
    let bytes = LongString::as_bytes(text);
    Some(String::from_utf8_lossy(&bytes[..bytes.len().min(bytes_max)]).into_owned())
}

/// Acknowledges it once the broker has it in its old queue; else returns why it stays. If broken off in between, it is
/// in both queues.
async fn put_back(
    broker: &Broker,
    link: &Link,
    letter: &Delivery,
    queue: Option<&str>,
) -> lapin::Result<Option<String>> {
    let Some(queue) = queue else {
        return Ok(Some("it does not say in which queue it was".to_owned()));
    };
    if !broker.topology.is_for_daemons(queue) {
        return Ok(Some("it names a queue to which relays send nothing".to_owned()));
    }
    let kept = kept(&letter.properties, FieldTable::default());
    match publish(&link.channel, ("", queue), &letter.data, kept).await {
        Ok(()) => letter.acker.ack(BasicAckOptions::default()).await.map(|_| None),
        Err(PublishError::Broker(error)) => Err(error),
        Err(why) => Ok(Some(why.to_string())),
    }
}
