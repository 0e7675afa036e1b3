//! Rows of lists on their way to a daemon: put into messages by range, numbered, sent, and sent again until each is answered.
//!
//! The relay's [store for lists](super::lists) has one, and drives it while it waits. Its futures may be dropped at any
//! time: what is not answered is continued later, even under another epoch. It does not move any run's position.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::Pin;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use shiftboss_protocol::backoff::{Backoff, shortened};
use shiftboss_protocol::model::{Row, Run};
use shiftboss_queue::error::{StoreError, StoreResult};
use shiftboss_queue::operation::{RANGES, RelayedRows, RowsAnswer};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::batches::Asker;
use super::rpc_client::RpcClient;
use crate::link::PublishError;
use crate::message::{MessageSize, range_of};

/// Most unanswered messages; further rows wait.
const UNANSWERED_MAX: usize = 200;
/// After this time without an answer messages are sent again, if the connection seems to work; and then after twice as
/// long.
const SILENCE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));
/// If the broker refused some messages, how long to wait for the others, and then twice as long: it may have lost those
/// that are out.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));
/// Delays before messages are sent again that a queue had no room for, or that overtook others.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

type Sent = Pin<Box<dyn Future<Output = (u64, Result<RowsAnswer, PublishError>)> + Send>>;

pub(super) struct RowSender {
    size: MessageSize,
    /// Under which messages are numbered.
    epoch: i64,
    last: [i64; RANGES as usize],
    /// All that are not answered, in the order in which they were made.
    unanswered: BTreeMap<u64, Message>,
    made: u64,
    /// Those of them that are to be sent.
    to_send: BTreeSet<u64>,
    /// Those that must be sent again once all that are out have come back, because their order counts.
    again: BTreeSet<u64>,
    out: FuturesUnordered<Sent>,
    runs: HashMap<Run, Progress>,
    silence: Duration,
    patience: Duration,
    backoff: Backoff,
}

struct Message {
    /// Number 0: it has none under this epoch.
    relayed: RelayedRows,
    sent: Option<Instant>,
    /// When it was sent, all of its range before it were answered.
    is_next: bool,
    is_refused: bool,
}

#[derive(Default)]
struct Progress {
    unanswered: usize,
    rejected: Option<String>,
}

impl RowSender {
    pub(super) fn new(size: MessageSize) -> Self {
        Self {
            size,
            epoch: 0,
            last: [0; RANGES as usize],
            unanswered: BTreeMap::new(),
            made: 0,
            to_send: BTreeSet::new(),
            again: BTreeSet::new(),
            out: FuturesUnordered::new(),
            runs: HashMap::new(),
            silence: SILENCE.0,
            patience: PATIENCE.0,
            backoff: Backoff::new(AGAIN.0, AGAIN.1),
        }
    }

    /// Queues rows of a run, in order, for sending.
    pub(super) fn push(&mut self, run: &Run, rows: &[Row]) {
        let mut filling: [(Vec<Row>, usize); RANGES as usize] = Default::default();
        for row in rows {
            let (range, bytes) = (range_of(&row.key), row.key.as_str().len() + row.payload.len());
            let (full, size) = &mut filling[usize::from(range)];
            if !full.is_empty() && (full.len() >= self.size.rows || *size + bytes > self.size.bytes)
            {
                let full = std::mem::take(full);
                *size = 0;
                self.make(range, run, full);
            }
            let (rows, size) = &mut filling[usize::from(range)];
            rows.push(row.clone());
            *size += bytes;
        }
        for (range, (rows, _)) in (0..RANGES).zip(filling) {
            self.make(range, run, rows);
        }
    }

    fn make(&mut self, range: u8, run: &Run, rows: Vec<Row>) {
        if rows.is_empty() {
            return;
        }
        self.made += 1;
        self.runs.entry(run.clone()).or_default().unanswered += 1;
        let relayed = RelayedRows { epoch: self.epoch, range, number: 0, run: run.clone(), rows };
        let message = Message { relayed, sent: None, is_next: false, is_refused: false };
        self.unanswered.insert(self.made, message);
        self.to_send.insert(self.made);
    }

    /// Goes on until all rows of these runs are answered.
    ///
    /// # Errors
    /// `Busy`, also at the deadline: call it again.
    pub(super) async fn settle(
        &mut self,
        asker: Asker<'_>,
        runs: &[&Run],
        deadline: Instant,
    ) -> StoreResult<()> {
        self.number_for(asker.epoch);
        while runs.iter().any(|run| self.is_unanswered(run)) {
            match timeout_at(deadline, self.step(asker)).await {
                Ok(done) => done?,
                Err(_) => return Err(self.unstored()),
            }
        }
        Ok(())
    }

