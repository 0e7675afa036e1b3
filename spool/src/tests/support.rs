//! What the spool's tests share: a spool in a temporary directory, its tree as text, a process that is
//! dead, and a layer with faults ([`faulty`](super::faulty)).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub use super::faulty::{Fault, Faulty};
pub(crate) use crate::layer::*;
use crate::name::text;
use crate::*;

pub const DEADLINE: Duration = Duration::from_secs(30);

pub fn name(text: &str) -> EntryName {
    EntryName::new(text).unwrap()
}

pub fn queue(text: &str) -> QueueName {
    QueueName::new(text).unwrap()
}

/// Always this name.
pub fn named(text: &str) -> impl FnMut(u32) -> EntryName + use<> {
    let name = name(text);
    move |_| name.clone()
}

/// The queue that most tests use, and the entry that is in it.
pub fn input() -> QueueName {
    queue("in")
}

pub fn a() -> EntryName {
    name("a")
}

pub fn options(durability: Durability) -> Options {
    Options { durability, ..Options::default() }
}

/// Puts an entry of this name into `in`.
pub fn put(spool: &Spool, name: &str) -> Result<EntryName> {
    let item = Item::new(format!("meta {name}"), format!("data {name}"));
    spool.enqueue(&input(), named(name), &item)
}

/// Checks `a` out of `in`.
pub fn take(spool: &Spool) -> Result<Guard> {
    spool.checkout(&input(), &a())
}

pub const REPAIR: FsckOptions = FsckOptions { repair: true, older_than: None };

pub fn repair(spool: &Spool) -> Fsck {
    spool.fsck(REPAIR).unwrap()
}

/// Runs with a fault at the first call, at the second and so on, until there are fewer: `run` says how many there were.
pub fn at_each_call(mut run: impl FnMut(u64) -> u64) -> u64 {
    (1..).find(|at| run(*at) < *at).unwrap()
}

pub fn problems(spool: &Spool) -> Vec<Problem> {
    spool.monitor(&Limits::default()).unwrap().problems
}

/// A place for a spool that goes with the test.
pub struct Site {
    pub directory: TempDir,
}

impl Site {
    /// In memory where there is such a place: the making of many files is not the question.
    pub fn new() -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Self { directory: directory.unwrap() }
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("spool")
    }

    pub fn create(&self) -> Spool {
        Spool::create(&self.path(), options(Durability::None)).unwrap()
    }

    /// A new one with an empty spool.
    pub fn created() -> (Self, Spool) {
        let site = Self::new();
        let spool = site.create();
        (site, spool)
    }

    /// A new one whose spool has an entry `a` in `in`.
    pub fn with_entry() -> (Self, Spool) {
        let site = Self::new();
        let spool = with_entry(&site);
        (site, spool)
    }

    pub fn load(&self) -> Spool {
        Spool::load(&self.path(), options(Durability::None)).unwrap()
    }

    /// The spool, as another process works on it.
    pub fn as_seen_by(&self, identity: Identity) -> Spool {
        let layer = Arc::new(Disk::open(&self.path()).unwrap());
        Spool::on(layer, &self.path(), options(Durability::None), identity)
    }

    /// The spool through a layer that has a fault at one of its calls.
    pub fn faulty(&self, fault: Fault, at: u64, durability: Durability) -> (Arc<Faulty>, Spool) {
        self.faulty_for(fault, at, options(durability), Identity::this_process())
    }

    /// The same, as another process works on it.
    pub fn faulty_for(
        &self,
        fault: Fault,
        at: u64,
        options: Options,
        who: Identity,
    ) -> (Arc<Faulty>, Spool) {
        let layer = Faulty::new(&self.path(), fault, at);
        let spool = Spool::on(layer.clone(), &self.path(), options, who);
        (layer, spool)
    }

    /// Leaves an entry checked out by somebody, as if that had died: nothing of it runs or cleans up.
    pub fn abandon(&self, entry: &str, identity: Identity) {
        std::mem::forget(self.as_seen_by(identity).checkout(&input(), &name(entry)).unwrap());
    }

    pub fn file(&self, path: &str) -> PathBuf {
        self.path().join(path)
    }

    pub fn write(&self, path: &str, content: &str) {
        let file = self.file(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }

    pub fn tree(&self) -> String {
        tree(&self.path())
    }

    /// The tree without what we add.
    pub fn format(&self) -> String {
        let tree = self.tree();
        let lines = tree.lines().filter(|line| !line.starts_with(".shiftboss"));
        lines.map(|line| format!("{line}\n")).collect()
    }
}

