//! The recursive watch over real trees. Faults are in [`faults`].

use std::collections::BTreeSet;
use std::fs;

use std::path::{Path, PathBuf};

use super::*;
use crate::schedule::globs::Globs;
use crate::schedule::paths::Changed;
use crate::schedule::watch::kernel;

mod faults;

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
        Trees { roots: vec![self.root()], files: Vec::new(), globs }
    }

    fn watch(&self, globs: &[&str]) -> TreeWatch {
        TreeWatch::open(&self.trees(globs), kernel()).unwrap()
    }

    /// What a turn finds, below the root.
    fn turn(&self, watch: &mut TreeWatch) -> Vec<String> {
        let changed = watch.turn().unwrap();
        let below = |path: &Path| path.strip_prefix(self.root()).unwrap().display().to_string();
        changed.paths().map(below).collect()
    }
}

/// Every existing directory has a watch, and nothing else has.
fn assert_watches_all(place: &Place, watch: &TreeWatch) {
    let mut real = BTreeSet::new();
    let mut left = vec![place.root()];
    while let Some(path) = left.pop() {
        let entries = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
        left.extend(entries.filter(|path| path.is_dir() && !path.is_symlink()));
        real.insert(path);
    }
    let watched = watch.watched();
    assert_eq!(watched.iter().map(|(path, _)| path.clone()).collect::<BTreeSet<_>>(), real);
    for (path, number) in watched {
        let again = watch.inotify.watches().add(&path, WatchMask::MODIFY | WatchMask::MASK_ADD);
        assert_eq!(again.unwrap(), number, "{}", path.display());
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
                // Most are possible; impossible ones are skipped.
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
            changed.merge(watch.turn().unwrap());
        }
    }
    changed.merge(watch.turn().unwrap());
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
