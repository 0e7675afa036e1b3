//! Refused messages: each becomes a dead letter, is logged, and its sender is answered.
//!
//! Part of the daemon's [`server`](super).

use lapin::message::Delivery;
use serde::Deserialize;
use tracing::warn;

use super::Server;
use crate::dead_letters;
use crate::link::Link;
use crate::message::{Reply, Unfit};

impl Server {
    /// Makes a dead letter of it, and logs that.
    pub(super) async fn refuse(
        &self,
        link: &Link,
        delivery: &Delivery,
        unfit: &Unfit,
    ) -> Result<(), String> {
        let (exchange, key) = (delivery.exchange.as_str(), delivery.routing_key.as_str());
        let queue = self.broker.topology.queue_of(exchange, key);
        let relay = self.sender(&delivery.data);
        warn!(relay, queue, %unfit, "A message was refused, and is a dead letter.");
        let reason = unfit.to_string();
        let published = dead_letters::write(&link.channel, &self.broker, delivery, &reason).await;
        published.map_err(|error| error.to_string())?;
        self.answer(link, delivery, Reply::Refused(reason)).await
    }

    /// The name of the relay that sent a body, if that can be read, and this daemon knows it.
    fn sender(&self, body: &[u8]) -> Option<String> {
        self.liveness.borrow().name(epoch_of(body)?).map(str::to_owned)
    }
}

/// The part of a body that says under which epoch it was sent, whatever else is wrong with it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Body {
    /// Of rows.
    epoch: Option<i64>,
    batch: Option<Sent>,
    leave: Option<Sent>,
}

#[derive(Deserialize)]
struct Sent {
    epoch: i64,
}

fn epoch_of(body: &[u8]) -> Option<i64> {
    let body: Body = serde_json::from_slice(body).ok()?;
    body.epoch.or_else(|| body.batch.or(body.leave).map(|sent| sent.epoch))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sender of a message is recognised even if it has members that this version does not know.
    #[test]
    fn an_epoch_is_read_whatever_else_is_wrong() {
        for (body, epoch) in [
            (r#"{"epoch": 7, "range": 99, "rows": 5}"#, Some(7)),
            (r#"{"batch": {"epoch": 7, "operations": [{"of_the_future": {}}]}}"#, Some(7)),
            (r#"{"leave": {"epoch": 7}}"#, Some(7)),
            (r#"{"join": {"name": "r"}}"#, None),
            (r#"{"batch": []}"#, None),
            ("{", None),
        ] {
            assert_eq!(epoch_of(body.as_bytes()), epoch, "{body}");
        }
    }
}
