//! The input directory is lost (spec 4, loss 10): unmounted, mounted over, not mounted yet, or replaced.
//! Nothing is withdrawn, jobs go on, and no other directory is read before it was accepted.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::mounts::FileSystem;
use crate::common::sql::RUNS;
use crate::common::{Daemon, Site, root, wait_until};

/// A site whose input directory is on a file system of its own, mounted over an empty directory.
fn mounted() -> (Site, FileSystem) {
    let site = Site::new();
    let mut disk = FileSystem::new(&site.path("disk"));
    disk.mount_at(&site.input());
    (site, disk)
}

/// Takes the next job, which must be `key`'s, and says that it is done.
fn work(site: &Site, key: &str) {
    assert_eq!(site.ask("READY"), format!("JOB {key} 1\n"));
    site.ask(&format!("DONE {key} 0"));
}

/// Loads a list of two keys, `alpha` being done already.
fn load(site: &Site) {
    site.write("f.1.txt", "alpha 1\n");
    work(site, "alpha");
    site.append("f.1.txt", "bravo 1\n");
    site.wait_queue(&["f|1|alpha|1|1", "f|1|bravo|1|0"]);
    site.wait_sql(RUNS, &["f|1|1"]);
}

/// The list is still there, and what is left of it is handed out.
fn goes_on(site: &Site) {
    assert_eq!(site.sql(RUNS), ["f|1|1"]);
    work(site, "bravo");
    assert_eq!(site.ask("READY"), "NOJOBS\n");
}

/// Waits until the daemon says that it has lost its input; it says so once, and what to do.
fn wait_lost(site: &Site, daemon: &Daemon) {
    wait_until("the loss is shown", || site.is_input_lost());
    let said = daemon.warnings(&["is lost"]);
    assert!(said.len() == 1 && said[0].contains("accept-input"), "{}", daemon.log());
}

/// The directory is back, and nothing that was done is due again.
fn is_whole_again(site: &Site) {
    wait_until("it is back", || !site.is_input_lost());
    site.write("g.1.txt", "charlie 1\n");
    work(site, "charlie");
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    site.wait_sql(RUNS, &["f|1|1", "g|1|1"]);
}

/// `umount -l` of a file system in use, and a mount.
#[test]
fn an_unmounted_directory_loses_nothing() {
    root!();
    let (site, mut disk) = mounted();
    let daemon = site.start();
    load(&site);
    disk.unmount(&site.input());
    wait_lost(&site, &daemon);
    goes_on(&site);
    disk.mount_at(&site.input());
    is_whole_again(&site);
}

/// Something is mounted over the directory, and unmounted; so often that each is seen by a look of a worker,
/// too, and by the second look after a rescan.
#[test]
fn a_directory_that_is_mounted_over_loses_nothing() {
    root!();
    let site = Site::new();
    let mut disk = FileSystem::new(&site.path("disk"));
    let daemon = site.start();
    load(&site);
    for round in 1..=2 {
        disk.mount_at(&site.input());
        assert!(site.ask("READY").ends_with('\n'));
        wait_until("the loss is shown", || site.is_input_lost());
        assert_eq!(site.sql(RUNS), ["f|1|1"], "round {round}");
        disk.unmount(&site.input());
        wait_until("it is back", || !site.is_input_lost());
    }
    assert_eq!(daemon.warnings(&["is lost"]).len(), 2, "{}", daemon.log());
    site.ask("DONE bravo 0");
    is_whole_again(&site);
}

/// Mounted late at boot: the daemon starts on the empty directory under the mount, says so, and waits.
#[test]
fn a_directory_that_is_mounted_late_loses_nothing() {
    root!();
    let (site, mut disk) = mounted();
    let daemon = site.start();
    load(&site);
    daemon.stop();
    disk.unmount(&site.input());
    let daemon = site.start();
    wait_lost(&site, &daemon);
    goes_on(&site);
    disk.mount_at(&site.input());
    is_whole_again(&site);
}

/// A new, empty file system is no reason to withdraw anything; a list in it that is left alone is, after
/// the time that is set.
#[test]
fn another_directory_is_taken_once_it_has_rested() {
    root!();
    let (site, mut disk) = mounted();
    let daemon = site.start_with(&["--accept-input-after", "2s"]);
    load(&site);
    disk.unmount(&site.input());
    wait_lost(&site, &daemon);
    site.write("new.1.txt", "delta 1\n");
    goes_on(&site);
    site.wait_sql(RUNS, &["new|1|1"]);
    work(&site, "delta");
}

