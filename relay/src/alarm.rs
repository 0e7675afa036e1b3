//! That a broker is short of memory or disk: it takes nothing of a connection then, and says so (`connection.blocked`).
//!
//! Part of a [`link`](crate::link). What is published meanwhile is kept by the client, without a limit: whoever would publish
//! again and again waits for the [end](Alarm::over) first. The client itself sends nothing either, no heartbeat; the broker,
//! which waits for none of them, ends no connection for that.

use futures_util::StreamExt;
use lapin::{Connection, Event};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{info, warn};

/// See the module's documentation. It ends when this is dropped.
pub(crate) struct Alarm {
    raised: watch::Receiver<bool>,
    listening: JoinHandle<()>,
}

impl Alarm {
    /// Listens to what the broker says of a connection, and tells it the log. `broker`: what that calls it.
    pub(crate) fn listen(connection: &Connection, broker: String) -> Self {
        let (raise, raised) = watch::channel(connection.status().blocked());
        let mut events = Box::pin(connection.events_listener());
        let listening = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Event::ConnectionBlocked(reason) => {
                        warn!(
                            broker,
                            reason, "The broker has an alarm, and takes no messages: they wait."
                        );
                        raise.send_replace(true);
                    }
                    Event::ConnectionUnblocked => {
                        info!(broker, "The broker takes messages again.");
                        raise.send_replace(false);
                    }
                    _ => {}
                }
            }
        });
        Self { raised, listening }
    }

    pub(crate) fn is_raised(&self) -> bool {
        *self.raised.borrow()
    }

    /// Waits until the broker takes messages. A connection that has ended takes none, and says so when it is used.
    pub(crate) async fn over(&self) {
        let _ = self.raised.clone().wait_for(|is_raised| !is_raised).await;
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.listening.abort();
    }
}
