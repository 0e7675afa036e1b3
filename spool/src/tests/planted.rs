//! What another user who may write to a spool can plant in it: links, pipes and directories where its
//! files and directories should be. What a link leads to stays as it is, and the error says what is there.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use super::support::*;
use crate::*;

const CONTENT: &str = "precious";
const AGE: Duration = Duration::from_secs(100_000);
/// What may be planted in a file's place, and the word of it in an error.
const PLANTS: [(&str, Plant); 4] = [
    ("a symbolic link is", |victim, place| symlink(victim, place).unwrap()),
    ("a hard link is", |victim, place| fs::hard_link(victim, place).unwrap()),
    ("a pipe", |_, place| mknodat(CWD, place, FileType::Fifo, Mode::RWXU, 0).unwrap()),
    ("a directory is", |_, place| fs::create_dir(place).unwrap()),
];

type Plant = fn(&Path, &Path);

/// A file outside the spool.
fn victim(site: &Site) -> PathBuf {
    let victim = site.directory.path().join("victim");
    fs::write(&victim, CONTENT).unwrap();
    set_age(&victim, AGE);
    victim
}

fn assert_untouched(victim: &Path, where_: &str) {
    assert_eq!(fs::read_to_string(victim).unwrap(), CONTENT, "{where_}");
    let age = SystemTime::now().duration_since(fs::metadata(victim).unwrap().modified().unwrap());
    assert!(age.unwrap() >= AGE, "{where_}: touched");
}

/// Puts something in the place of a file of the spool.
fn plant(plant: Plant, victim: &Path, place: &Path) {
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    let _ = fs::remove_file(place);
    plant(victim, place);
}

/// A spool with entries, of which dead processes hold two.
fn inhabited(site: &Site) -> Spool {
    let spool = site.create();
    ["a", "b", "c", "d", "e", "f", "g"].iter().for_each(|entry| _ = put(&spool, entry).unwrap());
    spool.checkout(&input(), &name("g")).unwrap().fail().unwrap();
    site.abandon("e", dead());
    site.abandon("f", Identity { boot_id: "other".into(), ..dead() });
    spool
}

/// Does what can be done with a spool; what failed.
fn use_it(site: &Site, spool: &Spool) -> Vec<String> {
    let input = input();
    let held = |entry: &str| spool.checkout(&input, &name(entry));
    let options = FsckOptions { older_than: Some(Duration::ZERO), ..REPAIR };
    let draft = || {
        let draft = spool.draft(&mut &b"d"[..])?;
        spool.enqueue_draft(&input, spool.reserve(named("y"))?, b"m", draft)
    };
    let done = [
        spool.reclaim().map(drop),
        held("a").and_then(Guard::fail),
        held("b").and_then(Guard::complete),
        held("c").and_then(|guard| guard.reject("why")),
        held("d").and_then(|guard| guard.move_to(&queue("out"))),
        held("g").and_then(|guard| guard.retry_after(Duration::from_secs(60))),
        put(spool, "x").map(drop),
        draft().map(drop),
        spool.remove(&input, &name("x")).map(drop),
        spool.sweep(),
        spool.fsck(options).map(drop),
        spool.id().map(drop),
        Spool::load(&site.path(), Options::default()).map(drop),
        Spool::create(&site.path(), Options::default()).map(drop),
    ];
    done.into_iter().filter_map(|result| Some(result.err()?.to_string())).collect()
}

/// Where each file is that a spool makes beside its entries, `x` being an entry that is yet to come. Those
/// that are opened to be written say what is in their place.
#[test]
fn nothing_is_written_through_a_planted_file() {
    let opened = [".shiftboss/lock", ".shiftboss/owners/ID"];
    let others = ".shiftboss/version .shiftboss/id .shiftboss/spare/0 .shiftboss/claims/x .shiftboss/claims/a \
        .shiftboss/attempts/a .shiftboss/attempts/x .shiftboss/reasons/c .shiftboss/moving/x .shiftboss/tmp/ID-0.data \
        .registry/x .registry/b .tmp/x .data/x .data/a in/x in/a in/.checkout/a";
    for path in opened.into_iter().chain(others.split_whitespace()) {
        for (what, how) in PLANTS {
            let site = Site::new();
            drop(inhabited(&site));
            let spool = Spool::load_unchecked(&site.path(), Options::default()).unwrap();
            let (victim, draft) = (victim(&site), spool.draft_path());
            let place = path.replace("ID", files::draft_owner(&draft).unwrap());
            plant(how, &victim, &site.file(&place));
            let errors = use_it(&site, &spool);
            assert_untouched(&victim, &format!("{path}: {what}"));
            let told = errors.iter().any(|error| error.contains(what));
            assert!(told || !opened.contains(&path), "{path}: {what}: {errors:#?}");
        }
    }
}

