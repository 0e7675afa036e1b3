//! What a daemon notes beside the queue, in the batch's transaction: its input directory, files that it rejected, the fetchers that it
//! runs, the entries of spools that it accepted. What a relay notes of itself is apart from it.

use super::{Batch, Carried};
use crate::answers::FetcherRecord;
use crate::documents::{self, ACCEPTED, FETCHER, INPUT, Input, Kind, Lost, REJECTED};
use crate::operation::{
    AcceptEntries, Added, EntryId, ForgetAccepted, ForgetFetcher, ForgetRejected, InputDirectory,
    NoteFetcher, NoteInput, RejectFile, SpoolEntry,
};
use crate::records::{Records, StoreResult};
use serde::Serialize;
use serde::de::DeserializeOwned;

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

    async fn documents<T: DeserializeOwned>(&mut self, kind: &Kind<T>) -> StoreResult<Vec<T>> {
        let found = self.store.documents(kind.name()).await?.into_iter();
        Ok(found.filter_map(|(name, text)| kind.read(&name, &text)).map(|(_, it)| it).collect())
    }

    pub(super) async fn note<T: Serialize>(
        &mut self,
        kind: &Kind<T>,
        name: String,
        document: &T,
    ) -> StoreResult<()> {
        self.store.note(name, Some(kind.text(document))).await
    }

    pub(super) async fn reject_file(&mut self, it: RejectFile) -> Carried<()> {
        let RejectFile { name, reason } = it;
        let new = documents::Rejected { reason, since: self.context.seconds() };
        let renewed = |known: Option<&documents::Rejected>| documents::Rejected {
            since: known.map_or(new.since, |known| known.since),
            ..new.clone()
        };
        if let Some(relay) = self.asking_relay() {
            let file = renewed(relay.rejected.get(&name));
            relay.rejected.insert(name, file);
            return Ok(Ok(()));
        }
        let name = REJECTED.of(&name);
        let known = self.document(&REJECTED, &name).await?;
        self.note(&REJECTED, name, &renewed(known.as_ref())).await.map(Ok)
    }

    pub(super) async fn forget_rejected(&mut self, it: ForgetRejected) -> Carried<()> {
        if let Some(relay) = self.asking_relay() {
            relay.rejected.remove(&it.0);
            return Ok(Ok(()));
        }
        self.store.note(REJECTED.of(&it.0), None).await.map(Ok)
    }

    pub(super) async fn note_input(&mut self, it: NoteInput) -> Carried<()> {
        let now = self.context.seconds();
        let change = |known: &mut Input| match it.0 {
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
            return Ok(Ok(()));
        }
        let mut known = self.document(&INPUT, INPUT.name()).await?.unwrap_or_default();
        change(&mut known);
        self.note(&INPUT, INPUT.name().to_owned(), &known).await.map(Ok)
    }

    pub(super) async fn note_fetcher(&mut self, it: NoteFetcher) -> Carried<()> {
        self.note(&FETCHER, FETCHER.of(&it.0.name), &it.0).await.map(Ok)
    }

    pub(super) async fn forget_fetcher(&mut self, it: ForgetFetcher) -> Carried<()> {
        self.store.note(FETCHER.of(&it.0), None).await.map(Ok)
    }

    pub(super) async fn fetcher_records(&mut self) -> Carried<Vec<FetcherRecord>> {
        self.documents(&FETCHER).await.map(Ok)
    }

    pub(super) async fn accept_entries(&mut self, it: AcceptEntries) -> Carried<Vec<Added>> {
        let mut answers = Vec::with_capacity(it.0.len());
        for SpoolEntry { id, task } in it.0 {
            let name = documents::accepted(&id);
            if self.store.document(&name).await?.is_some() {
                answers.push(Added::Known);
                continue;
            }
            let added = match self.add_task(task, None).await? {
                Ok(added) => added,
                // The first one is, if any: there is no number left.
                Err(rejected) => return Ok(Err(rejected)),
            };
            if added != Added::Full {
                self.note(&ACCEPTED, name, &id).await?;
            }
            answers.push(added);
        }
        Ok(Ok(answers))
    }

    pub(super) async fn forget_accepted(&mut self, it: ForgetAccepted) -> Carried<()> {
        self.store.note(documents::accepted(&it.0), None).await.map(Ok)
    }

    pub(super) async fn accepted_entries(&mut self) -> Carried<Vec<EntryId>> {
        let mut ids = self.documents(&ACCEPTED).await?;
        ids.sort_unstable();
        Ok(Ok(ids))
    }
}
