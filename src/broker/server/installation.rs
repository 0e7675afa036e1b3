//! Which queue a prefix of the broker is for: the first daemon says so there, and one that has another queue serves no relays.
//!
//! Asked by the daemon's [`server`](super) before it takes anything, over each connection. The broker keeps it as an argument of a
//! queue in which nothing ever is: it makes the queue once, whoever comes first, and refuses to make it with another argument.
//! A message could be in somebody's hand in the moment in which the next one looks.

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
    let declared = async {
        // A refusal closes the channel.
        let channel = link.channel().await?;
        channel.queue_declare(name.as_str().into(), durable(), arguments).await?;
        channel.close(200, "done".into()).await
    };
    let Err(error) = timeout(CALL_MAX, declared).await.map_err(|_| broker.late())? else {
        return Ok(());
    };
    Err(match refusal::code(&error) {
        Some(PRECONDITION_FAILED) => Unserved::Foreign(foreign(broker, &name, installation)),
        _ => broker.classify(&error).into(),
    })
}

fn foreign(broker: &Broker, queue: &str, installation: &str) -> String {
    format!(
        "the broker {broker} serves another queue than this one ({installation}) under this prefix: give this one another with \
         --broker-prefix. If that queue is gone for good, delete {queue} on the broker"
    )
}
