//! The queues and exchanges on the broker: their names, and how they are made.
//!
//! A daemon declares them at each new connection. A relay declares none of them.

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, ExchangeKind, Queue};
use shiftboss_queue::operation::RANGES;

/// What the names on the broker begin with, unless another installation shares it.
pub const PREFIX: &str = "shiftboss.";

/// Most messages that wait in a queue; beyond that the broker refuses at once.
const REQUESTS_MAX: i32 = 100_000;
const ROWS_MAX: i32 = 20_000;
/// The argument that limits how often a message is delivered.
const DELIVERY_LIMIT: &str = "x-delivery-limit";

/// How the broker keeps the queues that outlive it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum QueueKind {
    /// On one node.
    #[default]
    Classic,
    /// On most nodes of a cluster.
    Quorum,
}

/// The names of one installation; several may share a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Topology {
    prefix: String,
    kind: QueueKind,
}

impl Topology {
    pub(crate) fn new(prefix: &str, kind: QueueKind) -> Self {
        Self { prefix: prefix.to_owned(), kind }
    }

    /// The queue of relays' requests, taken by any daemon.
    pub(crate) fn requests(&self) -> String {
        format!("{}request", self.prefix)
    }

    /// The exchange for daemons' hints that there may be work.
    pub(crate) fn hints(&self) -> String {
        format!("{}hint", self.prefix)
    }

    pub(crate) fn dead(&self) -> String {
        format!("{}dead", self.prefix)
    }

    /// The queue that says which installation the prefix is for, by its [argument](Self::installation_is). It is always empty.
    pub(crate) fn installation(&self) -> String {
        format!("{}installation", self.prefix)
    }

    /// The arguments that name an installation. Among those that a broker compares, these take a text.
    pub(crate) fn installation_is(&self, installation: &str) -> FieldTable {
        let mut arguments = FieldTable::default();
        let text = |text: &str| AMQPValue::LongString(text.into());
        arguments.insert("x-dead-letter-exchange".into(), text(""));
        arguments.insert("x-dead-letter-routing-key".into(), text(installation));
        self.keep(arguments)
    }

    /// The queue that says which file or database has the relays, by its [argument](Self::lease_of). It is always empty.
    pub(crate) fn lease(&self) -> String {
        format!("{}daemon", self.prefix)
    }

    /// The arguments that name the holder of the relays, for a queue that expires after `expires_ms` milliseconds
    /// without a consumer.
    pub(crate) fn lease_of(&self, holder: &str, expires_ms: i32) -> FieldTable {
        let mut arguments = self.installation_is(holder);
        arguments.insert("x-expires".into(), AMQPValue::LongInt(expires_ms));
        arguments
    }

    /// The arguments of a queue that must survive a broker's restart, or the loss of some of its nodes.
    fn keep(&self, mut arguments: FieldTable) -> FieldTable {
        if self.kind == QueueKind::Quorum {
            arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        }
        arguments
    }

    /// The exchange to which relays send rows of lists, under their [range](Self::range_key).
    pub(crate) fn rows(&self) -> String {
        format!("{}write", self.prefix)
    }

    /// The routing key of a range's rows: two hexadecimal digits.
    pub(crate) fn range_key(range: u8) -> String {
        format!("{range:02x}")
    }

