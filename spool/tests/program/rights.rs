//! A spool whose files this user may not write or read: real permissions, for a user without root's rights.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::common::Site;
use super::{assert_whole, command, listed, with};

/// Runs a verb as the unprivileged user, the spool being made so that `path` has this mode.
fn denied(site: &Site, path: &str, mode: u32, words: &[&str]) -> (i32, String, String) {
    let mut command = site.unprivileged(command(site, words));
    set(site, path, mode);
    let output = command.output().unwrap();
    if site.path(path).exists() {
        set(site, path, 0o755);
    }
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn set(site: &Site, path: &str, mode: u32) {
    fs::set_permissions(site.path(path), fs::Permissions::from_mode(mode)).unwrap();
}

/// A missing right to write is reported with what to do, for each directory that an entry passes through; nothing is
/// left of the entry.
#[test]
fn nothing_is_put_where_nothing_may_be_written() {
    let site = with(&["a"]);
    for directory in ["s/.registry", "s/.tmp", "s/.data", "s/q", "s/.shiftboss/tmp"] {
        let (code, stdout, stderr) = denied(&site, directory, 0o555, &["put", "s", "q"]);
        assert_eq!((code, &*stdout), (74, ""), "{directory} {stderr}");
        assert!(stderr.contains("ermission denied"), "{directory} {stderr}");
        assert!(stderr.contains("must belong to whoever works on it"), "{stderr}");
        assert_eq!(listed(&site, "q"), ["a"], "{directory}");
        assert_whole(&site);
    }
}

/// A spool that may only be read is read; nothing can be taken, and what was there stays.
#[test]
fn what_may_only_be_read_is_read() {
    let site = with(&["a"]);
    let words: [&[&str]; 4] =
        [&["list", "s", "q"], &["show", "s", "q", "a"], &["list", "s"], &["monitor", "s"]];
    for words in words {
        for directory in ["s", "s/q", "s/.shiftboss/claims"] {
            let (code, _, stderr) = denied(&site, directory, 0o555, words);
            assert_eq!((code, &*stderr), (0, ""), "{directory} {words:?}");
        }
    }
    for directory in ["s/.shiftboss/claims", "s/.shiftboss/owners", "s/q", "s/q/.checkout"] {
        let (code, _, stderr) = denied(&site, directory, 0o555, &["take", "s", "q"]);
        assert_eq!(code, 74, "{directory} {stderr}");
        assert!(stderr.contains("must belong to whoever works on it"), "{stderr}");
        assert_eq!(listed(&site, "q"), ["a"], "{directory}");
    }
    assert_whole(&site);
}

/// Metadata that may not be read sets its entry aside, and the others go on.
#[test]
fn unreadable_metadata_stops_nobody() {
    let site = with(&["a", "b"]);
    let (code, stdout, stderr) = denied(&site, "s/q/a", 0o000, &["take", "s", "q"]);
    assert_eq!((code, &*stdout), (0, "b\n"), "{stderr}");
    assert!(stderr.contains("quarantine"), "{stderr}");
    assert!(site.path("s/.shiftboss/quarantine/a").exists());
}
