//! The queues and exchanges on the broker: their names, and how they are made.
//!
//! A daemon declares them; a relay needs them. Both do so at each new connection.

use lapin::options::{ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, ExchangeKind};

/// Requests that wait at the most; a relay is told at once when there are more.
const REQUESTS_MAX: i32 = 100_000;

/// What belongs to one installation; several may share a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Topology {
    prefix: String,
}

impl Topology {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// The queue of what relays ask, taken by any daemon.
    pub(super) fn requests(&self) -> String {
        format!("{}request", self.prefix)
    }

    /// The exchange on which daemons say that there may be work.
    pub(super) fn hints(&self) -> String {
        format!("{}hint", self.prefix)
    }

    /// The queue of what was refused.
    pub(super) fn dead(&self) -> String {
        format!("{}dead", self.prefix)
    }

    /// Makes what is missing.
    ///
    /// # Errors
    /// The broker's, also when something of another kind has a name: it says what differs.
    pub(super) async fn declare(&self, channel: &Channel) -> lapin::Result<()> {
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let mut limited = FieldTable::default();
        limited.insert("x-max-length".into(), AMQPValue::LongInt(REQUESTS_MAX));
        limited.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
        channel.queue_declare(self.requests().into(), durable, limited).await?;
        channel.queue_declare(self.dead().into(), durable, FieldTable::default()).await?;
        let exchange =
            ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        channel
            .exchange_declare(
                self.hints().into(),
                ExchangeKind::Fanout,
                exchange,
                FieldTable::default(),
            )
            .await
    }
}
