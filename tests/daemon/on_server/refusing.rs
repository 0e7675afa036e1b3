//! A server that lets nobody in for a while, a pooler in front of one, tables that somebody locks, a schema that was made newer.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use shiftboss_testbed::processes::Children;
use shiftboss_testbed::server::{PLAIN, PostgresServer, QUEUE};

use super::lacking::{serve, serve_by, server};
use crate::common::said::{all_said, code_and_error};
use crate::common::{Daemon, Site, wait_until, wait_within};

fn sql(server: &PostgresServer, statement: &str) -> String {
    server.query("postgres", statement).unwrap()
}

/// What refuses the role, what lets it in again, and what is said meanwhile.
const REFUSALS: [[&str; 3]; 4] = [
    ["ALTER ROLE plain NOLOGIN", "ALTER ROLE plain LOGIN", "not permitted to log in"],
    [
        "REVOKE CONNECT ON DATABASE queue FROM PUBLIC, plain",
        "GRANT CONNECT ON DATABASE queue TO plain",
        "needs CONNECT",
    ],
    [
        "ALTER DATABASE queue RENAME TO other",
        "ALTER DATABASE other RENAME TO queue",
        "does not exist",
    ],
    ["ALTER ROLE plain RENAME TO other", "ALTER ROLE other RENAME TO plain", "does not exist"],
];

/// Has the server refuse the role. A database that somebody uses is not renamed.
fn refuse(server: &PostgresServer, how: &str) {
    wait_until("it refuses", || {
        server.end_connections(PLAIN).unwrap();
        server.query("postgres", how).is_ok()
    });
    // It may be called otherwise now.
    [PLAIN, "other"].iter().for_each(|role| server.end_connections(role).unwrap());
}

/// Waits until `status` says why the server is away.
fn wait_told(site: &Site, why: &str) {
    wait_until("it is told why", || {
        all_said(&site.run(&["status", "--json", "-t", "socket"])).1.contains(why)
    });
}

/// Who was let in once waits: as a running daemon, which goes on by itself, and as one that is started, for its supervisor. At a first
/// start the same is an error of settings.
#[test]
fn a_refused_login_is_an_outage() {
    for [refusal, undo, said] in REFUSALS {
        let (site, server) = (Site::new(), server(&[]));
        refuse(&server, refusal);
        let mut first = serve(&site, &server);
        assert_eq!(first.exit().code(), Some(78), "{refusal}: {}", first.log());
        sql(&server, undo);
        let mut daemon = serve(&site, &server).ready();
        refuse(&server, refusal);
        wait_told(&site, said);
        assert!(daemon.is_running());
        sql(&server, undo);
        wait_until("it goes on", || site.ask("READY") == "NOJOBS\n");
        refuse(&server, refusal);
        daemon.kill();
        let mut started = serve(&site, &server);
        assert_eq!(started.exit().code(), Some(69), "{refusal}: {}", started.log());
        sql(&server, undo);
        serve(&site, &server).ready().stop();
    }
}

/// What takes a right from the role, what gives it back, and what is said meanwhile. What is in a schema that one may not use is hidden.
const REVOKED: [[&str; 3]; 3] = [
    [
        "REVOKE ALL ON SCHEMA shiftboss FROM plain",
        "GRANT ALL ON SCHEMA shiftboss TO plain",
        "may not use the schema shiftboss",
    ],
    [
        "REVOKE UPDATE ON shiftboss.daemons FROM plain",
        "GRANT UPDATE ON shiftboss.daemons TO plain",
        "permission denied for table daemons",
    ],
    [
        "REVOKE SELECT ON shiftboss.keys FROM plain",
        "GRANT SELECT ON shiftboss.keys TO plain",
        "permission denied for table keys",
    ],
];

/// Rights that are revoked are an outage as refused logins are.
#[test]
fn a_right_that_is_revoked_is_an_outage() {
    let server = server(&[]);
    for [revoke, grant, said] in REVOKED {
        let site = Site::new();
        let change = |how| server.query("queue", how).unwrap();
        let mut daemon = serve(&site, &server).ready();
        change(revoke);
        wait_told(&site, said);
        let (code, told) = all_said(&site.run(&["status", "--check", "-t", "socket"]));
        assert!(code != 0 && told.contains(said), "{revoke}: {told}");
        assert!(!daemon.warnings(&[said]).is_empty(), "{}", daemon.log());
        assert!(daemon.is_running());
        change(grant);
        wait_until("it goes on", || site.ask("READY") == "NOJOBS\n");
        daemon.stop();
    }
}

