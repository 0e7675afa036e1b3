//! Looks at a broker for `shiftboss broker check`: whether it answers, has what [`topology`](crate::topology) declares, and
//! takes messages. Makes nothing. The types are
//! those of its JSON object (docs/json.md).
//!
//! Bindings cannot be read over AMQP; a daemon makes them at each connection.

use std::time::Duration;

use lapin::options::ExchangeDeclareOptions;
use lapin::types::FieldTable;
use lapin::{ErrorKind, ExchangeKind};
use serde::Serialize;
use shiftboss_queue::error::{StoreError, StoreResult};
use tokio::time::timeout;

use crate::link::{Broker, Link};
use crate::refusal::{NOT_FOUND, PRECONDITION_FAILED, RESOURCE_LOCKED};
use crate::topology::{durable, is_about_delivery_limit, look_up, without_delivery_limit};

/// The longest time for the whole check, which takes some hundred answers of the broker.
const CHECK_MAX: Duration = Duration::from_secs(30);

/// Whether a broker can be used, and how long its queues are.
#[derive(Debug, Serialize)]
pub struct BrokerCheck {
    /// False: it is short of memory or disk, and holds back all that is published.
    pub takes_messages: bool,
    /// The largest message that it takes, if that is less than may be sent.
    pub max_message_bytes: Option<usize>,
    /// Queues first.
    pub parts: Vec<Part>,
}

#[derive(Debug, Serialize)]
pub struct Part {
    pub kind: PartKind,
    pub name: String,
    pub state: PartState,
    /// The broker's text about the difference.
    pub difference: Option<String>,
    /// Messages that wait; for a queue.
    pub messages: Option<u32>,
    /// Consumers; for a queue.
    pub consumers: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    Queue,
    Exchange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartState {
    AsDeclared,
    Missing,
    Differs,
}

/// # Errors
/// As for a connection; and if the user lacks the right to look.
pub async fn check(broker: &Broker) -> StoreResult<BrokerCheck> {
    let link = broker.connect("shiftboss broker check").await?;
    let checked = timeout(CHECK_MAX, look(broker, &link)).await.map_err(|_| {
        let seconds = CHECK_MAX.as_secs();
        StoreError::Busy(format!("checking the broker {broker} took longer than {seconds} s"))
    })?;
    let checked = checked.map_err(|error| broker.classify(&error))?;
    // A broker that holds messages back does not read the close either.
    if checked.takes_messages {
        link.close().await;
    }
    Ok(checked)
}

async fn look(broker: &Broker, link: &Link) -> lapin::Result<BrokerCheck> {
    let mut parts = Vec::new();
    for (name, arguments) in broker.topology.queues() {
        parts.push(queue(link, name, Some(arguments)).await?);
    }
    // Only its daemons know its argument.
    parts.push(queue(link, broker.topology.installation(), None).await?);
    for (name, kind) in broker.topology.exchanges() {
        parts.push(exchange(link, name, kind).await?);
    }
    let takes_messages = link.takes_messages(&broker.topology).await?;
    let max_message_bytes =
        if takes_messages { link.size_max(&broker.topology).await } else { None };
    Ok(BrokerCheck { takes_messages, max_message_bytes, parts })
}

/// Declared only if it exists, so none is made. Each has a channel of its own, because a refusal closes that.
async fn queue(link: &Link, name: String, arguments: Option<FieldTable>) -> lapin::Result<Part> {
    let found = match look_up(&link.channel().await?, &name).await {
        Ok(found) => found,
        Err(error) => return unlike(PartKind::Queue, name, error),
    };
    let declared = match arguments {
        Some(arguments) => declare(link, &name, arguments).await,
        None => Ok(()),
    };
    let mut part = match declared {
        Ok(()) => as_declared(PartKind::Queue, name),
        Err(error) => unlike(PartKind::Queue, name, error)?,
    };
    part.messages = Some(found.message_count());
    part.consumers = Some(found.consumer_count());
    Ok(part)
}

async fn declare(link: &Link, name: &str, arguments: FieldTable) -> lapin::Result<()> {
    let channel = link.channel().await?;
    let declared = channel.queue_declare(name.into(), durable(), arguments.clone()).await;
    match declared {
        // With the arguments for a newer broker.
        Err(error) if is_about_delivery_limit(&error) => {
            let channel = link.channel().await?;
            let arguments = without_delivery_limit(arguments);
            channel.queue_declare(name.into(), durable(), arguments).await.map(drop)
        }
        declared => declared.map(drop),
    }
}

async fn exchange(link: &Link, name: String, kind: ExchangeKind) -> lapin::Result<Part> {
    let channel = link.channel().await?;
    let look = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    for options in [look, durable] {
        let none = FieldTable::default();
        let declared =
            channel.exchange_declare(name.as_str().into(), kind.clone(), options, none).await;
        if let Err(error) = declared {
            return unlike(PartKind::Exchange, name, error);
        }
    }
    Ok(as_declared(PartKind::Exchange, name))
}

fn as_declared(kind: PartKind, name: String) -> Part {
    let state = PartState::AsDeclared;
    Part { kind, name, state, difference: None, messages: None, consumers: None }
}

fn unlike(kind: PartKind, name: String, error: lapin::Error) -> lapin::Result<Part> {
    let ErrorKind::ProtocolError(refused) = error.kind() else { return Err(error) };
    let (state, difference) = match refused.get_id() {
        NOT_FOUND => (PartState::Missing, None),
        RESOURCE_LOCKED | PRECONDITION_FAILED => {
            (PartState::Differs, Some(refused.get_message().to_string()))
        }
        _ => return Err(error),
    };
    Ok(Part { state, difference, ..as_declared(kind, name) })
}
