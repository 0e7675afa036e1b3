//! A server that does not give what a daemon needs: connections, or room. Each test has a server of its own.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use shiftboss_testbed::server::PostgresServer;

use crate::common::mounts::FileSystem;
use crate::common::{Daemon, Site, wait_until};

/// A server with a database for a role that is no administrator, in this tablespace.
pub fn server(settings: &[&str], disk: Option<&Path>) -> PostgresServer {
    let server = PostgresServer::start(settings).unwrap();
    let sql = |statement: &str| server.query("postgres", statement).unwrap();
    sql("CREATE ROLE plain LOGIN");
    let mut place = String::new();
    if let Some(disk) = disk {
        let tables = disk.join("tables");
        fs::create_dir(&tables).unwrap();
        let owner = fs::metadata(server.home()).unwrap();
        chown(&tables, Some(owner.uid()), Some(owner.gid())).unwrap();
        sql(&format!("CREATE TABLESPACE small OWNER plain LOCATION '{}'", tables.display()));
        place = "TABLESPACE small".to_owned();
    }
    sql(&format!("CREATE DATABASE queue OWNER plain TEMPLATE template0 {place}"));
    server
}

pub fn serve(site: &Site, server: &PostgresServer) -> Daemon {
    site.spawn(serve_by(site, &server.url("plain", "queue")))
}

pub fn serve_by(site: &Site, url: &str) -> Command {
    let mut command = site.program();
    command.args(["serve", url, "input", "socket"]);
    command
}

/// Ended with the test.
struct Others(Vec<Child>);

impl Drop for Others {
    fn drop(&mut self) {
        for other in &mut self.0 {
            _ = other.kill();
            _ = other.wait();
        }
    }
}

/// Others have all connections that the server allows when a daemon starts: it says so, with the exit code of a server that
/// may be tried again.
#[test]
fn used_up_connections_are_named_at_the_start() {
    let (site, server) = (Site::new(), server(&["max_connections=8"], None));
    let other = || {
        let mut client = server.psql("plain", "queue", "SELECT pg_sleep(600)");
        client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    // Three are for administrators, and the one who looks may have one of the five that are left when another one asks for it.
    let mut others = Others(Vec::new());
    let staying = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    wait_until("all are used", || {
        others.0.push(other());
        server.query("postgres", staying).unwrap() == "5"
    });
    let mut refused = serve(&site, &server);
    assert_eq!(refused.exit().code(), Some(69), "{}", refused.log());
    assert!(refused.log().contains("remaining connection slots"), "{}", refused.log());
    drop(others);
    let end =
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'plain'";
    wait_until("they are free", || server.query("postgres", end).unwrap() == "0");
    serve(&site, &server).ready().stop();
}

/// The disk of the server is full while a list is read: what was acknowledged stays, and the rest is read when there is room.
#[test]
fn a_full_disk_of_the_server_is_waited_for() {
    crate::common::root!();
    const LINES: usize = 5_000;
    let site = Site::bare();
    fs::create_dir(site.input()).unwrap();
    let disk = site.path("disk");
    let _mounted = FileSystem::of_size(&disk, 64);
    // The server is another user.
    fs::set_permissions(site.path(""), std::os::unix::fs::PermissionsExt::from_mode(0o711))
        .unwrap();
    let server = server(&[], Some(&disk));
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
    fill(&filler);
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

fn fill(filler: &Path) {
    let mut file = fs::File::create(filler).unwrap();
    let mut block = vec![0; 1 << 16];
    while !block.is_empty() {
        // To the last page.
        if file.write_all(&block).is_err() {
            block.truncate(block.len() / 2);
        }
    }
}
