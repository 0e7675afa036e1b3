//! A daemon begins with a queue, and ends: what it notes of itself, and what of the queue depends on its rules.

use shiftboss_protocol::model::Attempt;

use super::{Batch, Engine, STEP_KEYS};
use crate::documents::{DAEMON, Daemon, PLACES, Policy, REJECTED};
use crate::operation::SetPaused;
use crate::record::Millis;
use crate::records::{From, Records, StoreResult};
use crate::rules::dispatch::Scope;

/// Documents that are written, or go, by name.
type Notes = Vec<(String, Option<String>)>;

impl<S: Records> Engine<S> {
    /// A daemon begins, before anything else is asked. Where keys stand is derived anew if the last one had other rules. What was
    /// noted of rejected files goes, for it finds out for itself; and a pause under `--classic`, where nobody could end it.
    ///
    /// # Errors
    /// What was noted before still is.
    pub async fn start(&mut self, now: Millis, daemon: &Daemon) -> StoreResult<()> {
        // Carries out what others edited, all of it.
        while {
            self.apply(now, Vec::new()).await?;
            self.take_edited()
        } {}
        self.alone(now, async |it| it.raise_numbers().await).await?;
        if self.places().await? != Some(daemon.policy) {
            self.write(vec![(PLACES.of(""), None)]).await?;
            while self.alone(now, async |it| it.derive_places().await).await? {}
        }
        let unpaused = daemon.policy == Policy::Classic && self.header.paused;
        if unpaused {
            self.apply(now, vec![SetPaused(false).into()]).await?;
        }
        let rejected = async |store: &mut S| store.documents(REJECTED.name()).await;
        let rejected = self.in_transaction(rejected).await?;
        let mut notes: Notes = rejected.into_iter().map(|(name, _)| (name, None)).collect();
        notes.push((PLACES.of(""), Some(PLACES.text(&daemon.policy))));
        notes.push((DAEMON.of(""), Some(DAEMON.text(daemon))));
        self.write(notes).await
    }

    /// The daemon was stopped: the next one need not look for damage.
    ///
    /// # Errors
    /// It is not noted.
    pub async fn stop(&mut self) -> StoreResult<()> {
        let name = DAEMON.of("");
        self.in_transaction(async |store| {
            let noted = store.document(&name).await?;
            let noted = noted.and_then(|text| Some(DAEMON.read(&name, &text)?.1));
            let daemon = Daemon { running: None, ..noted.unwrap_or_default() };
            store.note(name, Some(DAEMON.text(&daemon))).await
        })
        .await
    }

    /// By whose rules all keys have their places.
    async fn places(&mut self) -> StoreResult<Option<Policy>> {
        let name = PLACES.of("");
        let noted = self.in_transaction(async |store| store.document(&name).await).await?;
        Ok(noted.and_then(|text| Some(PLACES.read(&name, &text)?.1)))
    }

    async fn write(&mut self, notes: Notes) -> StoreResult<()> {
        self.in_transaction(async |store| {
            for (name, text) in notes {
                store.note(name, text).await?;
            }
            Ok(())
        })
        .await
    }

    /// A transaction about documents alone, to which time is nothing.
    async fn in_transaction<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut S) -> StoreResult<T>,
    ) -> StoreResult<T> {
        self.alone(0, async |it| work(it.store).await).await
    }
}

impl<S: Records> Batch<'_, S> {
    /// An older state of the queue may have come back, a backup, say, or it was begun anew, and numbers behind its last one may be
    /// out: none of them is handed out again, for from each start on they are above the clock's microseconds.
    async fn raise_numbers(&mut self) -> StoreResult<()> {
        // Daemons that share a queue have the store see to that.
        if self.own.is_none() {
            let micros = self.context.now.saturating_mul(1_000);
            self.context.last_attempt = self.context.last_attempt.max(Attempt(micros));
        }
        Ok(())
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
