//! Who holds what: the dead are told from the living, their entries come back and are counted, and
//! go to the dead-letter queue after too many attempts.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use super::support::*;
use crate::*;

/// What a dead process held comes back, once, to the first who looks; its record goes.
#[test]
fn the_dead_give_back() {
    let (site, spool) = Site::with_entry();
    site.abandon("a", dead());
    let given = spool.reclaim().unwrap();
    assert_eq!(given.len(), 1);
    assert_eq!((given[0].attempts, &given[0].to), (1, &input()));
    assert_eq!(spool.reclaim().unwrap(), []);
    let records = std::fs::read_dir(site.file(".shiftboss/owners")).unwrap().count();
    assert_eq!(records, 1, "the record of this process alone");
    assert_eq!(take(&spool).unwrap().attempt(), 2);
    assert_whole(&spool);
}

/// The rest of an entry whose process died while it removed it goes; one that is put meanwhile under that name stays.
#[test]
fn a_removal_is_ended_unless_the_name_is_new() {
    let minute = Duration::from_secs(60);
    for (put, is_left) in [(SystemTime::now() - minute, false), (SystemTime::now() + minute, true)]
    {
        let (site, spool) = Site::with_entry();
        site.abandon("a", dead());
        std::fs::remove_file(site.file("in/.checkout/a")).unwrap();
        std::fs::File::open(site.file(".registry/a")).unwrap().set_modified(put).unwrap();
        assert_eq!(spool.reclaim().unwrap(), []);
        assert_eq!(site.file(".registry/a").exists(), is_left);
    }
}

/// However many entries come back in a pass, the log has one line of it.
#[test]
fn one_line_tells_what_was_given_back() {
    let (site, spool) = Site::created();
    let of_dead = site.as_seen_by(dead());
    for number in 0..30 {
        let name = put(&spool, &format!("e{number:02}")).unwrap();
        std::mem::forget(of_dead.checkout(&input(), &name).unwrap());
    }
    std::mem::forget(of_dead);
    let log = logged(|| {
        let mut reader = spool.reader(&input(), Order::Strict).unwrap();
        assert!(reader.dequeue_available().unwrap().is_some());
    });
    let Identity { pid, host, .. } = dead();
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains("Entries were given back. entries=30"), "{log}");
    assert!(log.contains(&format!("which=30 of process {pid} on {host} to in")), "{log}");
    assert!(log.contains("names=e00 (attempt 1), e01 (attempt 1), "), "{log}");
    assert!(log.ends_with("e04 (attempt 1) and 25 more\n"), "{log}");
}

/// What a living process holds stays, whatever its age. A process with a dead one's id is another, which started at another time;
/// and one that has ended is dead before its parent asks for its status.
#[test]
fn the_living_keep() {
    let (site, spool) = Site::with_entry();
    let me = Identity::this_process();
    site.abandon("a", me.clone());
    set_age(&site.file("in/.checkout/a"), Duration::from_secs(100_000));
    assert_eq!(spool.reclaim().unwrap(), []);
    assert!(repair(&spool).is_clean());
    assert_eq!(spool.list_checkouts(&input()).unwrap(), [a()]);

    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = child.id();
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    wait_until("it has ended", || stat().contains(") Z "));
    let started = stat().rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse();
    let started = started.unwrap();
    let reused = Identity { started: me.started + 1, ..me.clone() };
    for gone in [reused, Identity { pid, started, ..me }] {
        let (site, spool) = Site::with_entry();
        site.abandon("a", gone);
        assert_eq!(spool.reclaim().unwrap().len(), 1);
    }
    child.wait().unwrap();
}

/// On another host, or in another name space, a pid says nothing: the record's age does.
#[test]
fn another_host_lives_by_its_heartbeat() {
    let me = Identity::this_process();
    let far = Identity { boot_id: "other".into(), host: "far".into(), ..dead() };
    let apart = Identity { pid_namespace: "pid:[1]".into(), ..me };
    for identity in [far, apart] {
        let (site, spool) = Site::with_entry();
        site.abandon("a", identity);
        assert_eq!(spool.reclaim().unwrap(), []);
        let record = std::fs::read_dir(site.file(".shiftboss/owners")).unwrap().next();
        let record = record.unwrap().unwrap().path();
        set_age(&record, Duration::from_secs(50));
        assert_eq!(spool.reclaim().unwrap(), []);
        set_age(&record, Duration::from_secs(61));
        assert_eq!(spool.reclaim().unwrap().len(), 1);
    }
}

/// A record is touched as long as its process lives, and goes with it.
#[test]
fn a_heart_beats() {
    let site = Site::new();
    drop(site.create());
    let layer: std::sync::Arc<dyn Layer> = std::sync::Arc::new(Disk::open(&site.path()).unwrap());
    let me = Identity::this_process();
    let owner = owner::Owner::register(&layer, "feed", &me, Duration::from_millis(5)).unwrap();
    let record = site.file(".shiftboss/owners").join("feed");
    set_age(&record, Duration::from_secs(1000));
    let age = || std::fs::metadata(&record).unwrap().modified().unwrap().elapsed();
    wait_until("it is touched", || age().unwrap_or_default() < Duration::from_secs(900));
    drop(owner);
    assert!(!record.exists());
}