/// Who was right once is started again, for its supervisor, until it is right again. At a first start the same is an error of settings.
#[test]
fn a_right_that_is_missing_at_the_start() {
    let [revoke, grant, said] = REVOKED[0];
    let (site, other, server) = (Site::new(), Site::new(), server(&[]));
    serve(&site, &server).ready().stop();
    server.query("queue", revoke).unwrap();
    for (site, code) in [(&site, 69), (&other, 78)] {
        let mut refused = serve(site, &server);
        assert_eq!(refused.exit().code(), Some(code), "{}", refused.log());
        assert!(refused.log().contains(said), "{}", refused.log());
    }
    server.query("queue", grant).unwrap();
    serve(&site, &server).ready().stop();
}

/// A password is changed, first at the server and then in the file that has it: the daemon reads it anew.
#[test]
fn a_changed_password_is_waited_for() {
    let (site, server) = (Site::new(), server(&[]));
    let rules = server.home().join("data/pg_hba.conf");
    let others = fs::read_to_string(&rules).unwrap();
    fs::write(&rules, format!("local queue plain scram-sha-256\n{others}")).unwrap();
    let change = |password: &str| sql(&server, &format!("ALTER ROLE plain PASSWORD '{password}'"));
    change("one");
    sql(&server, "SELECT pg_reload_conf()");
    site.write_private("passwords", "*:*:*:*:one\n");
    let mut command = serve_by(&site, &server.url(PLAIN, QUEUE));
    command.env("PGPASSFILE", site.path("passwords"));
    let mut daemon = site.spawn(command).ready();
    change("two");
    server.end_connections(PLAIN).unwrap();
    wait_told(&site, "password authentication failed");
    assert!(daemon.is_running());
    site.write_private("passwords", "*:*:*:*:two\n");
    wait_until("it goes on", || site.ask("READY") == "NOJOBS\n");
}

/// Somebody locks a table that every call needs: connections that were given up do not pile up behind it.
#[test]
fn connections_that_were_given_up_end() {
    const CONNECTIONS_MAX: usize = 6;
    let (site, server) = (Site::new(), server(&[]));
    let daemon = serve(&site, &server).ready();
    let mut lock = server.psql(
        "shiftboss",
        "queue",
        "BEGIN; LOCK TABLE shiftboss.daemons, shiftboss.header; SELECT pg_sleep(600)",
    );
    let lock = Children(vec![lock.stdout(Stdio::null()).spawn().unwrap()]);
    let ours = "FROM pg_stat_activity WHERE usename = 'plain'";
    let late = format!(
        "SELECT count(*) {ours} AND state = 'active' AND query_start < now() - interval '10 s'"
    );
    let mut seen = std::collections::HashSet::new();
    wait_until("it has tried often", || {
        let now = sql(&server, &format!("SELECT pid {ours}"));
        assert!(now.lines().count() <= CONNECTIONS_MAX, "{now:?}");
        assert_eq!(sql(&server, &late), "0", "a call that nobody waits for any more");
        seen.extend(now.lines().map(str::to_owned));
        seen.len() > 2 * CONNECTIONS_MAX
    });
    drop(lock);
    sql(
        &server,
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'PgSleep'",
    );
    wait_until("it goes on", || site.ask("READY") == "NOJOBS\n");
    daemon.stop();
}

/// A pooler in front of a server, and the URL of that there.
struct Pooler(#[expect(dead_code, reason = "it ends with the test")] Children, String);

impl Pooler {
    fn start(server: &PostgresServer, mode: &str, connections: usize) -> Self {
        let home = server.home();
        let shown = home.display();
        let settings = format!(
            "[databases]\nqueue = host={shown} dbname=queue\n[pgbouncer]\nunix_socket_dir = {shown}\nlisten_port = 6432\n\
            auth_type = trust\nauth_file = {shown}/users\npool_mode = {mode}\ndefault_pool_size = {connections}\n"
        );
        fs::write(home.join("pooler.ini"), settings).unwrap();
        fs::write(home.join("users"), "\"plain\" \"\"\n").unwrap();
        // That of one before, which was killed.
        let _ = fs::remove_file(home.join(".s.PGSQL.6432"));
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).current_dir("/");
        if rustix::process::geteuid().is_root() {
            command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]);
        }
        command.args(["--", "pgbouncer", "-q"]).arg(home.join("pooler.ini"));
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("the pooler listens", || Path::new(home).join(".s.PGSQL.6432").exists());
        let url = server.url(PLAIN, QUEUE);
        Self(Children(vec![child]), url.replacen("/queue", ":6432/queue", 1))
    }
}

