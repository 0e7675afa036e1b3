//! Takes rows of lists from the ranges' queues, has storage add them, and answers.
//!
//! Part of the daemon's [`server`](super). Rows that came while storage was at work are added together. A message is
//! acknowledged when its rows are on disk and its answer is published, so a daemon that dies leaves it to the next one,
//! which adds nothing twice. If storage cannot add rows now, this is tried again, and the broker holds the rest back.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, SelectAll, select_all};
use futures_util::{FutureExt, StreamExt};
use lapin::message::Delivery;
use lapin::options::BasicQosOptions;
use shiftboss_protocol::backoff::{Backoff, shortened};
use shiftboss_protocol::model::Run;
use shiftboss_queue::error::StoreError;
use shiftboss_queue::operation::{AddRelayedRows, RANGES, RelayedRows, RowsAnswer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tracing::warn;

use super::{Server, ended};
use crate::link::{Link, consume, version};
use crate::message::{Reply, Unfit, check_rows, decode};
use crate::topology::Topology;

/// Messages of a range that are taken before the first of them is answered; each may be as large as a message.
const PREFETCH: u16 = 4;
/// Most rows that are added at once: rows of one relay's messages lie near each other in the store, and the more of
/// them share a transaction, the fewer pages are written twice. A worker's request waits for one such transaction.
const ROWS_AT_ONCE: usize = 1_000;
/// Most bytes of messages that are read at once: workers wait meanwhile.
const BYTES_AT_ONCE: usize = 1024 * 1024;
/// Additions that are sent to storage at once: one is under way, and the next one waits there.
const AT_ONCE: usize = 2;
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

struct Taken {
    delivery: Delivery,
    /// `None`: nothing to pass to storage.
    rows: Option<RelayedRows>,
    unfit: Option<Unfit>,
}

impl Taken {
    /// The number of unfit rows counts all the same, because the rows after them must be added. They are rejected like
    /// those of an unregistered run.
    fn new(delivery: Delivery) -> Self {
        let read = decode::<RelayedRows>(version(&delivery.properties), &delivery.data);
        let range = Topology::range_of_key(delivery.routing_key.as_str());
        let (rows, unfit) = match read {
            Err(unfit) => (None, Some(unfit)),
            Ok(rows) => match check_rows(&rows, range) {
                Ok(()) => (Some(rows), None),
                Err(unfit) if rows.range == range => {
                    let run = Run { fetcher: "".into(), started: 0 };
                    (Some(RelayedRows { run, rows: Vec::new(), ..rows }), Some(unfit))
                }
                Err(unfit) => (None, Some(unfit)),
            },
        };
        Self { delivery, rows, unfit }
    }

    fn size(&self) -> (usize, usize) {
        let rows = self.rows.as_ref().map_or(0, |relayed| relayed.rows.len());
        (rows, self.delivery.data.len())
    }
}

/// Messages from the ranges' queues. The end of a consumer is an error, because its range would no longer be served.
pub(super) type Messages = SelectAll<BoxStream<'static, lapin::Result<Delivery>>>;

/// Takes messages from the ranges' queues, on a channel of its own.
pub(super) async fn open(server: &Server, link: &Link) -> lapin::Result<Messages> {
    let channel = link.channel().await?;
    channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
    let mut consumers = Vec::new();
    for range in 0..RANGES {
        let consumer = consume(&channel, &server.broker.topology.rows_of(range)).await?;
        consumers.push(consumer.chain(stream::once(async { Err(ended()) })).boxed());
    }
    Ok(select_all(consumers))
}

/// Has rows added, together with all that came meanwhile. Returns when the connection, or a consumer, has ended.
pub(super) async fn take(
    server: &Rc<Server>,
    link: &Rc<Link>,
    mut messages: Messages,
) -> lapin::Error {
    let at_once = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let Ok(permit) = Arc::clone(&at_once).acquire_owned().await else {
            return ended();
        };
        let mut taken = match messages.next().await {
            Some(Ok(first)) => vec![Taken::new(first)],
            Some(Err(error)) => return error,
            None => return ended(),
        };
        let (mut rows, mut bytes) = taken[0].size();
        while rows < ROWS_AT_ONCE && bytes < BYTES_AT_ONCE {
            match messages.next().now_or_never() {
                Some(Some(Ok(next))) => {
                    let next = Taken::new(next);
                    (rows, bytes) = (rows + next.size().0, bytes + next.size().1);
                    taken.push(next);
                }
                Some(Some(Err(error))) => return error,
                Some(None) => return ended(),
                None => break,
            }
        }
        let (server, link) = (Rc::clone(server), Rc::clone(link));
        let tasks = server.tasks.clone();
        actix_rt::spawn(tasks.track_future(async move {
            handle(&server, &link, taken, permit).await;
        }));
    }
}

/// Adds rows and answers each message. A failure leaves them on the broker, and ends the connection.
async fn handle(server: &Server, link: &Link, taken: Vec<Taken>, permit: OwnedSemaphorePermit) {
    let parts: Vec<RelayedRows> = taken.iter().filter_map(|taken| taken.rows.clone()).collect();
    let mut answers = add(server, parts).await.into_iter();
    drop(permit);
    for Taken { delivery, rows, unfit } in taken {
        let answer = rows.and_then(|_| answers.next());
        let handled = match (unfit, answer) {
            // It comes again, in its order.
            (Some(_), Some(RowsAnswer::Gap)) => {
                server.answer(link, &delivery, Reply::Rows(RowsAnswer::Gap)).await
            }
            (Some(unfit), _) => server.refuse(link, &delivery, &unfit).await,
            (None, Some(answer)) => server.answer(link, &delivery, Reply::Rows(answer)).await,
            (None, None) => Ok(()),
        };
        server.settle(link, &delivery, handled).await;
    }
}

async fn add(server: &Server, parts: Vec<RelayedRows>) -> Vec<RowsAnswer> {
    let mut backoff = Backoff::new(RETRY.0, RETRY.1);
    loop {
        match server.ask(AddRelayedRows(parts.clone())).await {
            Ok(answers) => return answers,
            Err(StoreError::Rejected(why)) => {
                return parts.iter().map(|_| RowsAnswer::Rejected(why.clone())).collect();
            }
            Err(error) => {
                let delay = shortened(backoff.next_delay());
                warn!(%error, delay_ms = delay.as_millis(), "Rows of relays cannot be stored yet.");
                sleep(delay).await;
            }
        }
    }
}
