//! Messages that a test puts into queues of the broker, and takes from them.

use std::time::Duration;

use lapin::message::BasicGetMessage;
use lapin::options::{BasicGetOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};

use super::broker;

/// Calls with a channel to the broker.
pub fn with_channel<T>(work: impl AsyncFnOnce(Channel) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = broker();
        let connection = Connection::connect(&url, ConnectionProperties::default());
        let connection = connection.await.unwrap();
        work(connection.create_channel().await.unwrap()).await
    })
}

/// The properties of a message of a version.
pub fn ours(version: i64) -> BasicProperties {
    let mut headers = FieldTable::default();
    headers.insert("shiftboss-version".into(), AMQPValue::LongLongInt(version));
    BasicProperties::default().with_headers(headers)
}

pub async fn publish(channel: &Channel, queue: &str, body: &[u8], properties: BasicProperties) {
    let options = Default::default();
    let sent = channel.basic_publish("".into(), queue.into(), options, body, properties);
    sent.await.unwrap().await.unwrap();
}

/// Takes a message from a queue that has one.
pub async fn take(channel: &Channel, queue: &str) -> Option<BasicGetMessage> {
    let options = BasicGetOptions { no_ack: true };
    channel.basic_get(queue.into(), options).await.unwrap()
}

/// Publishes what is a dead letter of the installation then, for this reason.
pub async fn refused(
    channel: &Channel,
    (prefix, queue): (&str, &str),
    body: &[u8],
    properties: BasicProperties,
    why: &str,
) {
    publish(channel, queue, body, properties).await;
    let letter = loop {
        if let Some(letter) = take(channel, &format!("{prefix}dead")).await {
            break letter.delivery;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let headers = letter.properties.headers().clone().unwrap();
    let reason = headers.inner().get("shiftboss-reason").cloned();
    let Some(AMQPValue::LongString(reason)) = reason else { panic!("{headers:?}") };
    assert!(reason.to_string().contains(why), "{why}: {reason}");
    assert_eq!(letter.data, body);
}

/// How many messages and consumers a queue has.
pub async fn counts(channel: &Channel, queue: &str) -> (u32, u32) {
    let passive = QueueDeclareOptions { passive: true, ..Default::default() };
    let found = channel.queue_declare(queue.into(), passive, FieldTable::default());
    let found = found.await.unwrap();
    (found.message_count(), found.consumer_count())
}

pub async fn delete(channel: &Channel, queue: &str) {
    channel.queue_delete(queue.into(), Default::default()).await.unwrap();
}
