//! The queue of tasks on a spool of its own, without a store.

use super::*;
use shiftspool::{Durability, Item, Options, time_ordered};

struct Scene {
    _directory: tempfile::TempDir,
    spool: Spool,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options =
            Options { durability: Durability::None, accepting: true, ..Options::default() };
        let spool = Spool::create(&directory.path().join("spool"), options).unwrap();
        Self { _directory: directory, spool }
    }

    fn put(&self, line: &str, data: &str) -> EntryName {
        self.spool.enqueue(&queue(QUEUE), time_ordered, &Item::new(line, data)).unwrap()
    }

    fn open(&self) -> TaskQueue {
        TaskQueue::open(self.spool.clone(), Stop::new().unwrap()).unwrap()
    }

    fn available(&self, name: &str) -> Vec<EntryName> {
        self.spool.list(&queue(name)).unwrap()
    }

    fn checked_out(&self) -> usize {
        self.spool.list_checkouts(&queue(QUEUE)).unwrap().len()
    }
}

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

fn keys(offers: &[SpoolEntry]) -> Vec<&str> {
    offers.iter().map(|offer| offer.task.key.as_str()).collect()
}

/// What is a task, and why other metadata is none.
#[test]
fn metadata_is_one_line_of_a_fetcher_file() {
    let row = line(b"alpha  1 2\r\n").unwrap();
    assert_eq!((row.key.as_str(), row.payload.as_str()), ("alpha", " 1 2"));
    for (metadata, reason) in [
        ("", "empty"),
        ("\n", "empty"),
        ("alpha", "no space after the key"),
        ("alpha 1\nbravo 2\n", "more than one line"),
        ("alpha 1\n\n", "more than one line"),
    ] {
        assert!(line(metadata.as_bytes()).unwrap_err().contains(reason), "{metadata:?}");
    }
}

/// What is accepted leaves the spool, what is refused is available again and was not tried; in between
/// nobody else can have it.
#[test]
fn what_is_accepted_leaves() {
    let scene = Scene::new();
    let (_, second) = (scene.put("alpha 1", ""), scene.put("bravo 2", ""));
    let mut tasks = scene.open();
    tasks.fill(ROUND_MAX, Duration::ZERO).unwrap();
    assert_eq!(scene.checked_out(), 2);
    let offers = tasks.offers();
    assert_eq!(keys(&offers), ["alpha", "bravo"]);
    assert_eq!(tasks.answered(&[Added::Added(1), Added::Full]).unwrap(), 1);
    let removed = tasks.remove().unwrap();
    assert_eq!(removed, [offers[0].id.clone()]);
    assert_eq!(tasks.remove().unwrap(), removed, "until it is forgotten");
    tasks.forgotten();
    assert_eq!(tasks.remove().unwrap(), []);
    assert_eq!(scene.available(QUEUE), std::slice::from_ref(&second));
    assert_eq!(scene.spool.info(&queue(QUEUE), &second).unwrap().attempts, 0);
    assert_eq!(tasks.gone(vec![offers[0].id.clone(), offers[1].id.clone()]), removed);
}

/// Another entry of the same name, inode and metadata is another one: the former is gone, and the latter is
/// not taken for it.
#[test]
fn a_name_and_an_inode_are_used_again() {
    let scene = Scene::new();
    scene.put("alpha 1", "");
    let mut tasks = scene.open();
    tasks.fill(ROUND_MAX, Duration::ZERO).unwrap();
    let id = tasks.offers()[0].id.clone();
    assert_ne!(id.born, 0, "temporary directories are where a birth time is known");
    let former = [
        EntryId { born: id.born - 1, ..id.clone() },
        EntryId { inode: id.inode + 1, ..id.clone() },
        EntryId { checksum: !id.checksum, ..id.clone() },
    ];
    let elsewhere = EntryId { spool: "other".into(), ..former[0].clone() };
    let known = [&former[..], &[id.clone(), elsewhere.clone()]].concat();
    assert_eq!(tasks.gone(known.clone()), former, "while it is checked out");
    tasks.answered(&[Added::Full]).unwrap();
    assert_eq!(tasks.gone(known), former, "while it is available");
    tasks.fill(ROUND_MAX, Duration::ZERO).unwrap();
    assert_eq!(tasks.offers()[0].id, id, "the same after its renames");
}

/// What has data, or is no task, is set apart with the reason; a second one of its name stands in nobody's way.
#[test]
fn what_is_no_task_is_set_apart() {
    let scene = Scene::new();
    let (data, nonsense) = (scene.put("alpha 1", "data"), scene.put("nonsense", ""));
    let blocked = scene.put("nonsense", "");
    scene.put("bravo 1", "");
    let dead = scene.spool.path().join(shiftspool::DEAD_LETTER);
    std::fs::create_dir_all(&dead).unwrap();
    std::fs::write(dead.join(blocked.as_os_str()), "a stranger").unwrap();
    let mut tasks = scene.open();
    tasks.fill(ROUND_MAX, Duration::ZERO).unwrap();
    assert_eq!(keys(&tasks.offers()), ["bravo"]);
    let reason = |name: &EntryName| {
        let info = scene.spool.info(&queue(shiftspool::DEAD_LETTER), name).unwrap();
        info.reason.unwrap()
    };
    assert_eq!(reason(&data), "it has 4 bytes of data, and a task has none");
    assert!(reason(&nonsense).contains("no space after the key"), "{}", reason(&nonsense));
    // Moved on, or removed, it has none any more.
    let moved = scene.spool.checkout(&queue(shiftspool::DEAD_LETTER), &data).unwrap();
    moved.move_to(&queue("other")).unwrap();
    assert_eq!(scene.spool.info(&queue("other"), &data).unwrap().reason, None);
    scene.spool.remove(&queue(shiftspool::DEAD_LETTER), &nonsense).unwrap();
    let reasons = scene.spool.path().join(".shiftboss/reasons");
    assert_eq!(std::fs::read_dir(reasons).unwrap().count(), 0);
}

