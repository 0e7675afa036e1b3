//! Relays: what is theirs, and what they ask.

use std::sync::Arc;

use super::{Batch, Carried};
use crate::error::Rejected;
use crate::operation::{
    AddRelayedRows, JoinRelay, JoinedRelay, LoseRelay, Relay, RelayAnswer, Relayed, RowsAnswer,
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
        installation() -> Arc<str>,
        place() -> Option<Arc<str>>,
        join_relay(JoinRelay) -> JoinedRelay,
        relayed(Relayed) -> RelayAnswer,
        add_relayed_rows(AddRelayedRows) -> Vec<RowsAnswer>,
        lose_relay(LoseRelay) -> Option<u64>,
        relays() -> Vec<Relay>,
    }
}
