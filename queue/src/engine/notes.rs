//! What a daemon notes beside the queue, in the batch's transaction: its input directory, files that it rejected, the
//! fetchers that it runs. Notes of [members](super::members) about themselves are separate.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Batch;
use crate::documents::{self, FETCHER, INPUT, Input, Kind, Lost, REJECTED};
use crate::operation::{
    ForgetFetcher, ForgetRejected, InputDirectory, NoteFetcher, NoteInput, RejectFile,
};
use crate::records::{Records, StoreResult};
use shiftboss_protocol::answers::FetcherRecord;

impl<S: Records> Batch<'_, S> {
    /// A document by its name; `None`, too, if it cannot be parsed, because it was edited by hand.
    pub(super) async fn document<T: DeserializeOwned>(
        &mut self,
        kind: &Kind<T>,
        name: &str,
    ) -> StoreResult<Option<T>> {
        let text = self.store.document(name).await?;
        Ok(text.and_then(|text| kind.read(name, &text)).map(|(_, document)| document))
    }

    /// A member's own fetchers, by their documents' names.
    async fn fetchers_of(
        &mut self,
        member: Option<&str>,
    ) -> StoreResult<Vec<(String, FetcherRecord)>> {
        let name = |of: &str| FETCHER.of(&documents::own(member, of));
        let found = self.store.documents(&name("")).await?.into_iter();
        let read = |(at, text): (String, String)| Some((FETCHER.read(&at, &text)?.1, at));
        // Another daemon's name may have the same prefix.
        let own = found.filter_map(read).filter(|(it, at)| *at == name(&it.name));
        Ok(own.map(|(it, at)| (at, it)).collect())
    }

    /// The requester, of several daemons and their relays.
    fn member(&self) -> Option<Arc<str>> {
        self.asker.clone().filter(|_| self.own.is_some())
    }

    fn fetcher_name(&self, name: &str) -> String {
        FETCHER.of(&documents::own(self.member().as_deref(), name))
    }

    /// Deletes a member's notes outside its own document.
    pub(super) async fn forget_notes(&mut self, member: &str) -> StoreResult<()> {
        if self.own.is_none() {
            return Ok(());
        }
        for (name, _) in self.fetchers_of(Some(member)).await? {
            self.store.note(name, None).await?;
        }
        Ok(())
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
        if let Some(member) = self.asking_member() {
            let file = renewed(member.rejected.get(&name));
            member.rejected.insert(name, file);
            return Ok(());
        }
        let name = REJECTED.of(&name);
        let known = self.document(&REJECTED, &name).await?;
        self.note(&REJECTED, name, &renewed(known.as_ref())).await
    }

    pub(super) async fn forget_rejected(&mut self, it: ForgetRejected) -> StoreResult<()> {
        if let Some(member) = self.asking_member() {
            member.rejected.remove(&it.0);
            return Ok(());
        }
        self.store.note(REJECTED.of(&it.0), None).await
    }

    pub(super) async fn note_input(&mut self, it: NoteInput) -> StoreResult<()> {
        let now = self.context.seconds();
        let change = |known: &mut Input| match it.0 {
            InputDirectory::There(identity) => {
                *known = Input { identity: Some(identity), lost: None };
            }
            InputDirectory::Lost(reason) => {
                let since = known.lost.as_ref().map_or(now, |lost| lost.since);
                known.lost = Some(Lost { since, reason });
            }
        };
        if let Some(member) = self.asking_member() {
            change(&mut member.input);
            return Ok(());
        }
        let mut known = self.document(&INPUT, INPUT.name()).await?.unwrap_or_default();
        change(&mut known);
        self.note(&INPUT, INPUT.name().to_owned(), &known).await
    }

    pub(super) async fn note_fetcher(&mut self, it: NoteFetcher) -> StoreResult<()> {
        self.note(&FETCHER, self.fetcher_name(&it.0.name), &it.0).await
    }

    pub(super) async fn forget_fetcher(&mut self, it: ForgetFetcher) -> StoreResult<()> {
        self.store.note(self.fetcher_name(&it.0), None).await
    }

    pub(super) async fn fetcher_records(&mut self) -> StoreResult<Vec<FetcherRecord>> {
        let own = self.fetchers_of(self.member().as_deref()).await?;
        Ok(own.into_iter().map(|(_, it)| it).collect())
    }
}