    fn is_unanswered(&self, run: &Run) -> bool {
        self.runs.get(run).is_some_and(|progress| progress.unanswered > 0)
    }

    /// Forgets a run, all of whose rows are answered; returns why some were rejected.
    pub(super) fn take_rejected(&mut self, run: &Run) -> Option<String> {
        self.runs.remove(run)?.rejected
    }

    /// Sends what may be sent, and takes one answer.
    async fn step(&mut self, asker: Asker<'_>) -> StoreResult<()> {
        self.break_silence();
        if self.again.is_empty() {
            self.send_more(asker.client).await.map_err(|error| asker.client.unpublished(&error))?;
        }
        let is_any_refused = self.is_any_refused();
        let patience = if is_any_refused { self.patience } else { Duration::MAX };
        match timeout(patience, self.out.next()).await {
            Ok(Some((sequence, answer))) => self.take_answer(asker, sequence, answer),
            Ok(None) => {
                sleep(shortened(self.backoff.next_delay())).await;
                if is_any_refused {
                    self.renew_channel(asker.client).await?;
                }
                self.to_send.append(&mut self.again);
                Ok(())
            }
            Err(_) => {
                self.patience = (self.patience * 2).min(PATIENCE.1);
                self.renew_channel(asker.client).await?;
                self.send_all_again();
                Ok(())
            }
        }
    }

    async fn renew_channel(&self, client: &RpcClient) -> StoreResult<()> {
        client.renew_rows().await.map_err(|error| client.unpublished(&error))
    }

