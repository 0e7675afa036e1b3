//! The tables of a store, as a move copies them from one store to another: a file and a server have the same tables
//! (their `schema.sql`), so that a move need not understand their content.
//!
//! This module also converts documents, because a file has one daemon, and on a server each document belongs to a
//! member.

use std::collections::BTreeMap;
use std::sync::Arc;

use shiftboss_protocol::model::UnixSeconds;

use crate::documents::{
    ARRIVING, DAEMON, Daemon, FETCHER, Gone, IDENTITY, INPUT, Kind, MEMBER, MOVED, Member,
    REJECTED, RELAY, own,
};

/// The tables that are moved, in this order; besides them [documents](crate::documents), which name the owners.
pub const TABLES: [&str; 14] = [
    "header", "names", "runs", "counts", "hours", "minutes", "keys", "rows", "extras", "tasks",
    "attempts", "groups", "stands", "heads",
];

/// A column of a table of a file; a server has it, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub is_key: bool,
}

pub fn listed<'a>(columns: impl IntoIterator<Item = &'a Column>) -> String {
    columns.into_iter().map(|it| &*it.name).collect::<Vec<_>>().join(", ")
}

/// The type of a column. A flag is 0 or 1; a text may be invalid if it was edited by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    Null,
    Integer(i64),
    Text(&'a [u8]),
}

impl<'a> Value<'a> {
    pub fn integer(self) -> Option<i64> {
        if let Self::Integer(number) = self { Some(number) } else { None }
    }

    pub fn text(self) -> Option<&'a [u8]> {
        if let Self::Text(bytes) = self { Some(bytes) } else { None }
    }
}

pub type Documents = BTreeMap<String, String>;

/// Converts the documents of a queue in a file for a server, where this member, which was stopped `now`, owns
/// everything that no relay has. `lists`: the fetchers that have lists.
pub fn for_member(
    mut all: Documents,
    member: &str,
    lists: Vec<Arc<str>>,
    now: UnixSeconds,
) -> Documents {
    let input = one(&all, &INPUT).unwrap_or_default();
    let relays = all.iter().filter(|(name, _)| name.starts_with(RELAY.name()));
    let relays: Vec<Member> =
        relays.filter_map(|(name, text)| Some(RELAY.read(name, text)?.1)).collect();
    let is_own = |it: &Arc<str>| !relays.iter().any(|relay| relay.fetchers.contains(it));
    let fetchers = lists.into_iter().filter(is_own).collect();
    let (gone, gone_since) = (Some(Gone::Stopped), Some(now));
    let noted = Member { joined: now, gone, gone_since, input, fetchers, ..Member::default() };
    all.retain(|name, _| !stays(name) && name != INPUT.name());
    let renamed = all.into_iter().map(|(name, text)| match name.strip_prefix(FETCHER.name()) {
        Some(fetcher) => (FETCHER.of(&own(Some(member), fetcher)), text),
        None => (name, text),
    });
    renamed.chain([(member.to_owned(), MEMBER.text(&noted))]).collect()
}

/// The way back: what all members own is put together. The input directory is known if only one of them has lists.
pub fn for_file(mut all: Documents) -> Documents {
    let members = all.iter().filter(|(name, _)| name.starts_with(MEMBER.name()));
    let members: Vec<(String, Member)> = members
        .filter_map(|(name, text)| Some((name.clone(), MEMBER.read(name, text)?.1)))
        .collect();
    if let Some(daemon) = one(&all, &DAEMON) {
        all.insert(DAEMON.of(""), DAEMON.text(&Daemon { running: None, ..daemon }));
    }
    let mut inputs = members.iter().filter(|(_, it)| !it.fetchers.is_empty()).map(|it| &it.1.input);
    if let (Some(input), None) = (inputs.next(), inputs.next()) {
        all.insert(INPUT.of(""), INPUT.text(input));
    }
    all.retain(|name, _| !stays(name) && !name.starts_with(MEMBER.name()));
    let renamed = all.into_iter().map(|(name, text)| {
        let whose = |(member, _): &(String, Member)| {
            let fetcher = name.strip_prefix(&*FETCHER.of(&own(Some(member), "")))?;
            Some(FETCHER.of(fetcher))
        };
        (members.iter().find_map(whose).unwrap_or(name.clone()), text)
    });
    renamed.collect()
}

/// Documents that are not moved: a queue's notes of its own moves, and of rejected files, which its daemon finds again.
fn stays(name: &str) -> bool {
    [IDENTITY.name(), MOVED.name(), ARRIVING.name()].contains(&name)
        || name.starts_with(REJECTED.name())
}

fn one<T: serde::de::DeserializeOwned>(all: &Documents, kind: &Kind<T>) -> Option<T> {
    Some(kind.read("", all.get(kind.name())?)?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There and back everything is unchanged, except a queue's notes of its moves; meanwhile this member owns it.
    #[test]
    fn documents_are_a_members_and_a_files_again() {
        let all = [
            ("daemon", r#"{"lease_seconds":7,"running":{"pid":1,"started":2}}"#),
            ("fetcher/f", "2"),
            ("identity", "\"3\""),
            ("input", r#"{"identity":{"device":1,"inode":2,"born":null},"lost":null}"#),
            ("installation", "\"4\""),
            ("moved", r#"{"number":"1","place":"there"}"#),
            ("rejected/x", "5"),
            ("relay/r", r#"{"fetchers":["g"]}"#),
        ];
        let all: Documents = all.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        let there = for_member(all.clone(), "member/a/b", vec!["f".into(), "g".into()], 9);
        let names: Vec<&str> = there.keys().map(|name| &**name).collect();
        assert_eq!(
            names,
            ["daemon", "fetcher/member/a/b/f", "installation", "member/a/b", "relay/r"]
        );
        let (_, member) = MEMBER.read("member/a/b", &there["member/a/b"]).unwrap();
        assert_eq!((member.fetchers, member.gone), (vec!["f".into()], Some(Gone::Stopped)));
        let mut back = for_file(there);
        let daemon = one(&back, &DAEMON).unwrap();
        assert_eq!((daemon.lease_seconds, daemon.running), (7, None));
        back.insert("daemon".to_owned(), all["daemon"].clone());
        let mut all = all;
        all.retain(|name, _| !stays(name));
        assert_eq!(back, all);
    }
}
