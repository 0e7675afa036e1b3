//! Which queue a prefix of the broker is for, where several daemons share it: one durable message says so.
//!
//! Asked by the daemon's [`server`](super) before it takes anything. A queue of one daemon does without: that takes requests
//! exclusively.

use std::time::Duration;

use lapin::BasicProperties;
use lapin::options::{BasicGetOptions, BasicNackOptions};
use shiftboss_actors::store::{StoreError, StoreResult};
use tokio::time::sleep;

use crate::broker::link::{Broker, Link, PERSISTENT, PublishError, publish};

/// How often the message is looked for, which another daemon may have in its hand, and how long it is waited between.
const LOOKS: u32 = 20;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Makes the prefix this installation's, if it is nobody's.
///
/// # Errors
/// `Fatal` when it is another one's; `Busy` when the broker cannot say.
pub(super) async fn claim(broker: &Broker, link: &Link, installation: &str) -> StoreResult<()> {
    let queue = broker.topology.installation();
    let durable = BasicProperties::default().with_delivery_mode(PERSISTENT);
    for _ in 0..LOOKS {
        let route = ("", &*queue);
        match publish(&link.channel, route, installation.as_bytes(), durable.clone()).await {
            Ok(()) => return Ok(()),
            // Somebody said it before.
            Err(PublishError::NoRoom) => {}
            Err(error) => return Err(StoreError::Busy(error.to_string())),
        }
        let got = link.channel.basic_get(queue.as_str().into(), BasicGetOptions::default()).await;
        if let Some(said) = got.map_err(|error| broker.classify(&error))? {
            let back = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
            said.acker.nack(back).await.map_err(|error| broker.classify(&error))?;
            return if said.data == installation.as_bytes() {
                Ok(())
            } else {
                Err(another(broker, &queue))
            };
        }
        sleep(LOOK_EVERY).await;
    }
    Err(StoreError::Busy(format!("the broker does not say which queue {queue} names")))
}

fn another(broker: &Broker, queue: &str) -> StoreError {
    StoreError::Fatal(format!(
        "the broker {broker} is used for another queue under this prefix: give this one another with --broker-prefix. \
         If that queue is gone for good, delete {queue} on the broker"
    ))
}
