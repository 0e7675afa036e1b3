//! A server that does not give what a daemon needs: connections, or room. Each test has a server of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use shiftboss_testbed::processes::Children;
use shiftboss_testbed::server::{PLAIN, PostgresServer, QUEUE, fill};

use crate::common::mounts::FileSystem;
use crate::common::{Daemon, Site, wait_until};

/// A server with a database for a role that is no administrator.
pub fn server(settings: &[&str]) -> PostgresServer {
    let server = PostgresServer::start(settings).unwrap();
    server.make_queue(None).unwrap();
    server
}

pub fn serve(site: &Site, server: &PostgresServer) -> Daemon {
    site.spawn(serve_by(site, &server.url(PLAIN, QUEUE)))
}

pub fn serve_by(site: &Site, url: &str) -> Command {
    let mut command = site.program();
    command.args(["serve", url, "input", "socket"]);
    command
}

/// Others have all connections that the server allows when a daemon starts: it says so, with the exit code of a server that
/// may be tried again.
#[test]
fn used_up_connections_are_named_at_the_start() {
    let (site, server) = (Site::new(), server(&["max_connections=8"]));
    let other = || {
        let mut client = server.psql(PLAIN, QUEUE, "SELECT pg_sleep(600)");
        client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    // Three are for administrators, and the one who looks may have one of the five that are left when another one asks for it.
    let mut others = Children::default();
    let staying = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    wait_until("all are used", || {
        others.0.push(other());
        server.query("postgres", staying).unwrap() == "5"
    });
    let mut refused = serve(&site, &server);
    assert_eq!(refused.exit().code(), Some(69), "{}", refused.log());
    assert!(refused.log().contains("remaining connection slots"), "{}", refused.log());
    drop(others);
    server.end_connections(PLAIN).unwrap();
    wait_until("they are free", || server.query("postgres", staying).unwrap() == "0");
    serve(&site, &server).ready().stop();
}

/// The disk of the server is full while a list is read: what was acknowledged stays, and the rest is read when there is room.
#[test]
fn a_full_disk_of_the_server_is_waited_for() {
    crate::common::root!();
    const LINES: usize = 5_000;
    let site = Site::new();
    let disk = site.path("disk");
    let _mounted = FileSystem::of_size(&disk, 64);
    // The server is another user.
    fs::set_permissions(site.path(""), fs::Permissions::from_mode(0o711)).unwrap();
    let server = PostgresServer::start(&[]).unwrap();
    server.make_queue(Some(&disk)).unwrap();
    let daemon = serve(&site, &server).ready();
    let count = || {
        let rows = server.query("queue", "SELECT count(*) FROM shiftboss_public.queue").unwrap();
        rows.parse::<usize>().unwrap()
    };
    site.write("f.1.txt", "alpha 1\n");
    wait_until("it is listed", || count() == 1);
    assert_eq!(site.ask("READY"), "JOB alpha 1\n");
    assert_eq!(site.ask("DONE alpha 7"), "NOJOBS\n");
    let filler = disk.join("filler");
    fill(&filler).unwrap();
    let lines = (0..LINES).map(|line| format!("key-{line} {}\n", "payload ".repeat(20)));
    site.write("g.1.txt", lines.collect::<String>());
    wait_until("it is full", || !daemon.warnings(&["No space left on device"]).is_empty());
    assert!(count() < LINES);
    fs::remove_file(filler).unwrap();
    wait_until("all is listed", || count() == LINES + 1);
    assert!(site.ask("READY").starts_with("JOB key-"));
    let logged = "SELECT exit_code FROM shiftboss_public.log WHERE attr_path = 'alpha'";
    assert_eq!(server.query("queue", logged).unwrap(), "7");
    daemon.stop();
}
