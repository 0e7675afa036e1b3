//! What a daemon notes beside the queue, in the batch's transaction: its input directory, files that it rejected, the fetchers that it
//! runs. What a [member](super::members) notes of itself is apart from it.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Batch, Carried};
use crate::answers::FetcherRecord;
use crate::documents::{self, FETCHER, INPUT, Input, Kind, Lost, REJECTED};
use crate::operation::{
    ForgetFetcher, ForgetRejected, InputDirectory, NoteFetcher, NoteInput, RejectFile,
};
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

    /// A member's own, by their documents' names; `name`: what each is called among those.
    async fn own_documents<T: DeserializeOwned>(
        &mut self,
        kind: &Kind<T>,
        member: Option<&str>,
        name: impl Fn(&T) -> String,
    ) -> StoreResult<Vec<(String, T)>> {
        let found = self.store.documents(&kind.of(&documents::own(member, ""))).await?.into_iter();
        let read = |(at, text): (String, String)| Some((kind.read(&at, &text)?.1, at));
        let is_its = |(it, at): &(T, String)| *at == kind.of(&documents::own(member, &name(it)));
        let own = found.filter_map(read).filter(is_its);
        Ok(own.map(|(it, at)| (at, it)).collect())
    }

    /// Who asks, of several daemons and their relays.
    fn member(&self) -> Option<Arc<str>> {
        self.asker.clone().filter(|_| self.own.is_some())
    }

    fn own_name<T>(&self, kind: &Kind<T>, name: &str) -> String {
        kind.of(&documents::own(self.member().as_deref(), name))
    }

    /// What a member noted that is not in its own document goes.
    pub(super) async fn forget_notes(&mut self, member: &str) -> StoreResult<()> {
        if self.own.is_none() {
            return Ok(());
        }
        let fetchers = self.own_documents(&FETCHER, Some(member), |it| it.name.to_string()).await?;
        for (name, _) in fetchers {
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

    pub(super) async fn reject_file(&mut self, it: RejectFile) -> Carried<()> {
        let RejectFile { name, reason } = it;
        let new = documents::Rejected { reason, since: self.context.seconds() };
        let renewed = |known: Option<&documents::Rejected>| documents::Rejected {
            since: known.map_or(new.since, |known| known.since),
            ..new.clone()
        };
        if let Some(member) = self.asking_member() {
            let file = renewed(member.rejected.get(&name));
            member.rejected.insert(name, file);
            return Ok(Ok(()));
        }
        let name = REJECTED.of(&name);
        let known = self.document(&REJECTED, &name).await?;
        self.note(&REJECTED, name, &renewed(known.as_ref())).await.map(Ok)
    }

    pub(super) async fn forget_rejected(&mut self, it: ForgetRejected) -> Carried<()> {
        if let Some(member) = self.asking_member() {
            member.rejected.remove(&it.0);
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
        if let Some(member) = self.asking_member() {
            change(&mut member.input);
            return Ok(Ok(()));
        }
        let mut known = self.document(&INPUT, INPUT.name()).await?.unwrap_or_default();
        change(&mut known);
        self.note(&INPUT, INPUT.name().to_owned(), &known).await.map(Ok)
    }

    pub(super) async fn note_fetcher(&mut self, it: NoteFetcher) -> Carried<()> {
        let name = self.own_name(&FETCHER, &it.0.name);
        self.note(&FETCHER, name, &it.0).await.map(Ok)
    }

    pub(super) async fn forget_fetcher(&mut self, it: ForgetFetcher) -> Carried<()> {
        self.store.note(self.own_name(&FETCHER, &it.0), None).await.map(Ok)
    }

    pub(super) async fn fetcher_records(&mut self) -> Carried<Vec<FetcherRecord>> {
        let member = self.member();
        let own = self.own_documents(&FETCHER, member.as_deref(), |it| it.name.to_string()).await?;
        Ok(Ok(own.into_iter().map(|(_, it)| it).collect()))
    }
}
