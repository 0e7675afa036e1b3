//! Hints: a daemon says to all relays that there may be work, and nothing but that.
//!
//! Part of the daemon's [`server`](super).

use std::time::Duration;

use lapin::options::BasicPublishOptions;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::Server;
use crate::link::{Link, properties};

/// Hints follow each other no faster, and no slower even if there is nothing to tell.
const HINTS_APART: Duration = Duration::from_millis(10);
const HINTS_AT_LEAST: Duration = Duration::from_secs(30);

impl Server {
    /// Says that there may be work.
    pub(super) async fn hint(&self, link: &Link, work: &Notify) -> lapin::Error {
        let exchange = self.broker.topology.hints();
        loop {
            // None to tell is told, too: that hints arrive.
            let _ = timeout(HINTS_AT_LEAST, work.notified()).await;
            let options = BasicPublishOptions::default();
            let exchange = exchange.as_str().into();
            let sent =
                link.unconfirmed.basic_publish(exchange, "".into(), options, b"", properties());
            if let Err(error) = sent.await {
                return error;
            }
            sleep(HINTS_APART).await;
        }
    }
}
