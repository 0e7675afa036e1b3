//! A daemon begins with a queue, and ends: what it notes of itself, and what of the queue depends on its rules.

use shiftboss_protocol::model::Attempt;

use super::{Batch, Engine, STEP_KEYS};
use crate::documents::{DAEMON, Daemon, PLACES, Policy, REJECTED};
use crate::operation::SetPaused;
use crate::record::Millis;
use crate::records::{From, Records, StoreResult};
use crate::rules::dispatch::Scope;

impl<S: Records> Engine<S> {
    /// A daemon begins, before anything else is asked. Where keys stand is derived anew if the last one had other rules. What was
    /// noted of rejected files goes, for it finds out for itself; and a pause under `--classic`, where nobody could end it.
    pub async fn start(&mut self, now: Millis, daemon: &Daemon) -> StoreResult<()> {
        // Carries out what others edited, all of it.
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

    /// The daemon was stopped: the next one need not look for damage.
    pub async fn stop(&mut self) -> StoreResult<()> {
        // Time is nothing to it.
        self.alone(0, async |it| {
            let noted = it.document(&DAEMON, DAEMON.name()).await?.unwrap_or_default();
            it.note(&DAEMON, DAEMON.of(""), &Daemon { running: None, ..noted }).await
        })
        .await
    }
}

impl<S: Records> Batch<'_, S> {
    /// Whether places are to be derived anew: those that there are were by other rules.
    ///
    /// An older state of the queue may have come back, a backup, say, or it was begun anew, and numbers behind its last one may be
    /// out: none of them is handed out again, for from each start on they are above the clock's microseconds.
    async fn begin(&mut self, policy: Policy) -> StoreResult<bool> {
        // Daemons that share a queue have the store see to that.
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

    /// Derives the places of some more keys; whether there are more.
    async fn derive_places(&mut self) -> StoreResult<bool> {
        let behind = self.memo.derived.take();
        let next = self.store.next(From::All, behind.as_ref(), &Scope::All, STEP_KEYS).await?;
        let last = next.last().cloned();
        for stored in next {
            if stored.record.place(&self.context) != stored.place {
                let slot = self.desk.put(stored);
                self.changed(slot);
            }
        }
        let is_more = last.is_some();
        self.memo.derived = last;
        Ok(is_more)
    }
}
