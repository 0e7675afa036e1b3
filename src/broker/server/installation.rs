//! Which queue a prefix of the broker is for: the first daemon says so there, and one that has another queue serves no relays.
//!
//! Asked by the daemon's [`server`](super) before it takes anything, over each connection. The broker keeps it as an argument of a
//! queue in which nothing ever is: it makes the queue once, whoever comes first, and refuses to make it with another argument.
//! A message could be in somebody's hand in the moment in which the next one looks.
//!
//! A queue that several daemons share has a place besides, which a copy of it does not have.

use lapin::options::BasicConsumeOptions;
use lapin::types::FieldTable;
use lapin::{Channel, Consumer};
use shiftboss_actors::store::StoreError;
use tokio::time::timeout;

use super::Unserved;
use crate::broker::link::{Broker, CALL_MAX, Link};
use crate::broker::refusal::{self, PRECONDITION_FAILED};
use crate::broker::topology::durable;

/// Makes the prefix this installation's, if it is nobody's.
///
/// # Errors
/// `Foreign` when it is another one's; else what keeps the broker from saying so.
pub(super) async fn claim(
    broker: &Broker,
    link: &Link,
    installation: &str,
) -> Result<(), Unserved> {
    let name = broker.topology.installation();
    let arguments = broker.topology.installation_is(installation);
    let other = || Unserved::Foreign(foreign(broker, &name, installation));
    declare(broker, link, &name, arguments, other).await.map(drop)
}

/// Keeps the prefix for a place, together with other daemons of it, as long as what this returns is kept: a copy of the queue, which
/// is the same installation, waits until none of them is there any more.
///
/// # Errors
/// What keeps the broker from it: that it is another place's, too.
pub(super) async fn occupy(
    broker: &Broker,
    link: &Link,
    place: &str,
) -> Result<Consumer, Unserved> {
    let name = broker.topology.place();
    let other = || {
        Unserved::Failed(StoreError::Busy(format!(
            "the broker {broker} serves this queue from another database, so this is a copy of it: give it a --broker-prefix of its \
             own, or stop the daemons of the other one and wait a minute"
        )))
    };
    let channel = declare(broker, link, &name, broker.topology.place_is(place), other).await?;
    let (options, none) = (BasicConsumeOptions::default(), FieldTable::default());
    let kept = channel.basic_consume(name.into(), "".into(), options, none);
    Ok(broker.answer(kept).await?)
}

/// Makes a queue with these arguments; `other`: it is there with others. Returns the channel on which that was done.
async fn declare(
    broker: &Broker,
    link: &Link,
    name: &str,
    arguments: FieldTable,
    other: impl FnOnce() -> Unserved,
) -> Result<Channel, Unserved> {
    let declared = async {
        // A refusal closes the channel.
        let channel = link.channel().await?;
        channel.queue_declare(name.into(), durable(), arguments).await?;
        Ok(channel)
    };
    let declared = timeout(CALL_MAX, declared).await.map_err(|_| broker.late())?;
    declared.map_err(|error: lapin::Error| match refusal::code(&error) {
        Some(PRECONDITION_FAILED) => other(),
        _ => broker.classify(&error).into(),
    })
}

fn foreign(broker: &Broker, queue: &str, installation: &str) -> String {
    format!(
        "the broker {broker} serves another queue than this one ({installation}) under this prefix: give this one another with \
         --broker-prefix. If that queue is gone for good, delete {queue} on the broker"
    )
}
