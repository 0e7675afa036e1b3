//! What a daemon notes beside the queue: rejected files, its input directory, managed fetchers, entries of spools.

use super::{Batch, Carried};
use crate::answers::FetcherRecord;
use crate::error::Rejected;
use crate::operation::{
    AcceptEntries, Added, EntryId, ForgetAccepted, ForgetFetcher, ForgetRejected, NoteFetcher,
    NoteInput, RejectFile,
};
use crate::records::Records;

macro_rules! later {
    ($($name:ident($($it:ty)?) -> $answer:ty,)*) => {
        $(pub(super) async fn $name(&mut self $(, _: $it)?) -> Carried<$answer> {
            Ok(Err(Rejected("not yet".into())))
        })*
    };
}

impl<S: Records> Batch<'_, S> {
    later! {
        reject_file(RejectFile) -> (),
        forget_rejected(ForgetRejected) -> (),
        note_input(NoteInput) -> (),
        accept_entries(AcceptEntries) -> Vec<Added>,
        forget_accepted(ForgetAccepted) -> (),
        accepted_entries() -> Vec<EntryId>,
        note_fetcher(NoteFetcher) -> (),
        forget_fetcher(ForgetFetcher) -> (),
        fetcher_records() -> Vec<FetcherRecord>,
    }
}
