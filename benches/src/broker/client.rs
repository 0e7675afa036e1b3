//! A connection of the benchmark's own to the broker, which waits for each answer.

use std::io;

use lapin::options::{BasicPublishOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use tokio::runtime::Runtime;

pub struct Client {
    pub runtime: Runtime,
    pub connection: Connection,
    channel: Channel,
}

impl Client {
    pub fn connect(url: &str) -> io::Result<Self> {
        // Its worker answers heartbeats while nobody waits.
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build()?;
        let connected = runtime.block_on(async {
            let connection = Connection::connect(url, ConnectionProperties::default()).await?;
            let channel = connection.create_channel().await?;
            Ok((connection, channel))
        });
        let (connection, channel) = connected.map_err(failed)?;
        Ok(Self { runtime, connection, channel })
    }

    /// Messages of a queue that nobody has.
    pub fn messages(&self, queue: &str) -> io::Result<u32> {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let declared = self.channel.queue_declare(queue.into(), passive, FieldTable::default());
        self.runtime.block_on(declared).map(|queue| queue.message_count()).map_err(failed)
    }

    /// Publishes a message without a body.
    pub fn publish(&self, exchange: &str) -> io::Result<()> {
        let options = BasicPublishOptions::default();
        let none = BasicProperties::default();
        let sent = self.channel.basic_publish(exchange.into(), "".into(), options, b"", none);
        self.runtime.block_on(sent).map(drop).map_err(failed)
    }
}

pub fn failed(error: lapin::Error) -> io::Error {
    io::Error::other(format!("the broker: {error}"))
}
