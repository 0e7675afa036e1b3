//! A lease on the broker names the file, or the database of a server, with the queue whose relays are served. The
//! daemon of a copy, which is another file or database, waits until the lease is over.
//!
//! Taken by the daemon's [`server`](super) over each connection, before it takes anything else. It is a queue that is
//! always empty: the broker makes it once, refuses to make it for another file, and deletes it some time after its last
//! consumer is gone. So a daemon that lost its connection, or its node, is not kept out by its own former lease, and
//! the daemons of one database share it.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use futures_util::StreamExt;
use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;
use lapin::{Channel, Consumer};
use shiftboss_queue::error::{StoreError, StoreResult};
use tokio::time::timeout;

use crate::host_name;
use crate::link::{Broker, CALL_MAX, Link, consume};
use crate::refusal::{self, PRECONDITION_FAILED};
use crate::topology::durable;

/// Differs between machines and each time that one of them starts.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// For how long the lease of a file is kept after its daemon is gone.
const FILE_MS: i32 = 10_000;
/// For how long that of a database is: longer than its daemons take to come back after the broker has lost them all.
const DATABASE_MS: i32 = 60_000;

#[derive(Debug)]
pub(super) struct Holder {
    name: String,
    expires_ms: i32,
}

impl Holder {
    /// A file and its machine. The file's lock keeps other daemons away from it.
    ///
    /// # Errors
    /// `Busy` if it does not exist.
    pub(super) fn of_file(file: &Path) -> StoreResult<Self> {
        let why = |error: io::Error| {
            StoreError::Busy(format!("{} is not there: {error}", file.display()))
        };
        Ok(Self { name: place_of(file).map_err(why)?, expires_ms: FILE_MS })
    }

    /// A database, by the place that the store reports.
    pub(super) fn of_database(place: Arc<str>) -> Self {
        Self { name: place.to_string(), expires_ms: DATABASE_MS }
    }
}

/// Held until it [`is_lost`], or is given up.
pub(super) struct Lease {
    channel: Channel,
    consumer: Consumer,
}

/// Takes the lease.
///
/// # Errors
/// `Busy` while another file or database has it; else as [`Broker::answer`].
pub(super) async fn take(broker: &Broker, link: &Link, holder: &Holder) -> StoreResult<Lease> {
    let name = broker.topology.lease();
    let arguments = broker.topology.lease_of(&holder.name, holder.expires_ms);
    let taken = async {
        // A refusal closes the channel.
        let channel = link.channel().await?;
        channel.queue_declare(name.as_str().into(), durable(), arguments).await?;
        let consumer = consume(&channel, &name).await?;
        Ok(Lease { channel, consumer })
    };
    let taken = timeout(CALL_MAX, taken).await.map_err(|_| broker.late())?;
    taken.map_err(|error| match refusal::code(&error) {
        Some(PRECONDITION_FAILED) => StoreError::Busy(format!(
            "the prefix is in exclusive use by a daemon of another file or database, so this queue is a copy of that one, or was moved \
             here: stop that daemon and wait a minute, or give this one another --broker-prefix ({error})"
        )),
        _ => broker.classify(&error),
    })
}

/// Resolves when the lease was deleted, or the connection has ended.
pub(super) async fn is_lost(lease: &mut Option<Lease>) -> lapin::Error {
    let Some(lease) = lease else { return std::future::pending().await };
    while let Some(delivery) = lease.consumer.next().await {
        if let Err(error) = delivery {
            return error;
        }
    }
    super::ended()
}

/// Gives the lease up, so that others need not wait: only if no other daemon has it. A daemon that has just taken it
/// takes it again.
pub(super) async fn give_up(Lease { channel, consumer }: Lease) {
    let given_up = async {
        let passive = QueueDeclareOptions { passive: true, ..durable() };
        channel.basic_cancel(consumer.tag(), Default::default()).await?;
        let queue = channel.queue_declare(consumer.queue(), passive, FieldTable::default()).await?;
        if queue.consumer_count() == 0 {
            channel.queue_delete(consumer.queue(), Default::default()).await?;
        }
        lapin::Result::Ok(())
    };
    let _ = timeout(CALL_MAX, given_up).await;
}

fn place_of(file: &Path) -> io::Result<String> {
    let found = std::fs::metadata(file)?;
    let boot = std::fs::read_to_string(BOOT).unwrap_or_default();
    Ok(format!("{} {} {}:{}", host_name(), boot.trim(), found.dev(), found.ino()))
}
