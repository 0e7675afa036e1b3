//! What is waited for, and in which order: the calls that make an operation last, at each durability.

use super::support::*;
use crate::*;

/// The syncs, renames and removals of an operation on a spool with an entry `a` in `in`.
fn calls(durability: Durability, operation: impl FnOnce(&Spool) -> Result<()>) -> Vec<String> {
    let site = Site::new();
    drop(with_entry(&site));
    let (layer, spool) = site.faulty(Fault::Die, u64::MAX, durability);
    spool.ensure_queue(&input()).unwrap();
    spool.ensure_queue(&queue("out")).unwrap();
    layer.log.lock().unwrap().clear();
    operation(&spool).unwrap();
    let ours = |line: &String| line.contains(".shiftboss/") && !line.contains("/moving/");
    layer.log.lock().unwrap().drain(..).filter(|line| !ours(line)).collect()
}

fn enqueue(spool: &Spool) -> Result<()> {
    put(spool, "b").map(drop)
}

/// Contents before publication; with `full` the names that belong to it too, and the publication
/// before it is acknowledged.
#[test]
fn publication() {
    let publishes = "rename .tmp/b in/b";
    assert_eq!(calls(Durability::None, enqueue), [publishes]);
    let contents = ["sync .tmp/b", "sync .data/b"];
    assert_eq!(calls(Durability::File, enqueue), [&contents[..], &[publishes]].concat());
    let names = ["sync .data", "sync .registry", publishes, "sync in"];
    assert_eq!(calls(Durability::Full, enqueue), [&contents[..], &names].concat());
}

/// Data that was written before its name waits for the same.
#[test]
fn publication_of_a_draft() {
    let publish = |spool: &Spool| {
        let draft = spool.draft(&mut &b"d"[..])?;
        spool.enqueue_draft(&input(), spool.reserve(named("b"))?, b"m", draft).map(drop)
    };
    for durability in [Durability::None, Durability::File, Durability::Full] {
        assert_eq!(calls(durability, publish), calls(durability, enqueue));
    }
}

/// One sync for all contents and names of a batch, one for the publications.
#[test]
fn a_batch() {
    let batch = |spool: &Spool| {
        let mut names = ["b", "c"].map(name).into_iter();
        let items = vec![Item::new("m", "d"); 2];
        spool.enqueue_batch(&input(), |_| names.next().unwrap(), &items).map(drop)
    };
    let renames = ["rename .tmp/b in/b", "rename .tmp/c in/c"];
    assert_eq!(calls(Durability::None, batch), renames);
    assert_eq!(calls(Durability::File, batch), [&["sync all"], &renames[..]].concat());
    let full = [&["sync all"], &renames[..], &["sync in"]].concat();
    assert_eq!(calls(Durability::Full, batch), full);
}

/// A checkout, and the first step of its end.
const OUT: [&str; 2] =
    ["rename in/a .shiftboss/moving/a", "rename .shiftboss/moving/a in/.checkout/a"];
const BACK: &str = "rename in/.checkout/a .shiftboss/moving/a";

/// A move lasts in both directories; nothing is waited for where nothing must last.
#[test]
fn moves_and_claims() {
    let moves = |spool: &Spool| take(spool)?.move_to(&queue("out"));
    let renames = [&OUT[..], &[BACK, "rename .shiftboss/moving/a out/a"]].concat();
    assert_eq!(calls(Durability::File, moves), renames);
    let full = [&renames[..], &["sync out", "sync in/.checkout"]].concat();
    assert_eq!(calls(Durability::Full, moves), full);
    let gives_back = |spool: &Spool| take(spool)?.release();
    let renames = [&OUT[..], &[BACK, "rename .shiftboss/moving/a in/a"]].concat();
    assert_eq!(calls(Durability::Full, gives_back), renames);
}

/// A removal: the entry, its data, its name.
#[test]
fn removal() {
    let completes = |spool: &Spool| take(spool)?.complete();
    let removes = ["remove in/.checkout/a", "remove .data/a", "remove .registry/a"];
    let removes = [&OUT[..], &removes[..]].concat();
    assert_eq!(calls(Durability::File, completes), removes);
    let full = [&removes[..], &["sync in/.checkout"]].concat();
    assert_eq!(calls(Durability::Full, completes), full);
    let direct = |spool: &Spool| spool.remove(&input(), &a()).map(drop);
    let removes = ["remove in/a", "remove .data/a", "remove .registry/a", "sync in"];
    assert_eq!(calls(Durability::Full, direct), removes);
}