    /// Under a new epoch everything unanswered is sent and numbered anew.
    fn number_for(&mut self, epoch: i64) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.last = Default::default();
            for message in self.unanswered.values_mut() {
                (message.relayed.epoch, message.relayed.number) = (epoch, 0);
            }
            self.send_all_again();
        }
    }

    fn send_all_again(&mut self) {
        self.out.clear();
        self.again.clear();
        self.to_send = self.unanswered.keys().copied().collect();
        self.unanswered.values_mut().for_each(|message| message.sent = None);
    }

    fn break_silence(&mut self) {
        let oldest = self.unanswered.values().find_map(|message| message.sent);
        if oldest.is_some_and(|sent| sent.elapsed() >= self.silence) {
            self.silence = (self.silence * 2).min(SILENCE.1);
            self.send_all_again();
        }
    }

    async fn send_more(&mut self, client: &RpcClient) -> Result<(), PublishError> {
        while let Some(sequence) = self.next_to_send() {
            let range = self.unanswered.get(&sequence).map(|message| message.relayed.range);
            let mut before = self.unanswered.range(..sequence);
            let is_next = !before.any(|(_, other)| Some(other.relayed.range) == range);
            let Some(message) = self.unanswered.get_mut(&sequence) else { continue };
            message.is_next = is_next;
            if message.relayed.number == 0 {
                let last = &mut self.last[usize::from(message.relayed.range)];
                *last += 1;
                message.relayed.number = *last;
            }
            // If this future is dropped half-way, the message is sent twice, under one number.
            let answer = client.send_rows(&message.relayed).await?;
            message.sent = Some(Instant::now());
            message.is_refused = false;
            self.to_send.remove(&sequence);
            self.out.push(Box::pin(async move { (sequence, answer.await) }));
        }
        Ok(())
    }

    fn next_to_send(&self) -> Option<u64> {
        self.to_send.first().copied().filter(|_| self.out.len() < UNANSWERED_MAX)
    }

    fn take_answer(
        &mut self,
        asker: Asker<'_>,
        sequence: u64,
        answer: Result<RowsAnswer, PublishError>,
    ) -> StoreResult<()> {
        match answer {
            Ok(RowsAnswer::Stored) => self.finish(sequence, None),
            Ok(RowsAnswer::Rejected(why)) => self.finish(sequence, Some(why)),
            // What came before it had been stored, and no longer is: the queue was restored from a backup.
            Ok(RowsAnswer::Gap) if self.is_next(sequence) => return Err(self.lost(asker, sequence)),
            Ok(RowsAnswer::Lost) => return Err(self.lost(asker, sequence)),
            Ok(RowsAnswer::Gap) => _ = self.again.insert(sequence),
            Err(PublishError::NoRoom) => {
                if let Some(message) = self.unanswered.get_mut(&sequence) {
                    message.is_refused = true;
                }
                self.again.insert(sequence);
            }
            Err(error) => {
                self.to_send.insert(sequence);
                return Err(asker.client.unpublished(&error));
            }
        }
        Ok(())
    }

    fn is_next(&self, sequence: u64) -> bool {
        self.unanswered.get(&sequence).is_some_and(|message| message.is_next)
    }

    fn lost(&mut self, asker: Asker<'_>, sequence: u64) -> StoreError {
        self.to_send.insert(sequence);
        asker.membership.lost(asker.epoch)
    }

    fn finish(&mut self, sequence: u64, rejected: Option<String>) {
        self.backoff.reset();
        (self.silence, self.patience) = (SILENCE.0, PATIENCE.0);
        let Some(message) = self.unanswered.remove(&sequence) else { return };
        let progress = self.runs.entry(message.relayed.run).or_default();
        progress.unanswered = progress.unanswered.saturating_sub(1);
        progress.rejected = rejected.or(progress.rejected.take());
    }

    fn is_any_refused(&self) -> bool {
        self.unanswered.values().any(|message| message.is_refused)
    }

    fn unstored(&self) -> StoreError {
        let messages = self.unanswered.len();
        StoreError::Busy(match self.is_any_refused() {
            true => format!(
                "the rows of {messages} messages are not stored yet, and are sent again: {}",
                PublishError::NoRoom
            ),
            false => format!(
                "no daemon has stored the rows of {messages} messages yet; they are waited for"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use shiftboss_protocol::model::Key;

    use super::*;

    fn sender(rows: usize, bytes: usize) -> RowSender {
        RowSender::new(MessageSize { rows, bytes })
    }

    fn run() -> Run {
        Run { fetcher: "f".into(), started: 1 }
    }

    fn rows(count: usize) -> Vec<Row> {
        let row =
            |key| Row { key: Key::new(&format!("key-{key}")).unwrap(), payload: "12345".into() };
        (0..count).map(row).collect()
    }

    /// Each message is of one range and within its limits; the rows of a range keep their order, and none is left out.
    #[test]
    fn messages_are_of_a_range_and_bounded() {
        let (rows, mut sender) = (rows(1_000), sender(7, 60));
        sender.push(&run(), &rows);
        let mut by_range: BTreeMap<u8, Vec<Row>> = BTreeMap::new();
        for message in sender.unanswered.values() {
            let bytes: usize = message
                .relayed
                .rows
                .iter()
                .map(|row| row.key.as_str().len() + row.payload.len())
                .sum();
            assert!((1..=7).contains(&message.relayed.rows.len()) && bytes <= 60, "{bytes}");
            by_range
                .entry(message.relayed.range)
                .or_default()
                .extend(message.relayed.rows.iter().cloned());
        }
        for (range, sent) in &by_range {
            let own = rows.iter().filter(|row| range_of(&row.key) == *range).cloned();
            assert_eq!(sent, &own.collect::<Vec<_>>());
        }
        assert_eq!(by_range.values().map(Vec::len).sum::<usize>(), rows.len());
    }

    /// A row that exceeds a message's limit gets one of its own.
    #[test]
    fn a_large_row_has_its_own_message() {
        let mut sender = sender(100, 4);
        sender.push(&run(), &rows(3));
        assert_eq!(sender.unanswered.len(), 3);
    }

    /// Under a new epoch everything unanswered is sent anew, with numbers from 1; what was answered is not.
    #[test]
    fn another_epoch_begins_its_numbers_anew() {
        let mut sender = sender(1, 100);
        sender.push(&run(), &rows(3));
        sender.number_for(7);
        for message in sender.unanswered.values_mut() {
            message.relayed.number = 5;
        }
        sender.to_send.clear();
        sender.finish(2, None);
        sender.number_for(7);
        assert!(sender.to_send.is_empty());
        sender.number_for(8);
        assert_eq!(sender.to_send, BTreeSet::from([1, 3]));
        assert!(sender.unanswered.values().all(|message| message.relayed.number == 0));
        sender.finish(1, Some("why".to_owned()));
        assert!(sender.is_unanswered(&run()));
        sender.finish(3, None);
        assert!(!sender.is_unanswered(&run()));
        assert_eq!(sender.take_rejected(&run()), Some("why".to_owned()));
    }
}
