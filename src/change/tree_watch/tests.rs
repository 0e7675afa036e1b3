//! The recursive watch over real trees; what cannot be had from a real kernel is injected at the
//! call that adds a watch.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::change::watch::Trees;

struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    fn make(&self, name: &str) {
        fs::create_dir_all(self.path(name)).unwrap();
    }

    fn write(&self, name: &str) {
        fs::write(self.path(name), "x").unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).unwrap();
    }

    fn trees(&self, globs: &[&str]) -> Trees {
        let globs: Vec<String> = globs.iter().map(|&glob| glob.to_owned()).collect();
        let globs = Globs::new(&globs, &["out/".to_owned()], true).unwrap();
        Trees { roots: vec![self.root()], globs }
    }

    fn watch(&self, globs: &[&str]) -> TreeWatch<Kernel> {
        TreeWatch::open(&self.trees(globs), Kernel).unwrap()
    }

    /// What a turn finds, below the root.
    fn turn<A: AddWatch>(&self, watch: &mut TreeWatch<A>) -> Vec<String> {
        let changed = watch.turn().unwrap().changed;
        let below = |path: &Path| path.strip_prefix(self.root()).unwrap().display().to_string();
        changed.paths().map(below).collect()
    }
}

/// Every directory that there is has a watch, and nothing else has.
fn assert_watches_all(place: &Place, watch: &TreeWatch<Kernel>) {
    let mut real = BTreeSet::new();
    let mut left = vec![place.root()];
    while let Some(path) = left.pop() {
        let entries = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
        left.extend(entries.filter(|path| path.is_dir() && !path.is_symlink()));
        real.insert(path);
    }
    let nodes = watch.table.watches().map(|number| watch.table.of_watch(number).unwrap());
    let watched: BTreeSet<_> = nodes.map(|node| watch.table.path(node)).collect();
    assert_eq!(watched, real);
    for number in watch.table.watches() {
        let path = watch.table.path(watch.table.of_watch(number).unwrap());
        assert_eq!(watch.add(&path, WatchFlags::empty()), Ok(number), "{}", path.display());
    }
}

/// Spec 2.2, 2.3: removed and renamed files are normal, new directories are watched with what is in
/// them already.
#[test]
fn files_and_directories_come_and_go() {
    let place = Place::new();
    place.make("a");
    place.write("a/old.org");
    let mut watch = place.watch(&["*.org"]);
    assert_eq!(place.turn(&mut watch), [""; 0], "what was there is no change");
    place.write("a/b.txt");
    place.rename("a/old.org", "a/new.org");
    assert_eq!(place.turn(&mut watch), ["a/new.org", "a/old.org"]);
    fs::remove_file(place.path("a/new.org")).unwrap();
    assert_eq!(place.turn(&mut watch), ["a/new.org"]);
    place.make("a/b/c/d");
    place.write("a/b/c/d/deep.org");
    assert_eq!(place.turn(&mut watch), ["a/b/c/d/deep.org"]);
    place.write("a/b/c/d/deep.org");
    assert_eq!(place.turn(&mut watch), ["a/b/c/d/deep.org"]);
    assert_watches_all(&place, &watch);
    fs::remove_dir_all(place.path("a")).unwrap();
    assert_eq!(place.turn(&mut watch), ["a/b/c/d/deep.org"]);
    assert_watches_all(&place, &watch);
}

/// A directory that is moved within, out, in, and over others keeps its watches where it is.
#[test]
fn directories_move() {
    let place = Place::new();
    let outside = place.directory.path().join("outside");
    ["a/x/y", "b", "out"].iter().for_each(|name| place.make(name));
    let mut watch = place.watch(&[]);
    assert_eq!(watch.directories(), 5, "out is left out");
    place.rename("a/x", "b/z");
    place.write("b/z/y/f");
    assert_eq!(place.turn(&mut watch), ["a/x", "b/z", "b/z/y/f"]);
    place.rename("b/z", "out/z");
    place.write("out/z/y/g");
    assert_eq!(place.turn(&mut watch), ["b/z"]);
    assert_eq!(watch.directories(), 3);
    place.rename("out/z", "b/z");
    assert_eq!(place.turn(&mut watch), ["b/z", "b/z/y", "b/z/y/f", "b/z/y/g"]);
    fs::remove_dir(place.path("out")).unwrap();
    fs::rename(place.path("b"), &outside).unwrap();
    fs::write(outside.join("h"), "").unwrap();
    assert_eq!(place.turn(&mut watch), ["b"]);
    assert_eq!(watch.directories(), 2);
    // Another one takes its name before the move is heard of.
    place.make("c/inner");
    place.turn(&mut watch);
    fs::rename(place.path("c"), place.directory.path().join("gone")).unwrap();
    fs::rename(&outside, place.path("c")).unwrap();
    place.turn(&mut watch);
    assert_watches_all(&place, &watch);
    // Two change places.
    place.rename("c", "t");
    place.rename("a", "c");
    place.rename("t", "a");
    place.rename("c", "a/c");
    place.turn(&mut watch);
    assert_watches_all(&place, &watch);
}

