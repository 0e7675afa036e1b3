//! `serve --spool` on a disk that is full for a while: no entry is lost, none is done twice, and it goes on
//! by itself when there is room again.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::common::disk::{on_a_small_disk, seen};
use crate::common::worker::key_of;
use crate::common::{Daemon, Site, wait_until};
use shiftspool::{Durability, Item, Options, QueueName, Spool, SpoolError, time_ordered};

/// Database and spool on one small disk: room for this much, and for so many files.
const BYTES: &str = "mount -t tmpfs -o size=24m none disk && exec \"$@\"";
const FILES: &str = "mount -t tmpfs -o size=64m,nr_inodes=600 none disk && exec \"$@\"";
const ENTRIES: usize = 60;

/// What is on the disk: the daemon's spool as a producer sees it, and what fills the rest.
struct Disk {
    spool: Spool,
    ballast: PathBuf,
    put: usize,
}

impl Disk {
    fn of(site: &Site, daemon: &Daemon) -> Self {
        let path = seen(site, daemon);
        let options = Options { durability: Durability::None, ..Options::default() };
        wait_until("the spool is there", || path.join("spool/.shiftboss/version").exists());
        let spool = Spool::load(&path.join("spool"), options).unwrap();
        Self { spool, ballast: path.join("ballast"), put: 0 }
    }

    fn put(&mut self, count: usize) {
        for _ in 0..count {
            let item = Item::new(format!("job{0} {0}", self.put), "");
            self.spool.enqueue(&tasks(), time_ordered, &item).unwrap();
            self.put += 1;
        }
    }

    /// Leaves no room for a byte or a file, whichever is over first.
    fn fill(&self) {
        fs::create_dir_all(&self.ballast).unwrap();
        let files =
            (0..1_000).map(|number| fs::File::create(self.ballast.join(number.to_string())));
        let Some(Ok(mut file)) = files.take_while(Result::is_ok).last() else { return };
        for piece in [1 << 16, 1] {
            while file.write_all(&vec![0; piece]).is_ok() {}
        }
    }

    /// An enqueue is refused, and leaves nothing.
    fn is_full(&self) -> bool {
        let item = Item::new("refused 1", "x".repeat(5_000));
        match self.spool.enqueue(&tasks(), time_ordered, &item) {
            Ok(name) => panic!("there is room for {name}"),
            Err(SpoolError::Io { source, .. }) => source.kind() == std::io::ErrorKind::StorageFull,
            Err(error) => panic!("{error}"),
        }
    }
}

fn tasks() -> QueueName {
    QueueName::new("tasks").unwrap()
}

/// A worker, that says each thing until it is answered.
#[derive(Default)]
struct Worker {
    held: Option<String>,
    done: BTreeSet<String>,
}

impl Worker {
    /// One request; whether it was answered.
    fn step(&mut self, site: &Site) -> bool {
        let request = self.held.as_ref().map_or("READY".into(), |key| format!("DONE {key} 0"));
        let answer = site.ask(&request);
        if answer.is_empty() {
            return false;
        }
        self.done.extend(self.held.take());
        self.held = key_of(&answer);
        assert!(self.held.iter().all(|key| !self.done.contains(key)), "{answer} after its DONE");
        true
    }

    fn finish(&mut self, site: &Site, disk: &Disk) {
        wait_until("all are done", || {
            self.step(site);
            self.done.len() == disk.put
        });
        wait_until("the spool is empty", || {
            let (spool, queue) = (&disk.spool, tasks());
            spool.list(&queue).unwrap().is_empty()
                && spool.list_checkouts(&queue).unwrap().is_empty()
        });
        assert_eq!(site.ask("READY"), "NOJOBS\n");
        let left = |name: &str| fs::read_dir(disk.spool.path().join(name)).unwrap().count();
        for directory in [".registry", ".data", ".tmp", ".shiftboss/claims", ".shiftboss/tmp"] {
            assert_eq!(left(directory), 0, "{directory}");
        }
    }
}

/// The disk is full before the entries are taken, and again while they are worked on.
fn is_outlived(script: &str) {
    let site = Site::new();
    let spool = site.path("disk/spool");
    let options = ["--spool", spool.to_str().unwrap()];
    let daemon = on_a_small_disk(&site, script, &options);
    let (mut disk, mut worker) = (Disk::of(&site, &daemon), Worker::default());
    daemon.freeze();
    disk.put(ENTRIES);
    disk.fill();
    assert!(disk.is_full());
    daemon.thaw();
    wait_until("it says that tasks must wait", || is_waiting(&daemon, 1));
    // What can be done is done; each end that is acknowledged frees some room, which is filled again.
    for _ in 0..ENTRIES / 2 {
        worker.step(&site);
        disk.fill();
    }
    remove(&disk.ballast);
    worker.finish(&site, &disk);
    disk.put(1);
    worker.finish(&site, &disk);
    daemon.stop();
}

fn is_waiting(daemon: &Daemon, times: usize) -> bool {
    daemon.warnings(&["Tasks of the spool must wait"]).len() >= times
}

fn remove(ballast: &Path) {
    fs::remove_dir_all(ballast).unwrap();
}

/// No byte is left.
#[test]
fn a_disk_without_room_is_outlived() {
    is_outlived(BYTES);
}

/// No file is left.
#[test]
fn a_disk_without_files_is_outlived() {
    is_outlived(FILES);
}
