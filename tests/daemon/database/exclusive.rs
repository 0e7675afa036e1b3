//! One daemon a database, a socket and an input directory; the second start disturbs nothing.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use crate::common::{Site, wait_until};

/// A second daemon on these paths ends with 75 and names the first one's pid; the
/// first goes on undisturbed.
fn second_is_refused(paths: impl Fn(&Site, &Site) -> [PathBuf; 3]) {
    let (site, other) = (Site::new(), Site::new());
    site.write("f.1.txt", "alpha 0 1\nbravo 0 2\n");
    let mut first = site.start();
    site.wait_count(2);
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    for _ in 0..3 {
        let mut command = other.program();
        command.arg("serve").args(paths(&site, &other));
        let (code, log) = other.refused(command);
        assert_eq!(code, 75, "{log}");
        let pid = format!("another daemon (pid {},", first.pid().as_raw_nonzero());
        let watching = format!("another daemon is watching {}", site.input().display());
        assert!(log.contains(&pid) || log.contains(&watching), "{log}");
    }
    assert!(first.is_running());
    assert_eq!(site.ask("DONE alpha 0"), "JOB bravo 0 2\n");
    assert_eq!(site.integrity(), ["ok"]);
    first.stop();
}

/// The same database, under its name and through a symbolic link.
#[test]
fn the_same_database() {
    second_is_refused(|site, other| [site.database(), other.input(), other.socket()]);
    second_is_refused(|site, other| {
        let link = other.path("link.db");
        let _ = symlink(site.database(), &link);
        [link, other.input(), other.socket()]
    });
}

/// The same socket.
#[test]
fn the_same_socket() {
    second_is_refused(|site, other| [other.database(), other.input(), site.socket()]);
}

/// The same input directory.
#[test]
fn the_same_input_directory() {
    second_is_refused(|site, other| [other.database(), site.input(), other.socket()]);
}

/// A stale socket is replaced: one nobody listens on, and one a killed daemon left.
#[test]
fn a_stale_socket_is_replaced() {
    let site = Site::new();
    drop(UnixListener::bind(site.socket()).unwrap());
    let daemon = site.start();
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    daemon.kill();
    assert!(site.socket().exists());
    let _daemon = site.start();
    assert_eq!(site.ask("READY"), "NOJOBS\n");
}

/// What is no socket stays where it is.
#[test]
fn what_is_no_socket_is_not_replaced() {
    let site = Site::new();
    fs::write(site.socket(), "precious").unwrap();
    let (code, log) = site.refused(site.serve(&[]));
    assert!(code == 73 && log.contains("socket"), "{code}: {log}");
    assert_eq!(fs::read_to_string(site.socket()).unwrap(), "precious");
    fs::remove_file(site.socket()).unwrap();
    fs::create_dir(site.socket()).unwrap();
    let (code, log) = site.refused(site.serve(&[]));
    assert_eq!(code, 73, "{log}");
    assert!(site.socket().is_dir());
}

/// A socket path longer than the kernel takes is refused with the limit.
#[test]
fn a_socket_path_that_is_too_long() {
    let site = Site::new();
    let long = site.path(&"s".repeat(108));
    let mut command = site.program();
    command.arg("serve").args([site.database(), site.input(), long]);
    let (code, log) = site.refused(command);
    assert!(code == 78 && log.contains("107"), "{code}: {log}");
}

/// A socket in a directory that does not exist.
#[test]
fn a_socket_that_cannot_be_made() {
    let site = Site::new();
    let mut command = site.program();
    let socket = site.path("missing/socket");
    command.arg("serve").args([site.database(), site.input(), socket]);
    let (code, log) = site.refused(command);
    assert!(code == 73 && log.contains("missing"), "{code}: {log}");
}

/// Of several that start at the same moment, with nothing there yet, exactly one serves.
#[test]
fn one_of_many_that_start_at_once() {
    for _ in 0..5 {
        let site = Site::new();
        let mut daemons: Vec<_> = (0..4).map(|_| site.spawn(site.serve(&[]))).collect();
        wait_until("all but one have ended", || {
            daemons.iter_mut().filter_map(|daemon| daemon.is_running().then_some(())).count() == 1
        });
        for daemon in &mut daemons {
            if !daemon.is_running() {
                assert_eq!(daemon.exit().code(), Some(75), "{}", daemon.log());
            }
        }
        wait_until("it serves", || UnixStream::connect(site.socket()).is_ok());
        assert_eq!(site.ask("READY"), "NOJOBS\n");
    }
}