/// Whatever happens to directories, in any order and between any two turns, the table is right after.
#[test]
fn random_moves_are_followed() {
    use proptest::test_runner::{Config, TestRunner};
    let step = (0..5_u8, 0..6_usize, 0..6_usize);
    let steps = proptest::collection::vec(step, 1..40);
    let names = ["a", "b", "a/a", "a/b", "b/a", "b/a/a"];
    let config = Config { cases: 100, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&steps, |steps| {
            let place = Place::new();
            place.make("");
            let mut watch = place.watch(&[]);
            for (what, one, two) in steps {
                let (from, to) = (place.path(names[one]), place.path(names[two]));
                // Most are possible; what is not is no step.
                let _ = match what {
                    0 | 1 => fs::create_dir_all(&from),
                    2 => fs::rename(&from, &to),
                    3 => fs::remove_dir_all(&from),
                    _ => {
                        place.turn(&mut watch);
                        Ok(())
                    }
                };
            }
            place.turn(&mut watch);
            assert_watches_all(&place, &watch);
            Ok(())
        })
        .unwrap();
}

/// Spec 2.5: where events were lost all is looked at again, and it counts as a change.
#[test]
fn an_overflow_is_a_change() {
    let place = Place::new();
    place.make("a/b");
    let mut watch = place.watch(&[]);
    let events = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    for number in 0..events.trim().parse::<usize>().unwrap() / 2 + 100 {
        place.write(&format!("a/{number}"));
        fs::remove_file(place.path(&format!("a/{number}"))).unwrap();
    }
    place.make("a/c/d");
    fs::remove_dir(place.path("a/b")).unwrap();
    let mut turn = watch.turn().unwrap();
    while turn.is_pressed {
        turn.changed.merge(watch.turn().unwrap().changed);
        turn.is_pressed = false;
    }
    assert!(!turn.changed.is_whole());
    assert_watches_all(&place, &watch);
    place.write("a/c/d/f");
    assert_eq!(place.turn(&mut watch), ["a/c/d/f"]);
}

/// The kernel as it would be with so many watches.
struct Few(AtomicUsize);

impl AddWatch for Few {
    fn add(&self, inotify: &OwnedFd, path: &Path, flags: WatchFlags) -> Result<i32, Errno> {
        let left =
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if left.is_err() { Err(Errno::NOSPC) } else { Kernel.add(inotify, path, flags) }
    }
}

/// Spec 2.10: watches run out, at the start at each directory, or later; the trees are polled then.
#[test]
fn watches_run_out() {
    let place = Place::new();
    place.make("a/b");
    for count in 0..3 {
        let refused = TreeWatch::open(&place.trees(&[]), Few(count.into())).err().unwrap();
        assert!(refused.can_poll() && refused.to_string().contains("fs.inotify.max_user_watches"));
        let mut polling = crate::change::open(&place.trees(&[]), Few(count.into())).unwrap();
        assert!(matches!(polling.wake(), Wake::After(_)));
        place.write("a/b/f");
        assert_eq!(polling.turn().unwrap().changed.paths().next(), Some(&*place.path("a/b/f")));
        fs::remove_file(place.path("a/b/f")).unwrap();
    }
    let mut watch = TreeWatch::open(&place.trees(&[]), Few(3.into())).unwrap();
    place.make("c");
    assert!(matches!(watch.turn(), Err(WatchError::NoWatches { watched: 3 })));
}

