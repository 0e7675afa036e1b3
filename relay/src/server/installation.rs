//! Which queue a prefix on the broker is for: the first daemon claims it there, and a daemon with another queue does
//! not serve relays.
//!
//! Asked by the daemon's [`server`](super) before it takes anything, over each connection. The broker keeps it as an
//! argument of a queue that is always empty: the first daemon makes the queue, and the broker refuses to make it with
//! another argument. A message would not do: one daemon could be holding it at the moment when the next one looks.
//!
//! A queue that several daemons share has a place besides, which a copy of it does not have.

use tokio::time::timeout;

use super::Unserved;
use crate::link::{Broker, CALL_MAX, Link};
use crate::refusal::{self, PRECONDITION_FAILED};
use crate::topology::{Topology, durable};

/// Named by a broker's refusal that only concerns a queue's type.
const QUEUE_TYPE: &str = "x-queue-type";

/// Claims the prefix for this installation, if it is free.
///
/// # Errors
/// `Foreign` if another installation has it; else why the broker could not tell.
pub(super) async fn claim(
    broker: &Broker,
    link: &Link,
    installation: &str,
) -> Result<(), Unserved> {
    let declared = timeout(CALL_MAX, declare(&broker.topology, link, installation)).await;
    declared.map_err(|_| broker.late())?.map_err(|error| match refusal::code(&error) {
        Some(PRECONDITION_FAILED) if !error.to_string().contains(QUEUE_TYPE) => {
            Unserved::Foreign(foreign(broker, installation))
        }
        _ => broker.classify(&error).into(),
    })
}

async fn declare(topology: &Topology, link: &Link, installation: &str) -> lapin::Result<()> {
    // A refusal closes the channel.
    let channel = link.channel().await?;
    let (name, arguments) = (topology.installation(), topology.installation_is(installation));
    channel.queue_declare(name.into(), durable(), arguments).await?;
    channel.close(200, "done".into()).await
}

fn foreign(broker: &Broker, installation: &str) -> String {
    let queue = broker.topology.installation();
    format!(
        "the broker {broker} serves another queue than this one ({installation}) under this prefix: give this one another with \
         --broker-prefix. If that queue is gone for good, delete {queue} on the broker"
    )
}
