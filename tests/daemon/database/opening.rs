//! A database and a socket are opened by one daemon, whole, and where they can be. What else is refused, and leaves nothing
//! behind, is in `safety::refused`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

use crate::common::{Site, wait_until};

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

/// Of several that start at the same moment, with nothing there yet, exactly one serves.
#[test]
fn one_of_many_that_start_at_once() {
    for _ in 0..3 {
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

/// A database that may only be read is refused with a message, not served from.
#[test]
fn a_read_only_database() {
    let site = Site::new();
    site.start().stop();
    let command = site.serve_unprivileged(&[]);
    fs::set_permissions(site.database(), fs::Permissions::from_mode(0o444)).unwrap();
    let (code, log) = site.refused(command);
    assert!(code == 73 && log.contains("state.db"), "{code}: {log}");
    assert!(!site.socket().exists());
}

/// A new database is never seen half made: either no file under its name or a whole one.
#[test]
fn a_new_database_appears_whole() {
    for _ in 0..3 {
        let site = Site::new();
        let daemon = site.spawn(site.serve(&[]));
        wait_until("the file is there", || site.database().exists());
        let tables = "SELECT count(*) FROM sqlite_schema WHERE type = 'view' \
            AND name IN ('fetchers', 'fetcher_runs', 'queue', 'log')";
        assert_eq!(site.sql(tables), ["4"]);
        daemon.kill();
        site.start().stop();
    }
}