/// A spool with an entry `a` in `in`.
pub fn with_entry(site: &Site) -> Spool {
    let spool = site.create();
    put(&spool, "a").unwrap();
    spool
}

/// One pass over one listing: each entry that can be had.
pub fn pass(spool: &Spool, queue: &QueueName) -> impl Iterator<Item = Guard> + use<> {
    let (spool, queue) = (spool.clone(), queue.clone());
    let names = spool.list(&queue).unwrap();
    names.into_iter().filter_map(move |name| spool.try_checkout(&queue, &name).unwrap())
}

/// Every file of a directory, sorted, with its content; owners' names are all the same length, and
/// shown as OWNER.
pub fn tree(root: &Path) -> String {
    let mut lines = Vec::new();
    walk(root, root, &mut lines);
    lines.sort();
    lines.into_iter().map(|line| line + "\n").collect()
}

fn walk(root: &Path, directory: &Path, lines: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let shown = text(path.strip_prefix(root).unwrap().as_os_str().as_bytes());
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if shown == ".shiftboss/lock" {
            // Made by the first who looks for the dead, whenever that is; it holds nothing.
        } else if shown == ".shiftboss/spare" {
            // The same everywhere.
        } else if kind.is_dir() {
            lines.push(format!("{shown}/"));
            walk(root, &path, lines);
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).unwrap();
            let target = text(target.as_os_str().as_bytes());
            let hidden = target.split_once(' ').filter(|(owner, _)| owner.len() == 16);
            let target = hidden.map_or(target.clone(), |(_, rest)| format!("OWNER {rest}"));
            lines.push(format!("{shown} -> {target}"));
        } else if shown.starts_with(".shiftboss/owners/") {
            lines.push(".shiftboss/owners/OWNER".to_owned());
        } else {
            lines.push(format!("{shown} = {:?}", text(&fs::read(&path).unwrap())));
        }
    }
}

/// All entries: where each is, with its metadata and data.
pub fn entries(spool: &Spool) -> BTreeMap<(String, String), (String, String)> {
    let mut all = BTreeMap::new();
    for queue in spool.queues().unwrap() {
        for name in spool.list(&queue).unwrap() {
            let metadata = spool.metadata(&queue, &name).unwrap();
            let content = (text(&metadata), text(&spool.data(&name).load().unwrap()));
            all.insert((queue.to_string(), name.to_string()), content);
        }
    }
    all
}

/// After a repair: no traces of anything half-done, and all agree.
pub fn assert_whole(spool: &Spool) {
    let listed = |directory: &str| -> Vec<String> {
        let entries = fs::read_dir(spool.path().join(directory)).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| text(entry.unwrap().file_name().as_bytes())).collect();
        names.sort();
        names
    };
    let mut names: Vec<String> = entries(spool).into_keys().map(|(_, name)| name).collect();
    names.sort();
    assert_eq!(listed(".registry"), names, "{}", tree(spool.path()));
    assert_eq!(listed(".data"), names);
    for directory in [".tmp", ".shiftboss/tmp", ".shiftboss/claims", ".shiftboss/quarantine"] {
        assert_eq!(listed(directory), [""; 0], "{directory}: {}", tree(spool.path()));
    }
    for queue in spool.queues().unwrap() {
        assert_eq!(spool.list_checkouts(&queue).unwrap(), []);
    }
    assert_eq!(problems(spool), []);
}

/// A process of this host that has ended.
pub fn dead() -> Identity {
    static PID: OnceLock<u32> = OnceLock::new();
    let pid = *PID.get_or_init(|| {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    });
    Identity { pid, started: 1, ..Identity::this_process() }
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let (start, never) = (Instant::now(), Stop::new().unwrap());
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "waited in vain until {what}");
        let _ = never.wait(Duration::from_millis(3));
    }
}

pub fn set_age(path: &Path, age: Duration) {
    let time = std::time::SystemTime::now() - age;
    let times = fs::FileTimes::new().set_modified(time).set_accessed(time);
    fs::File::options().read(true).open(path).unwrap().set_times(times).unwrap();
}

/// What this thread logs meanwhile.
pub fn logged(act: impl FnOnce()) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    let writer = Mutex::new(file.reopen().unwrap());
    let subscriber = tracing_subscriber::fmt().with_writer(writer).with_ansi(false).finish();
    tracing::subscriber::with_default(subscriber, act);
    fs::read_to_string(file.path()).unwrap()
}