/// What was offered when its daemon died is nobody's but the next daemon's, and is offered as the same.
#[test]
fn what_was_offered_is_the_next_ones() {
    let scene = Scene::new();
    let name = scene.put("alpha 1", "");
    let mut first = scene.open();
    first.fill(ROUND_MAX, Duration::ZERO).unwrap();
    let offers = first.offers();
    // Its record is gone, as that of a dead process is.
    drop(first);
    let path = scene.spool.path().to_owned();
    drop(scene.spool);
    let other = Spool::load(&path, Options::default()).unwrap();
    let mut reader = other.reader(&queue(QUEUE), Order::Strict).unwrap();
    assert!(reader.dequeue_available().unwrap().is_none());
    let refused = other.resolve(&queue(QUEUE), &name).unwrap_err();
    assert!(refused.to_string().contains("the next `serve --spool`"), "{refused}");
    let options = Options { accepting: true, ..Options::default() };
    let spool = Spool::load(&path, options).unwrap();
    let mut second = TaskQueue::open(spool, Stop::new().unwrap()).unwrap();
    second.inherit(Vec::new()).unwrap();
    assert_eq!(second.offers(), offers);
    assert_eq!(second.answered(&[Added::Known]).unwrap(), 0);
    assert_eq!(second.remove().unwrap(), [offers[0].id.clone()]);
    assert_eq!(other.list_checkouts(&queue(QUEUE)).unwrap(), []);
}

/// What was offered stays checked out whatever becomes of other entries that the daemon had when it died.
#[test]
fn one_that_resists_gives_no_other_back() {
    let scene = Scene::new();
    let (good, bad) = (scene.put("alpha 1", ""), scene.put("nonsense", ""));
    let dead = scene.spool.path().join(shiftspool::DEAD_LETTER);
    std::fs::create_dir_all(&dead).unwrap();
    std::fs::write(dead.join(bad.as_os_str()), "a stranger").unwrap();
    let mut first = scene.open();
    first.fill(ROUND_MAX, Duration::ZERO).unwrap();
    let offers = first.offers();
    assert_eq!((keys(&offers), first.stuck.len()), (vec!["alpha"], 1));
    // It is killed.
    std::mem::forget(first);
    let owners = scene.spool.path().join(".shiftboss/owners");
    for record in std::fs::read_dir(owners).unwrap() {
        std::fs::remove_file(record.unwrap().path()).unwrap();
    }
    std::fs::remove_dir_all(&dead).unwrap();
    std::fs::write(&dead, "no queue").unwrap();
    let options = Options { accepting: true, ..Options::default() };
    let spool = Spool::load(scene.spool.path(), options).unwrap();
    let mut second = TaskQueue::open(spool, Stop::new().unwrap()).unwrap();
    second.inherit(Vec::new()).unwrap();
    assert_eq!(scene.available(QUEUE), [bad]);
    assert_eq!(second.offers(), offers);
    drop(second);
    assert_eq!(scene.spool.list_checkouts(&queue(QUEUE)).unwrap(), [good]);
}

/// A round is bounded, by entries and by bytes.
#[test]
fn a_round_is_bounded() {
    let scene = Scene::new();
    let items = vec![Item::new("alpha 1", ""); ROUND_MAX + 10];
    scene.spool.enqueue_batch(&queue(QUEUE), time_ordered, &items).unwrap();
    let mut tasks = scene.open();
    for count in [ROUND_MAX, 10, 0] {
        tasks.fill(ROUND_MAX, Duration::ZERO).unwrap();
        let offers = tasks.offers();
        assert_eq!(offers.len(), count);
        tasks.answered(&vec![Added::Added(1); count]).unwrap();
        tasks.remove().unwrap();
    }
    let long = format!("alpha {}", "x".repeat(1_000_000));
    (0..6).for_each(|_| _ = scene.put(&long, ""));
    tasks.fill(ROUND_MAX, Duration::ZERO).unwrap();
    assert_eq!(tasks.offers().len(), 5);
}

/// What is taken and not offered yet comes back when the daemon ends; a spool keeps its identity.
#[test]
fn what_was_not_offered_comes_back() {
    let scene = Scene::new();
    let name = scene.put("alpha 1", "");
    let mut tasks = scene.open();
    tasks.fill(ROUND_MAX, Duration::ZERO).unwrap();
    drop(tasks);
    assert_eq!(scene.available(QUEUE), [name]);
    assert_eq!(scene.spool.id().unwrap(), scene.spool.id().unwrap());
}
