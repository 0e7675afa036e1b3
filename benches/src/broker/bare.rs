//! What the broker does without a queue of jobs: messages with rows are published with confirms, consumed and acknowledged.
//!
//! The least that durable delivery can be: a durable queue, persistent messages like a relay's own, two connections.
//! Nothing is parsed, stored or answered.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use futures_util::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
    ConfirmSelectOptions, QueueDeclareOptions, QueuePurgeOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Confirmation, Consumer};
use shiftboss_protocol::model::{Key, Row, Run};
use shiftboss_queue::operation::RelayedRows;

use super::client::{Client, failed};
use crate::bare::key;

/// Rows of a message, and messages that are not confirmed or not acknowledged at most: as a relay has them.
const ROWS: usize = 100;
const OUTSTANDING: u16 = 200;
const QUEUE: &str = "bench.bare";
const PERSISTENT: u8 = 2;

/// Rows a second of so many, with the messages' size in bytes.
pub fn rate(broker: &str, rows: usize) -> io::Result<(f64, usize)> {
    let (sending, taking) = (Client::connect(broker)?, Client::connect(broker)?);
    let (messages, body) = (rows / ROWS, body()?);
    let bytes = body.len();
    let consumer = taking.runtime.block_on(consume(&taking)).map_err(failed)?;
    let channel = sending.runtime.block_on(confirming(&sending)).map_err(failed)?;
    let begun = Instant::now();
    let sent = sending.runtime.spawn(publish(channel, messages, body));
    taking.runtime.block_on(acknowledge(consumer, messages)).map_err(failed)?;
    sending.runtime.block_on(sent).map_err(io::Error::other)?.map_err(failed)?;
    Ok(((messages * ROWS) as f64 / begun.elapsed().as_secs_f64(), bytes))
}

/// A message as a relay sends it, with lines of the lists that are measured.
fn body() -> io::Result<Vec<u8>> {
    let row = |index| Row {
        key: Key::stored(&key(index)),
        payload: format!("1.{:07} -> 2.{:06}", index % 1_000, index % 777),
    };
    let run = Run { fetcher: "bench".into(), started: 1 };
    let rows = (0..ROWS).map(row).collect();
    let message = RelayedRows { epoch: 1_795_497_070_000, range: 7, number: 1_000, run, rows };
    serde_json::to_vec(&message).map_err(io::Error::other)
}

async fn consume(client: &Client) -> lapin::Result<Consumer> {
    let channel = client.connection.create_channel().await?;
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(QUEUE.into(), durable, FieldTable::default()).await?;
    channel.queue_purge(QUEUE.into(), QueuePurgeOptions::default()).await?;
    channel.basic_qos(OUTSTANDING, BasicQosOptions::default()).await?;
    let options = BasicConsumeOptions::default();
    channel.basic_consume(QUEUE.into(), "".into(), options, FieldTable::default()).await
}

async fn confirming(client: &Client) -> lapin::Result<Channel> {
    let channel = client.connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok(channel)
}

async fn publish(channel: Channel, messages: usize, body: Vec<u8>) -> lapin::Result<()> {
    let properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
    let mandatory = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let mut unconfirmed = VecDeque::new();
    for _ in 0..messages {
        if unconfirmed.len() >= usize::from(OUTSTANDING)
            && let Some(oldest) = unconfirmed.pop_front()
        {
            check(oldest.await?)?;
        }
        let (queue, properties) = (QUEUE.into(), properties.clone());
        let sent = channel.basic_publish("".into(), queue, mandatory, &body, properties);
        unconfirmed.push_back(sent.await?);
    }
    for left in unconfirmed {
        check(left.await?)?;
    }
    Ok(())
}

fn check(confirmed: Confirmation) -> lapin::Result<()> {
    match confirmed {
        Confirmation::Ack(None) => Ok(()),
        other => Err(io::Error::other(format!("a message was not taken: {other:?}")).into()),
    }
}

async fn acknowledge(mut consumer: Consumer, messages: usize) -> lapin::Result<()> {
    for _ in 0..messages {
        let ended = || lapin::Error::from(io::Error::other("the consumer ended"));
        let delivery = consumer.next().await.ok_or_else(ended)??;
        delivery.acker.ack(BasicAckOptions::default()).await?;
    }
    Ok(())
}
