//! Faults of trees and watches; those that a real kernel does not produce on demand are injected at the call that adds
//! a watch.

use std::fs;

use rustix::io::Errno;

use super::{Place, assert_watches_all};
use crate::schedule::tree_watch::*;
use crate::schedule::watch::kernel;

/// Spec 2.5: if events were lost everything is looked at again, and that counts as a change.
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
    if watch.is_pressed {
        turn.merge(watch.turn().unwrap());
    }
    assert!(!turn.is_whole());
    assert_watches_all(&place, &watch);
    place.write("a/c/d/f");
    assert_eq!(place.turn(&mut watch), ["a/c/d/f"]);
}

/// A kernel with only this number of watches.
fn few(mut left: usize) -> AddWatch {
    Box::new(move |watches, path, mask| {
        left = left.checked_sub(1).ok_or(Errno::NOSPC)?;
        watches.add(path, mask)
    })
}

/// Spec 2.10: watches run out, at the start at each directory, or later; the trees are polled then.
#[test]
fn watches_run_out() {
    let place = Place::new();
    place.make("a/b");
    for count in 0..3 {
        let refused = TreeWatch::open(&place.trees(&[]), few(count)).err().unwrap();
        assert!(refused.can_poll() && refused.to_string().contains("fs.inotify.max_user_watches"));
        let mut polling = crate::schedule::open(&place.trees(&[]), few(count)).unwrap();
        assert!(matches!(polling.wake(), Wake::After(_)));
        place.write("a/b/f");
        assert_eq!(polling.turn().unwrap().paths().next(), Some(&*place.path("a/b/f")));
        fs::remove_file(place.path("a/b/f")).unwrap();
    }
    let mut watch = TreeWatch::open(&place.trees(&[]), few(3)).unwrap();
    place.make("c");
    assert!(matches!(watch.turn(), Err(WatchError::NoWatches { watched: 3 })));
}

/// The kernel, where `twin` is another mount of `one`, and `one/within` of `one` itself.
fn mounted() -> AddWatch {
    Box::new(|watches, path, mask| {
        let text = path.to_str().unwrap();
        watches.add(text.replace("/one/within", "/one").replace("/twin", "/one"), mask)
    })
}

/// A directory that is mounted at two places, or within itself, costs no endless looking.
#[test]
fn a_directory_with_two_places() {
    let place = Place::new();
    ["one/a", "one/within", "twin/a"].iter().for_each(|name| place.make(name));
    let mut watch = TreeWatch::open(&place.trees(&[]), mounted()).unwrap();
    for file in ["one/f", "one/a/f"] {
        place.write(file);
        let turn = watch.turn().unwrap();
        assert!(!watch.is_pressed && turn.is_whole());
        assert_eq!(turn.paths().len(), 1, "{:?}", turn);
    }
    place.make("one/a/new");
    place.rename("one/a/new", "one/a/newer");
    watch.turn().unwrap();
    let turn = watch.turn().unwrap();
    assert!(!watch.is_pressed && turn.is_empty(), "{:?}", turn);
}

/// A root that goes away is reported, whichever way it goes; a root that is not a directory is refused.
#[test]
fn a_root_goes_away() {
    let place = Place::new();
    assert!(matches!(TreeWatch::open(&place.trees(&[]), kernel()), Err(WatchError::Root { .. })));
    place.make("a");
    let mut watch = place.watch(&[]);
    fs::rename(place.root(), place.directory.path().join("moved")).unwrap();
    assert!(matches!(watch.turn(), Err(WatchError::Lost { .. })));
    place.make("a");
    let mut watch = place.watch(&[]);
    fs::remove_dir_all(place.root()).unwrap();
    assert!(matches!(watch.turn(), Err(WatchError::Lost { .. })));
    fs::write(place.root(), "a file").unwrap();
    assert!(matches!(TreeWatch::open(&place.trees(&[]), kernel()), Err(WatchError::Root { .. })));
}