/// One that was taken for dead and lives on can do no harm: it is told.
#[test]
fn a_lost_claim_is_told() {
    let (site, spool) = Site::with_entry();
    for end in [Guard::complete, Guard::release, Guard::fail] {
        let other = site.as_seen_by(dead());
        let guard = take(&other).unwrap();
        assert_eq!(spool.reclaim().unwrap().len(), 1);
        let second = take(&spool).unwrap();
        let lost = end(guard).unwrap_err();
        assert!(matches!(lost, SpoolError::Lost { .. }), "{lost}");
        assert_eq!(second.data().load().unwrap(), b"data a");
        second.release().unwrap();
    }
    assert_whole(&spool);
}

/// Death between the note and the checkout: the entry is available, and the note is taken away.
#[test]
fn a_note_without_a_checkout() {
    let (site, spool) = Site::with_entry();
    let note = std::path::Path::new("0123456789abcdef 1 in");
    std::os::unix::fs::symlink(note, site.file(".shiftboss/claims/a")).unwrap();
    assert!(spool.try_checkout(&input(), &a()).unwrap().is_none());
    let mut reader = spool.reader(&input(), Order::Strict).unwrap();
    let guard = reader.dequeue(&Stop::new().unwrap(), Some(DEADLINE)).unwrap();
    assert!(matches!(guard, Some(guard) if guard.attempt() == 1));
    assert_whole(&spool);
}

/// An entry that was tried too often goes to the dead-letter queue: by failures, by deaths, by a
/// limit that was lowered. From there it can be had.
#[test]
fn too_many_attempts() {
    let limited = |max| Options { attempts_max: Some(max), ..options(Durability::None) };
    let (dlq, one) = (queue(DEAD_LETTER), [a()]);
    for how in ["fail", "drop", "retry", "death", "lowered"] {
        let site = Site::new();
        drop(with_entry(&site));
        let spool = Spool::load(&site.path(), limited(2)).unwrap();
        take(&spool).unwrap().fail().unwrap();
        assert_eq!(spool.list(&input()).unwrap(), one, "{how}");
        match how {
            "fail" => take(&spool).unwrap().fail().unwrap(),
            "drop" => drop(take(&spool).unwrap()),
            "retry" => take(&spool).unwrap().retry_after(DEADLINE).unwrap(),
            "death" => {
                site.abandon("a", dead());
                assert_eq!(spool.reclaim().unwrap()[0].to, dlq);
            }
            _ => {
                let strict = Spool::load(&site.path(), limited(1)).unwrap();
                assert!(strict.try_checkout(&input(), &a()).unwrap().is_none());
            }
        }
        assert_eq!(spool.list(&input()).unwrap(), [], "{how}");
        assert_eq!(spool.list(&dlq).unwrap(), one, "{how}");
        let attempts = if how == "lowered" { 1 } else { 2 };
        assert_eq!(spool.info(&dlq, &a()).unwrap().attempts, attempts, "{how}");
        spool.checkout(&dlq, &a()).unwrap().move_to(&input()).unwrap();
        assert_eq!(take(&spool).unwrap().attempt(), 1, "{how}");
        assert_whole(&spool);
    }
}

/// A delayed entry comes when it is due, not before, to a reader that waits; and is never too old.
#[test]
fn a_delayed_entry_comes_when_due() {
    let (site, spool) = Site::with_entry();
    let start = Instant::now();
    let delay = Duration::from_millis(300);
    take(&spool).unwrap().retry_after(delay).unwrap();
    let mut reader = spool.reader(&input(), Order::Strict).unwrap();
    assert!(reader.dequeue_available().unwrap().is_none());
    let guard = reader.dequeue(&Stop::new().unwrap(), Some(DEADLINE)).unwrap().unwrap();
    assert!(start.elapsed() >= delay);
    assert_eq!(guard.attempt(), 2);
    guard.retry_after(Duration::from_secs(3600)).unwrap();
    set_age(&site.file("in/.checkout/a"), Duration::from_secs(1200));
    assert_eq!(problems(&spool), []);
    assert!(repair(&spool).is_clean());
}

/// Notes and records that no program wrote like this do no harm.
#[test]
fn damaged_records_are_mended() {
    let (site, spool) = Site::with_entry();
    site.abandon("a", dead());
    std::fs::remove_file(site.file(".shiftboss/claims/a")).unwrap();
    std::os::unix::fs::symlink("nonsense", site.file(".shiftboss/claims/a")).unwrap();
    site.write(".shiftboss/claims/b", "not a link");
    site.write(".shiftboss/attempts/c", "not a link");
    site.write(".shiftboss/owners/feed", "not a record");
    assert_eq!(spool.reclaim().unwrap(), []);
    let repaired = repair(&spool);
    assert!(repaired.is_mended(), "{repaired:#?}");
    assert!(repair(&spool).is_clean());
    assert_whole(&spool);
    assert_eq!(spool.list(&input()).unwrap(), [a()]);
}

/// The clock was a year ahead when an entry was to rest for a moment: it rests for that moment from now on.
#[test]
fn a_clock_that_was_ahead_delays_nothing() {
    let (site, spool) = Site::with_entry();
    let (year, delay) = (Duration::from_secs(365 * 86_400), Duration::from_millis(300));
    take(&spool).unwrap().retry_after(year + delay).unwrap();
    let began = (SystemTime::now() + year).duration_since(UNIX_EPOCH).unwrap();
    let time = Timespec { tv_sec: began.as_secs() as i64, tv_nsec: began.subsec_nanos().into() };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, site.file(".shiftboss/claims/a"), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    assert_eq!(spool.reclaim().unwrap(), [], "it rests");
    wait_until("it has rested", || !spool.reclaim().unwrap().is_empty());
    assert_eq!(take(&spool).unwrap().attempt(), 2);
}
