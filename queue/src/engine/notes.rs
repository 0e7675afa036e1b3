//! What a daemon notes beside the queue, in the batch's transaction: its input directory, files that it rejected, the fetchers that it
//! runs, the entries of spools that it accepted. What a relay notes of itself is apart from it.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use shiftboss_protocol::backoff::random;

use super::{Batch, Carried};
use crate::answers::FetcherRecord;
use crate::documents::{self, ACCEPTED, FETCHER, INPUT, INSTALLATION, Input, Kind, Lost, REJECTED};
use crate::operation::{Added, EntryId, InputDirectory, Outcome, RejectFile, SpoolEntry};
use crate::records::{Records, StoreResult};

impl<S: Records> Batch<'_, S> {
    /// A document by its name; one that somebody edited into nonsense is none.
    pub(super) async fn document<T: DeserializeOwned>(
        &mut self,
        kind: &Kind<T>,
        name: &str,
    ) -> StoreResult<Option<T>> {
        let text = self.store.document(name).await?;
        Ok(text.and_then(|text| kind.read(name, &text)).map(|(_, document)| document))
    }

    pub(super) async fn note<T: Serialize>(
        &mut self,
        kind: &Kind<T>,
        name: String,
        document: &T,
    ) -> StoreResult<()> {
        self.store.note(name, Some(kind.text(document))).await
    }

    pub(super) async fn reject_file(&mut self, it: RejectFile) -> StoreResult<()> {
        let RejectFile { name, reason } = it;
        let new = documents::Rejected { reason, since: self.context.seconds() };
        let renewed = |known: Option<&documents::Rejected>| documents::Rejected {
            since: known.map_or(new.since, |known| known.since),
            ..new.clone()
        };
        if let Some(relay) = self.asking_relay() {
            let file = renewed(relay.rejected.get(&name));
            relay.rejected.insert(name, file);
            return Ok(());
        }
        let name = REJECTED.of(&name);
        let known = self.document(&REJECTED, &name).await?;
        self.note(&REJECTED, name, &renewed(known.as_ref())).await
    }

    pub(super) async fn forget_rejected(&mut self, name: &str) -> StoreResult<()> {
        if let Some(relay) = self.asking_relay() {
            relay.rejected.remove(name);
            return Ok(());
        }
        self.store.note(REJECTED.of(name), None).await
    }

    pub(super) async fn note_input(&mut self, input: InputDirectory) -> StoreResult<()> {
        let now = self.context.seconds();
        let change = |known: &mut Input| match input {
            InputDirectory::There(identity) => {
                *known = Input { identity: Some(identity.to_string()), lost: None };
            }
            InputDirectory::Lost(reason) => {
                let since = known.lost.as_ref().map_or(now, |lost| lost.since);
                known.lost = Some(Lost { since, reason });
            }
        };
        if let Some(relay) = self.asking_relay() {
            change(&mut relay.input);
            return Ok(());
        }
        let mut known = self.document(&INPUT, INPUT.name()).await?.unwrap_or_default();
        change(&mut known);
        self.note(&INPUT, INPUT.name().to_owned(), &known).await
    }

    pub(super) async fn note_fetcher(&mut self, record: &FetcherRecord) -> StoreResult<()> {
        self.note(&FETCHER, FETCHER.of(&record.name), record).await
    }

    pub(super) async fn forget_fetcher(&mut self, name: &str) -> StoreResult<()> {
        self.store.note(FETCHER.of(name), None).await
    }

    pub(super) async fn fetcher_records(&mut self) -> StoreResult<Vec<FetcherRecord>> {
        let found = self.store.documents(FETCHER.name()).await?.into_iter();
        Ok(found.filter_map(|(name, text)| FETCHER.read(&name, &text)).map(|(_, it)| it).collect())
    }

    /// Which queue it is. Made when it is asked for first.
    pub(super) async fn installation(&mut self) -> StoreResult<Arc<str>> {
        let name = INSTALLATION.name();
        if let Some(known) = self.document(&INSTALLATION, name).await? {
            return Ok(known.into());
        }
        let made = format!("{:016x}", random());
        self.note(&INSTALLATION, name.to_owned(), &made).await?;
        Ok(made.into())
    }

    pub(super) async fn accept_entries(&mut self, entries: Vec<SpoolEntry>) -> Carried {
        let mut answers = Vec::with_capacity(entries.len());
        for SpoolEntry { id, task } in entries {
            let name = documents::accepted(&id);
            if self.store.document(&name).await?.is_some() {
                answers.push(Added::Known);
                continue;
            }
            match self.add_task(task).await? {
                Ok(Outcome::AddTask(added)) => {
                    if added != Added::Full {
                        self.note(&ACCEPTED, name, &id).await?;
                    }
                    answers.push(added);
                }
                // The first one that is, for there is no number left.
                rejected => return Ok(rejected),
            }
        }
        Ok(Ok(Outcome::AcceptEntries(answers)))
    }

    pub(super) async fn forget_accepted(&mut self, id: &EntryId) -> StoreResult<()> {
        self.store.note(documents::accepted(id), None).await
    }

    pub(super) async fn accepted_entries(&mut self) -> StoreResult<Vec<EntryId>> {
        let found = self.store.documents(ACCEPTED.name()).await?.into_iter();
        let ids = found.filter_map(|(name, text)| ACCEPTED.read(&name, &text));
        let mut ids: Vec<EntryId> = ids.map(|(_, id)| id).collect();
        ids.sort_unstable();
        Ok(ids)
    }
}