/// What a planted file says does not become an entry's metadata or payload.
#[test]
fn nothing_is_read_through_a_planted_file() {
    for (what, how) in PLANTS {
        let site = Site::new();
        let spool = inhabited(&site);
        let victim = victim(&site);
        plant(how, &victim, &site.file(".data/a"));
        plant(how, &victim, &site.file("in/b"));
        let read = [
            spool.data(&a()).load().unwrap_err().to_string(),
            spool.metadata(&input(), &name("b")).unwrap_err().to_string(),
        ];
        assert!(read.iter().all(|error| error.contains(what)), "{what}: {read:?}");
        assert!(spool.checkout(&input(), &name("b")).is_err(), "{what}");
    }
}

/// An entry with another name waits in its queue, and is told, until it has one again.
#[test]
fn a_linked_entry_waits_until_it_has_one_name() {
    let site = Site::new();
    let spool = inhabited(&site);
    let other = site.directory.path().join("other");
    fs::hard_link(site.file("in/b"), &other).unwrap();
    let taken = || pass(&spool, &input()).map(|guard| guard.name().to_string()).collect::<Vec<_>>();
    let text = logged(|| assert_eq!(taken(), ["a", "c", "d", "g"]));
    assert!(text.contains("hard links"), "{text}");
    let problems = problems(&spool);
    let told: Vec<_> = problems.iter().map(|problem| (problem.kind, &*problem.name)).collect();
    assert_eq!(told, [(ProblemKind::Linked, "b")]);
    let found = repair(&spool).findings;
    let linked = found.iter().find(|found| found.finding == Finding::Linked).unwrap();
    assert!(!linked.mended && linked.error.as_ref().unwrap().contains("remove it"), "{linked:?}");
    fs::remove_file(other).unwrap();
    assert!(repair(&spool).is_clean());
    assert_eq!(taken(), ["a", "b", "c", "d", "e", "g"]);
}

/// Who may only read a spool cannot open its locks.
#[test]
fn locks_are_for_those_who_may_write() {
    let lock = Site::new().create().wait_for_lock().unwrap();
    assert_eq!(lock.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

/// A pipe with a reader can be opened to write.
#[test]
fn a_pipe_with_a_reader_is_refused() {
    let site = Site::new();
    let (spool, place) = (inhabited(&site), site.file(".shiftboss/lock"));
    plant(PLANTS[2].1, Path::new(""), &place);
    let reader = rustix::fs::open(&place, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
    let error = spool.reclaim().unwrap_err().to_string();
    assert!(error.contains("a pipe"), "{error}");
    drop(reader.unwrap());
}

/// The spool's directories, each replaced by a symbolic link to what was there, outside the spool.
#[test]
fn nothing_is_done_beyond_a_planted_directory() {
    let quiet = [".shiftboss/spare", ".shiftboss/strays", ".shiftboss/quarantine"];
    let others = ".registry .tmp .data .shiftboss in in/.checkout .shiftboss/owners .shiftboss/claims \
        .shiftboss/moving .shiftboss/attempts .shiftboss/reasons .shiftboss/tmp";
    for path in quiet.into_iter().chain(others.split_whitespace()) {
        let site = Site::new();
        let spool = inhabited(&site);
        let victim = site.directory.path().join("victim");
        fs::rename(site.file(path), &victim).unwrap();
        symlink(&victim, site.file(path)).unwrap();
        let before = tree(&victim);
        let errors = use_it(&site, &spool);
        assert_eq!(tree(&victim), before, "{path}");
        let told = errors.iter().any(|error| error.contains("symbolic link"));
        assert!(told || quiet.contains(&path), "{path}: {errors:#?}");
    }
}