/// Behind a pooler that gives each transaction another connection nothing begins; one that has as many as are asked for is as good
/// as none.
#[test]
fn a_pooler_of_transactions_is_refused() {
    let (site, server) = (Site::new(), server(&[]));
    for (mode, connections) in [("transaction", 1), ("transaction", 20), ("statement", 3)] {
        let pooler = Pooler::start(&server, mode, connections);
        for command in [&["migrate", "-t", &pooler.1][..], &["serve", &pooler.1, "input", "socket"]]
        {
            let refused = site.program().args(command).output().unwrap();
            let (code, error) = code_and_error(&refused);
            assert!(code == 78 && error.contains("pool_mode = session"), "{mode}: {code} {error}");
        }
        let made = "SELECT count(*) FROM pg_namespace WHERE nspname = 'shiftboss'";
        assert_eq!(server.query("queue", made).unwrap(), "0");
    }
    let pooler = Pooler::start(&server, "session", 5);
    let daemon = site.spawn(serve_by(&site, &pooler.1)).ready();
    site.write("f.1.txt", "alpha 1\n");
    wait_until("it works", || site.ask("READY") == "JOB alpha 1\n");
    daemon.stop();
}

/// The schema is made newer than a running daemon may use, whether or not its connections stay.
#[test]
fn a_daemon_that_a_schema_is_not_for_ends() {
    for ends_connections in [true, false] {
        let (site, server) = (Site::new(), server(&[]));
        let mut daemon = serve(&site, &server).ready();
        site.write("f.1.txt", "alpha 1\n");
        wait_until("it is listed", || {
            server.query("queue", "SELECT count(*) FROM shiftboss_public.queue").unwrap() == "1"
        });
        let newer = "COMMENT ON SCHEMA shiftboss IS 'shiftboss, queue version 99'";
        server.query("queue", newer).unwrap();
        if ends_connections {
            server.end_connections(PLAIN).unwrap();
        }
        let code = daemon.exit_within(Duration::from_secs(10)).code();
        assert_eq!(code, Some(78), "{}", daemon.log());
        assert!(daemon.log().contains("made by a newer shiftboss"), "{}", daemon.log());
    }
}

/// Two daemons of one name, one machine and one path, which is another directory for each (a mount, so this takes root), as in
/// containers that were copied: the second one is refused, and the first one has its name still. Started again, a daemon has its name back at once.
#[test]
fn copies_of_a_daemon_do_not_share_its_name() {
    crate::common::root!();
    let (site, server) = (Site::new(), server(&[]));
    let mut first = serve(&site, &server).ready();
    let copy = Site::new();
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", "mount --bind \"$0\" \"$1\" && shift && exec \"$@\""]);
    command.args([copy.input(), site.input(), env!("CARGO_BIN_EXE_shiftboss").into()]);
    command.args(["serve", &server.url(PLAIN, QUEUE)]).args([site.input(), copy.socket()]);
    let (code, error) = copy.refused(command);
    assert!(code == 75 && error.contains("give this one another with --daemon-name"), "{error}");
    assert!(first.is_running());
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    first.kill();
    let again = serve(&site, &server);
    wait_within(Duration::from_secs(5), "it is back", || again.log().contains("Ready:"));
}

/// A daemon that was frozen finds another process under its name, and gives way.
#[test]
fn a_daemon_that_lost_its_name_gives_way() {
    let (site, other, server) = (Site::new(), Site::new(), server(&[]));
    let mut first: Daemon = serve(&site, &server).ready();
    first.freeze();
    let mut second = serve(&other, &server).ready();
    first.thaw();
    assert_eq!(first.exit().code(), Some(75), "{}", first.log());
    assert!(first.log().contains("another daemon of this queue has the name"), "{}", first.log());
    assert!(second.is_running());
    assert_eq!(other.ask("READY"), "NOJOBS\n");
}
