//! Whether another process wrote to the database, for the port's `poll_changed`.
//!
//! SQLite sends no notices, but counts for each connection the commits of others that it has seen.

use std::task::{Context, Poll};
use std::time::Duration;

use rusqlite::Connection;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// How often to look at the count.
const LOOK_EVERY: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(super) struct Changes {
    /// Made with the first look, on the runtime of the task that polls.
    looks: Option<Interval>,
    seen: Option<i64>,
}

impl Changes {
    /// Ready once after each look that found another count.
    pub(super) fn poll(&mut self, connection: &Connection, task: &mut Context<'_>) -> Poll<()> {
        let looks = self.looks.get_or_insert_with(|| {
            let mut looks = interval(LOOK_EVERY);
            looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            looks
        });
        while looks.poll_tick(task).is_ready() {
            // If it cannot be read, the next request fails, too.
            let count = connection.query_row("PRAGMA data_version", [], |row| row.get(0)).ok();
            if std::mem::replace(&mut self.seen, count) != count {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}