/// What stands in the directory's place can be accepted: with a command, which shows what there is to accept
/// first, and at the start.
#[test]
fn another_directory_is_accepted() {
    root!();
    let (site, mut disk) = mounted();
    let daemon = site.start();
    load(&site);
    let socket = site.socket();
    let accept = || {
        let output = site.run(&["accept-input", "-t", socket.to_str().unwrap()]);
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert!(accept().1.contains("not lost"));
    disk.unmount(&site.input());
    wait_lost(&site, &daemon);
    let socket = site.socket();
    let table = site.run(&["status", "-t", socket.to_str().unwrap()]).stdout;
    let table = String::from_utf8(table).unwrap();
    assert!(table.contains("is lost since") && table.contains("another directory"), "{table}");
    let reason = site.status_of("socket")["directory_lost_reason"].clone();
    assert_eq!(reason, "another directory is at its path");
    let (code, said) = accept();
    assert!(code == Some(0) && said.contains("from now on"), "{said}");
    assert!(!site.is_input_lost());
    site.wait_sql(RUNS, &[]);
    daemon.stop();
    // It is the known one now; the old one is not.
    site.write("new.1.txt", "delta 1\n");
    let daemon = site.start();
    work(&site, "delta");
    daemon.stop();
    disk.mount_at(&site.input());
    let daemon = site.start_with(&["--accept-input"]);
    site.wait_sql(RUNS, &["f|1|1"]);
    assert!(daemon.warnings(&["is lost"]).is_empty(), "{}", daemon.log());
}

mod sqlite {
    use super::*;

    /// A directory that another daemon was started on meanwhile is not accepted as long as that one runs.
    #[test]
    fn another_daemons_directory_is_not_accepted() {
        let (site, other) = (Site::new(), Site::new());
        // With a list it knows its directory, and takes no other one by itself.
        site.write("f.1.txt", "alpha 1\n");
        let daemon = site.start();
        site.wait_count(1);
        fs::rename(site.input(), site.path("old")).unwrap();
        fs::create_dir(site.input()).unwrap();
        let mut second = other.program();
        second.arg("serve").args([other.database(), site.input(), other.socket()]);
        let second = other.spawn(second).ready();
        let accept = || site.run(&["accept-input", "-t", site.socket().to_str().unwrap()]);
        let refused = accept();
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && told.contains("another daemon watches"), "{told}");
        second.stop();
        assert!(accept().status.success());
        let mut third = other.program();
        third.arg("serve").args([other.database(), site.input(), other.socket()]);
        let (code, log) = other.refused(third);
        assert!(code == 75 && log.contains("another daemon"), "{code}: {log}");
        daemon.stop();
    }
}

/// The daemon's own fetchers put no list into another directory than the input: it would be taken for it.
#[test]
fn the_daemons_own_fetchers_wait_for_a_lost_directory() {
    root!();
    let (site, mut disk) = mounted();
    let file = site.path("shiftboss.toml");
    let fetcher = "[[fetcher]]\nname = 'own'\ncommand = ['echo', 'alpha', '1']\nevery = '1s'\n";
    fs::write(&file, fetcher).unwrap();
    let daemon = site.start_with(&["--config", file.to_str().unwrap()]);
    site.wait_count(1);
    disk.unmount(&site.input());
    wait_until("a run waits", || daemon.log().contains("waits for the input directory"));
    assert_eq!(fs::read_dir(site.input()).unwrap().count(), 0, "{}", daemon.log());
    assert_eq!(site.number("SELECT count(*) FROM queue"), 1);
    let runs = daemon.log().matches("The run ended well").count();
    disk.mount_at(&site.input());
    wait_until("it goes on", || daemon.log().matches("The run ended well").count() > runs);
    // The new list is there before the old one goes.
    site.wait_count(1);
}

/// A directory that the daemon may not list, or not enter, any more is lost until it may: `status` and its
/// `--check` say so, the log does once, and new lists are seen within seconds afterwards.
#[test]
fn a_directory_that_cannot_be_read_any_more() {
    let site = Site::new();
    let daemon = site.spawn(site.serve_unprivileged(&[])).ready();
    load(&site);
    for (mode, key) in [(0o000, "delta"), (0o311, "foxtrot")] {
        fs::set_permissions(site.input(), fs::Permissions::from_mode(mode)).unwrap();
        wait_until("the loss is shown", || site.is_input_lost());
        let checked = site.run(&["status", "--check", "-t", "socket"]);
        let told = String::from_utf8(checked.stdout).unwrap();
        assert_eq!(checked.status.code(), Some(1), "{told}");
        assert!(told.contains("cannot be read: Permission denied"), "{told}");
        assert!(
            site.run(&["status", "-t", "socket"])
                .stdout
                .windows(10)
                .any(|text| text == b"lost since")
        );
        fs::set_permissions(site.input(), fs::Permissions::from_mode(0o755)).unwrap();
        wait_until("it is back", || !site.is_input_lost());
        site.write(format!("{key}.1.txt"), format!("{key} 1\n"));
        wait_until("its list is seen", || site.sql(RUNS).contains(&format!("{key}|1|1")));
    }
    assert_eq!(daemon.warnings(&["is lost"]).len(), 2, "{}", daemon.log());
    assert!(daemon.warnings(&["Cannot look"]).len() <= 1, "{}", daemon.log());
    assert_eq!(site.run(&["status", "--check", "-t", "socket"]).status.code(), Some(0));
}
