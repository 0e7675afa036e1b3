//! Every operation that changes a spool, as a case for those who break it off: what it does to a spool
//! with two entries, and what is there afterwards.

use std::collections::BTreeMap;
use std::path::Path;

use super::support::*;
use crate::*;

/// Where each entry is, with its metadata and data.
pub type State = BTreeMap<(String, String), (String, String)>;
pub type Operation = fn(&Spool) -> Result<()>;

pub fn state(entries: &[(&str, &str, &str, &str)]) -> State {
    let owned = |text: &str| text.to_owned();
    let entry = |(queue, name, metadata, data): &(&str, &str, &str, &str)| {
        ((owned(queue), owned(name)), (owned(metadata), owned(data)))
    };
    entries.iter().map(entry).collect()
}

/// A spool with two entries in `in`.
pub fn set_up(path: &Path) {
    let spool = Spool::create(path, options(Durability::None)).unwrap();
    ["a", "b"].iter().for_each(|entry| _ = put(&spool, entry).unwrap());
}

/// Queue, name, metadata, data.
pub type Entry = (&'static str, &'static str, &'static str, &'static str);
/// What it is called, what it does, what is in the spool afterwards.
pub type Case = (&'static str, Operation, State);

pub const A: Entry = ("in", "a", "meta a", "data a");
pub const B: Entry = ("in", "b", "meta b", "data b");
pub const C: Entry = ("in", "c", "meta c", "data c");
pub const D: Entry = ("in", "d", "meta d", "data d");

/// The operations, and what is in the spool after each.
pub fn operations() -> Vec<Case> {
    [publications(), claims(), others()].concat()
}

fn publications() -> Vec<Case> {
    vec![
        ("reserve", |s| s.reserve(named("c")).map(drop), state(&[A, B])),
        ("enqueue", |s| put(s, "c").map(drop), state(&[A, B, C])),
        (
            "enqueue a draft",
            |s| {
                let draft = s.draft(&mut &b"data c"[..])?;
                s.enqueue_draft(&input(), s.reserve(named("c"))?, b"meta c", draft).map(drop)
            },
            state(&[A, B, C]),
        ),
        (
            "enqueue elsewhere",
            |s| s.enqueue(&queue("new"), named("c"), &Item::new("meta c", "data c")).map(drop),
            state(&[A, B, ("new", "c", "meta c", "data c")]),
        ),
        (
            "batch",
            |s| {
                let items = [Item::new("meta c", "data c"), Item::new("meta d", "data d")];
                let mut names = ["c", "d"].map(name).into_iter();
                s.enqueue_batch(&input(), move |_| names.next().unwrap(), &items).map(drop)
            },
            state(&[A, B, C, D]),
        ),
    ]
}

/// The ends of a claim on `a`: what each is called, and a claim that ends so.
pub fn ends() -> [(&'static str, Operation); 5] {
    [
        ("release", |s| take(s)?.release()),
        ("fail", |s| take(s)?.fail()),
        ("drop", |s| take(s).map(drop)),
        ("complete", |s| take(s)?.complete()),
        ("move", |s| {
            let mut guard = take(s)?;
            guard.set_metadata("other");
            guard.move_to(&queue("out"))
        }),
    ]
}

fn claims() -> Vec<Case> {
    let back = state(&[A, B]);
    let moved = state(&[("out", "a", "other", "data a"), B]);
    let states = [back.clone(), back.clone(), back.clone(), state(&[B]), moved];
    let ends = ends().into_iter().zip(states).map(|((what, end), state)| (what, end, state));
    let more: [Case; 3] = [
        (
            "fail and complete",
            |s| {
                take(s)?.fail()?;
                take(s)?.complete()
            },
            state(&[B]),
        ),
        (
            "dead letter",
            |s| (0..3).try_for_each(|_| take(s)?.fail()),
            state(&[("dead-letter", "a", "meta a", "data a"), B]),
        ),
        (
            "retry",
            |s| {
                take(s)?.retry_after(std::time::Duration::ZERO)?;
                s.reclaim().map(drop)
            },
            back,
        ),
    ];
    ends.chain(more).collect()
}

fn others() -> Vec<Case> {
    vec![
        ("remove", |s| s.remove(&input(), &a()).map(drop), state(&[B])),
        (
            "work through",
            |s| {
                let mut reader = s.reader(&input(), Order::Strict)?;
                while let Some(guard) = reader.dequeue_available()? {
                    guard.complete()?;
                }
                Ok(())
            },
            state(&[]),
        ),
        ("create", |s| layout::create(s.layer(), s.path(), true), state(&[A, B])),
        ("fsck", |s| s.fsck(REPAIR).map(drop), state(&[A, B])),
    ]
}
