//! What stands in the database's place and is none: commands say so at once, and a page goes on when it is gone.

use std::fs;
use std::io::{Read, Write};
use std::ops::RangeInclusive;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, Mode, mkfifoat};

use crate::common::{Site, wait_until};

/// All that take a database, at `at`.
fn commands(at: &str) -> Vec<Vec<&str>> {
    vec![
        vec!["status", "-t", at],
        vec!["status", "--check", "--json", "-t", at],
        vec!["why", "-t", at, "alpha"],
        vec!["tasks", "--next", "-t", at],
        vec!["tasks", "-t", at],
        vec!["tasks", "--held", "-t", at],
        vec!["log", "-t", at],
        vec!["log", "--sum", "-t", at],
        vec!["metrics", "-t", at],
        vec!["backup", "-t", at, "copy"],
        vec!["check", "--database", at],
        vec!["move", "--salvage", at, "new"],
        vec!["move", at, "supervisor.py:new"],
        vec!["move", at, "postgres://nobody.invalid/db"],
        vec!["serve", at, "input", "other-socket"],
        vec!["output", at, "alpha", "--log-dir", "input"],
        vec!["pause", "-t", at],
    ]
}

/// Each ends by itself, with one of these codes.
fn end(site: &Site, at: &str, codes: RangeInclusive<i32>) {
    for arguments in commands(at) {
        let mut command = Command::new("timeout");
        command.arg("20").arg(site.program().get_program()).args(&arguments);
        let output = command.current_dir(site.path(".")).output().unwrap();
        let (code, said) = (output.status.code(), String::from_utf8_lossy(&output.stderr));
        assert!(code.is_some_and(|code| codes.contains(&code)), "{arguments:?}: {code:?} {said}");
    }
}

fn fifo(path: &Path) {
    mkfifoat(CWD, path, Mode::RWXU).unwrap();
}

/// A pipe, a directory, a device, also behind a link, and pipes beside a database.
#[test]
fn nothing_hangs() {
    let site = Site::new();
    fifo(&site.path("pipe"));
    symlink("pipe", site.path("link")).unwrap();
    for at in ["pipe", "link", "input", "/dev/zero", "/dev/null"] {
        end(&site, at, 64..=78);
    }
    assert!(!site.path("copy").exists() && !site.path("new").exists());
    site.start().stop();
    for beside in ["state.db-wal", "state.db-shm", "state.db-journal"] {
        // One that a reader left is as good as none.
        let _ = fs::remove_file(site.path(beside));
        fifo(&site.path(beside));
        end(&site, "state.db", 0..=78);
        let _ = fs::remove_file(site.path(beside));
    }
}

/// A page that looks while a pipe stands there answers again once the database is back.
#[test]
fn a_page_survives_it() {
    let (site, daemon) = Site::running(&[]);
    let mut command = site.program();
    command.args(["web", "--listen", "unix:http"]);
    let page = site.spawn(command);
    let is = |path: &str, status: u16| {
        let Ok(mut page) = UnixStream::connect(site.path("http")) else { return false };
        let mut answer = String::new();
        page.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
        page.read_to_string(&mut answer).unwrap();
        answer.starts_with(&format!("HTTP/1.0 {status} "))
    };
    wait_until("it is well", || is("/healthz", 200));
    daemon.stop();
    let moved = site.path("moved");
    fs::rename(site.database(), &moved).unwrap();
    fifo(&site.database());
    for path in ["/", "/queue", "/log", "/fetchers", "/held", "/metrics", "/healthz"] {
        wait_until("it is refused", || is(path, 503));
    }
    fs::remove_file(site.database()).unwrap();
    fs::rename(moved, site.database()).unwrap();
    let _daemon = site.start();
    wait_until("it is well again", || is("/healthz", 200) && is("/", 200));
    page.stop();
}
