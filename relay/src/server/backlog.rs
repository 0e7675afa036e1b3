//! What waits on the broker, as `shiftboss status` shows it.
//!
//! Part of the daemon's [`server`](super). The broker is asked every few seconds, and operators are answered from
//! memory.

use std::time::Duration;

use shiftboss_protocol::answers::live::{BrokerLive, HeardRelay, RangeLive};
use shiftboss_queue::operation::RANGES;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::Server;
use crate::link::{CALL_MAX, Link};
use crate::topology::look_up;

const ASK_EVERY: Duration = Duration::from_secs(3);

impl Server {
    /// For an operator.
    pub(super) fn live(&self) -> BrokerLive {
        let backlog = self.backlog.borrow().clone();
        let connected = backlog.is_some();
        let heard = self.liveness.borrow().heard(Instant::now());
        let relays = heard.into_iter().map(|(name, silent)| HeardRelay {
            name: name.to_string(),
            silent_seconds: silent.as_secs(),
        });
        let (url, relays) = (self.broker.to_string(), relays.collect());
        BrokerLive { url, connected, relays, ..backlog.unwrap_or_default() }
    }

    /// Asks the broker for as long as there is a connection. A missing queue is left to its users to report; here the
    /// question is only repeated.
    pub(super) async fn watch_backlog(&self, link: &Link) -> std::convert::Infallible {
        let mut looks = interval(ASK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let told = timeout(CALL_MAX, self.look(link)).await;
            let told = told.ok().and_then(Result::ok).unwrap_or_default();
            self.backlog.replace(Some(told));
        }
    }

    /// On a channel of its own, because an error closes it.
    async fn look(&self, link: &Link) -> lapin::Result<BrokerLive> {
        let channel = link.channel().await?;
        let topology = &self.broker.topology;
        let requests = look_up(&channel, &topology.requests()).await?.message_count();
        let dead_letters = look_up(&channel, &topology.dead()).await?.message_count();
        let mut ranges = Vec::new();
        for range in 0..RANGES {
            let queue = look_up(&channel, &topology.rows_of(range)).await?;
            let (messages, consumers) = (queue.message_count(), queue.consumer_count());
            ranges.push(RangeLive { range, messages, consumers });
        }
        channel.close(200, "done".into()).await?;
        let (requests, dead_letters) = (Some(requests), Some(dead_letters));
        Ok(BrokerLive { requests, dead_letters, ranges, ..BrokerLive::default() })
    }
}
