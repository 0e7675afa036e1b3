//! The start and stop of a daemon: what it notes of itself, and what in the queue depends on its rules.

use shiftboss_protocol::model::Attempt;

use super::{Batch, Engine, STEP_KEYS};
use crate::documents::{DAEMON, Daemon, PLACES, Policy, REJECTED};
use crate::operation::SetPaused;
use crate::record::Millis;
use crate::records::{From, Records, StoreResult, Stored};

impl<S: Records> Engine<S> {
    /// A daemon starts, before any other request. Keys' places are derived anew if the last daemon had other rules.
    /// Notes of rejected files are deleted, because the daemon makes its own; and a pause under `--classic` ends,
    /// because nothing could end it there.
    pub async fn start(&mut self, now: Millis, daemon: &Daemon) -> StoreResult<()> {
        // Carries out all edits by other programs.
        while {
            self.apply(now, Vec::new()).await?;
            self.take_edited()
        } {}
        if self.alone(now, async |it| it.begin(daemon.policy).await).await? {
            while self.alone(now, async |it| it.derive_places().await).await? {}
        }
        if daemon.policy == Policy::Classic && self.header.paused {
            self.apply(now, vec![SetPaused(false).into()]).await?;
        }
        self.alone(now, async |it| it.note_start(daemon).await).await
    }

    /// The daemon was stopped cleanly: the next one need not look for damage.
    pub async fn stop(&mut self) -> StoreResult<()> {
        // It does not depend on the time.
        self.alone(0, async |it| {
            let noted = it.document(&DAEMON, DAEMON.name()).await?.unwrap_or_default();
            it.note(&DAEMON, DAEMON.of(""), &Daemon { running: None, ..noted }).await
        })
        .await
    }
}

impl<S: Records> Batch<'_, S> {
    /// Whether places must be derived anew: the present ones are by other rules.
    ///
    /// The queue may have been restored from a backup, or begun anew, while attempts with numbers above its last one
    /// are still out. None of these numbers is given again, because from each start on they are above the clock's
    /// microseconds.
    async fn begin(&mut self, policy: Policy) -> StoreResult<bool> {
        // For daemons that share a queue, the store does this.
        if self.own.is_none() {
            let micros = self.context.now.saturating_mul(1_000);
            self.context.last_attempt = self.context.last_attempt.max(Attempt(micros));
        }
        if self.document(&PLACES, PLACES.name()).await? == Some(policy) {
            return Ok(false);
        }
        self.store.note(PLACES.of(""), None).await?;
        Ok(true)
    }

    async fn note_start(&mut self, daemon: &Daemon) -> StoreResult<()> {
        for (name, _) in self.store.documents(REJECTED.name()).await? {
            self.store.note(name, None).await?;
        }
        self.note(&PLACES, PLACES.of(""), &daemon.policy).await?;
        self.note(&DAEMON, DAEMON.of(""), daemon).await
    }

    /// Derives the places of some more keys; returns whether there are more.
    async fn derive_places(&mut self) -> StoreResult<bool> {
        let behind = self.memo.derived.take();
        let next = self.store.next(From::All, behind.as_ref(), STEP_KEYS).await?;
        let last = next.last().cloned();
        self.derive(next);
        let is_more = last.is_some();
        self.memo.derived = last;
        Ok(is_more)
    }

    /// Those whose places are other ones by now are saved there.
    pub(super) fn derive(&mut self, keys: Vec<Stored>) {
        for stored in keys {
            if stored.record.place(&self.context) != stored.place {
                let slot = self.desk.put(stored);
                self.changed(slot);
            }
        }
    }
}