    /// The range of a message that was sent under a key, or to the range's queue itself.
    pub(crate) fn range_of_key(key: &str) -> u8 {
        let digits = key.len().checked_sub(2).and_then(|at| key.get(at..));
        digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).unwrap_or(RANGES)
    }

    pub(crate) fn rows_of(&self, range: u8) -> String {
        format!("{}.{}", self.rows(), Self::range_key(range))
    }

    /// All queues that messages are in, with their arguments.
    pub(crate) fn queues(&self) -> Vec<(String, FieldTable)> {
        let rows = (0..RANGES).map(|range| {
            let mut arguments = limited(ROWS_MAX);
            arguments.insert("x-single-active-consumer".into(), AMQPValue::Boolean(true));
            (self.rows_of(range), arguments)
        });
        let others =
            [(self.requests(), limited(REQUESTS_MAX)), (self.dead(), FieldTable::default())];
        let queues = others.into_iter().chain(rows);
        queues.map(|(name, arguments)| (name, self.keep(arguments))).collect()
    }

    pub(crate) fn exchanges(&self) -> [(String, ExchangeKind); 2] {
        [(self.hints(), ExchangeKind::Fanout), (self.rows(), ExchangeKind::Direct)]
    }

    /// The queue from which a message came that was sent under a key.
    pub(crate) fn queue_of(&self, exchange: &str, key: &str) -> String {
        if exchange == self.rows() { format!("{exchange}.{key}") } else { key.to_owned() }
    }

    /// Whether a queue is one from which daemons take what relays send.
    pub(crate) fn is_for_daemons(&self, queue: &str) -> bool {
        queue == self.requests() || (0..RANGES).any(|range| queue == self.rows_of(range))
    }

    pub(crate) fn nowhere(&self) -> String {
        format!("{}nowhere", self.prefix)
    }

    /// Whether the broker accepts an unlimited number of deliveries as an argument. Without it, RabbitMQ 4 drops a
    /// message from a quorum queue after 20 deliveries; RabbitMQ 3 never drops one, and refuses the argument.
    ///
    /// A refusal closes the channel.
    async fn takes_delivery_limit(&self, channel: Channel) -> lapin::Result<bool> {
        let is_quorum = self.kind == QueueKind::Quorum;
        let Some((name, arguments)) = self.queues().into_iter().next().filter(|_| is_quorum) else {
            return Ok(false);
        };
        let arguments = without_delivery_limit(arguments);
        match channel.queue_declare(name.into(), durable(), arguments).await {
            Err(error) if is_about_delivery_limit(&error) => Ok(false),
            declared => declared.map(|_| true),
        }
    }

    /// Makes what is missing. The other channel is for a check that may close it.
    ///
    /// # Errors
    /// The broker's error, also if a name is taken by something different: it says what differs.
    pub(crate) async fn declare(&self, channel: &Channel, other: Channel) -> lapin::Result<()> {
        let is_told = self.takes_delivery_limit(other).await?;
        for (name, arguments) in self.queues() {
            let arguments = if is_told { without_delivery_limit(arguments) } else { arguments };
            channel.queue_declare(name.into(), durable(), arguments).await?;
        }
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        for (name, kind) in self.exchanges() {
            channel.exchange_declare(name.into(), kind, durable, FieldTable::default()).await?;
        }
        for range in 0..RANGES {
            let (queue, key) = (self.rows_of(range), Self::range_key(range));
            let (exchange, options) = (self.rows(), QueueBindOptions::default());
            let none = FieldTable::default();
            channel.queue_bind(queue.into(), exchange.into(), key.into(), options, none).await?;
        }
        Ok(())
    }
}

pub(crate) fn durable() -> QueueDeclareOptions {
    QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() }
}

/// How many messages and consumers a declared queue has. A missing queue closes the channel.
pub(crate) async fn look_up(channel: &Channel, queue: &str) -> lapin::Result<Queue> {
    let look = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(queue.into(), look, FieldTable::default()).await
}

pub(crate) fn without_delivery_limit(mut arguments: FieldTable) -> FieldTable {
    arguments.insert(DELIVERY_LIMIT.into(), AMQPValue::LongInt(-1));
    arguments
}

pub(crate) fn is_about_delivery_limit(refusal: &lapin::Error) -> bool {
    refusal.to_string().contains(DELIVERY_LIMIT)
}

/// The arguments of a queue with a limit: messages beyond it are refused, not dropped.
fn limited(messages: i32) -> FieldTable {
    let mut arguments = FieldTable::default();
    arguments.insert("x-max-length".into(), AMQPValue::LongInt(messages));
    arguments.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    arguments
}