/// The kernel, where `twin` is another mount of `one`, and `one/within` of `one` itself.
struct Mounted;

impl AddWatch for Mounted {
    fn add(&self, inotify: &OwnedFd, path: &Path, flags: WatchFlags) -> Result<i32, Errno> {
        let text = path.to_str().unwrap();
        let real = text.replace("/one/within", "/one").replace("/twin", "/one");
        Kernel.add(inotify, Path::new(&real), flags)
    }
}

/// A directory that is mounted at two places, or within itself, costs no endless looking.
#[test]
fn a_directory_with_two_places() {
    let place = Place::new();
    ["one/a", "one/within", "twin/a"].iter().for_each(|name| place.make(name));
    let mut watch = TreeWatch::open(&place.trees(&[]), Mounted).unwrap();
    for file in ["one/f", "one/a/f"] {
        place.write(file);
        let turn = watch.turn().unwrap();
        assert!(!turn.is_pressed && turn.changed.is_whole());
        assert_eq!(turn.changed.paths().len(), 1, "{:?}", turn.changed);
    }
    place.make("one/a/new");
    place.rename("one/a/new", "one/a/newer");
    watch.turn().unwrap();
    let turn = watch.turn().unwrap();
    assert!(!turn.is_pressed && turn.changed.is_empty(), "{:?}", turn.changed);
}

/// A root that goes away is told, whichever way it goes; one that is none is refused.
#[test]
fn a_root_goes_away() {
    let place = Place::new();
    assert!(matches!(TreeWatch::open(&place.trees(&[]), Kernel), Err(WatchError::Root { .. })));
    place.make("a");
    let mut watch = place.watch(&[]);
    fs::rename(place.root(), place.directory.path().join("moved")).unwrap();
    assert!(matches!(watch.turn(), Err(WatchError::Lost { .. })));
    place.make("a");
    let mut watch = place.watch(&[]);
    fs::remove_dir_all(place.root()).unwrap();
    assert!(matches!(watch.turn(), Err(WatchError::Lost { .. })));
    fs::write(place.root(), "a file").unwrap();
    assert!(matches!(TreeWatch::open(&place.trees(&[]), Kernel), Err(WatchError::Root { .. })));
}

/// A `.gitignore` that changes counts from then on.
#[test]
fn a_gitignore_changes() {
    let place = Place::new();
    place.make("a/b");
    let mut watch = place.watch(&[]);
    fs::write(place.path("a/.gitignore"), "*.o\nb/\n").unwrap();
    place.turn(&mut watch);
    assert_eq!(watch.directories(), 2);
    place.write("a/x.o");
    place.write("a/b/f");
    place.write("a/y");
    assert_eq!(place.turn(&mut watch), ["a/y"]);
}

/// A storm of events ends in each path once.
#[test]
fn a_storm_is_each_path_once() {
    let place = Place::new();
    place.make("a");
    let mut watch = place.watch(&[]);
    let make = |number: usize| fs::File::create(place.path(&format!("a/{number}"))).unwrap();
    let files: Vec<fs::File> = (0..100).map(make).collect();
    let mut changed = Changed::default();
    for number in 0..100_000_usize {
        std::io::Write::write_all(&mut &files[number % 100], b"x").unwrap();
        if number % 5_000 == 0 {
            changed.merge(watch.turn().unwrap().changed);
        }
    }
    changed.merge(watch.turn().unwrap().changed);
    assert_eq!((changed.paths().len(), changed.is_whole()), (100, true));
}

/// Ten thousand directories are watched, moved as one, and removed.
#[test]
fn ten_thousand_directories() {
    let place = Place::new();
    for outer in 0..100 {
        (0..100).for_each(|inner| place.make(&format!("a/{outer}/{inner}")));
    }
    let mut watch = place.watch(&["*.org"]);
    assert_eq!(watch.directories(), 10_102);
    place.rename("a", "b");
    place.write("b/99/99/f.org");
    assert_eq!(place.turn(&mut watch), ["a", "b", "b/99/99/f.org"]);
    assert_eq!(watch.directories(), 10_102);
    fs::remove_dir_all(place.path("b/50")).unwrap();
    place.turn(&mut watch);
    assert_watches_all(&place, &watch);
}
