//! Databases on a server that are not fit, and what is kept there. `make test-postgres` runs these, on its server.

mod apart;
mod failover;
mod interrupted;
mod lacking;
mod moving;
mod refusing;
mod rights;
mod several;
mod together;

use crate::common::said::{all_said, code_and_error, said, text};
use crate::common::server::{admin, url_of};
use crate::common::{Client, Site, attempt_of, wait_until};

/// Neither serving nor migrating works, for the same reason.
fn refused(site: &Site, url: &str, code: i32, why: &str) {
    for command in [&["migrate", "-t", url][..], &["serve", url, "input", "socket"]] {
        let (found, error) = code_and_error(&site.program().args(command).output().unwrap());
        assert!(found == code && error.contains(why), "{command:?}: {found} {error}");
    }
    assert!(!site.socket().exists());
}

#[test]
fn a_missing_database_is_refused() {
    refused(&Site::bare(), &url_of("nobodys"), 78, "make it first");
}

#[test]
fn another_encoding_is_refused() {
    let name = format!("encoded_{}", std::process::id());
    admin(&format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING SQL_ASCII LOCALE 'C'"));
    refused(&Site::bare(), &url_of(&name), 78, "SQL_ASCII: make one with encoding UTF8");
    admin(&format!("DROP DATABASE {name}"));
}

/// A role that may not make the schema is told what it needs; when somebody made it, it is told of the rights on that.
#[test]
fn missing_rights_are_named() {
    let site = Site::new();
    let role = format!("poor_{}", std::process::id());
    admin(&format!("CREATE ROLE {role} LOGIN"));
    let server = site.server().unwrap();
    let poor = server.url().replacen("shiftboss@", &format!("{role}@"), 1);
    refused(&site, &poor, 78, "needs CREATE on the database");
    assert_eq!(site.run(&["migrate"]).status.code(), Some(0));
    let mut command = site.program();
    command.args(["serve", "--no-migrate", &poor, "input", "socket"]);
    let (code, error) = code_and_error(&command.output().unwrap());
    assert!(code == 78 && error.contains("connect as shiftboss"), "{code} {error}");
    drop(site);
    admin(&format!("DROP ROLE {role}"));
}

/// A schema of that name that is somebody else's stays as it is.
#[test]
fn a_foreign_schema_is_refused() {
    let site = Site::new();
    let server = site.server().unwrap();
    server.edit("CREATE SCHEMA shiftboss; CREATE TABLE shiftboss.queue (mine int)");
    refused(&site, &server.url(), 78, "use another database");
    server.edit("COMMENT ON SCHEMA shiftboss IS 'shiftboss, queue version 99'");
    refused(&site, &server.url(), 78, "newer shiftboss");
    server.edit("SELECT mine FROM shiftboss.queue");
}

/// A daemon goes on beside a newer one, on the newer one's schema, if that is for it, too: it need not be stopped for the
/// update. What reads all tables must know them.
#[test]
fn a_daemon_works_beside_a_newer_one() {
    let site = Site::new();
    let server = site.server().unwrap();
    let daemon = site.start();
    site.write("f.1.txt", "alpha 0 1\nbravo 0 2\n");
    site.wait_count(2);
    server.edit("COMMENT ON SCHEMA shiftboss IS 'shiftboss, queue version 99, also for 1'");
    assert_eq!(site.next_key("READY").as_deref(), Some("alpha"));
    daemon.stop();
    let _daemon = site.start();
    assert_eq!(site.next_key("READY").as_deref(), Some("bravo"));
    let (code, error) = code_and_error(&site.run(&["move", "state.db", "new.db"]));
    assert!(code == 78 && error.contains("newer shiftboss"), "{code} {error}");
}

/// Commands that look do so on a newer schema, too, if that is for them; else they say what to do.
#[test]
fn a_newer_schema_is_looked_at() {
    let site = Site::new();
    let server = site.server().unwrap();
    site.write("f.1.txt", "alpha 0 1\n");
    let daemon = site.start();
    site.wait_count(1);
    daemon.stop();
    for (also_for, expected) in [(", also for 1", 0), ("", 78)] {
        server.edit(&format!(
            "COMMENT ON SCHEMA shiftboss IS 'shiftboss, queue version 99{also_for}'"
        ));
        for command in [&["status"][..], &["why", "alpha"]] {
            let (code, error) = code_and_error(&site.run(command));
            assert_eq!(code, expected, "{command:?}: {error}");
            let says_what_to_do = error.contains("made by a newer shiftboss; this one knows ")
                && error.contains(": update it");
            assert_eq!(code == 78, says_what_to_do, "{command:?}: {error}");
        }
    }
}

/// Without --no-migrate a daemon makes the schema; with it, it needs one.
#[test]
fn a_schema_is_made_or_needed() {
    let site = Site::new();
    let (code, error) = site.refused(site.serve(&["--no-migrate"]));
    assert!(code == 78 && error.contains("shiftboss migrate"), "{error}");
    for _ in 0..2 {
        assert!(said(&site, &["migrate"]).ends_with(" is up to date\n"));
    }
    let (_, status) = all_said(&site.run(&["status"]));
    assert!(status.contains("\nRules           no daemon has used it yet: "), "{status}");
    site.start_with(&["--no-migrate"]).stop();
}

/// A table that somebody took away is missed at the start.
#[test]
fn a_missing_table_is_named() {
    let site = Site::new();
    let server = site.server().unwrap();
    site.start().stop();
    server.edit("ALTER TABLE documents RENAME TO gone");
    let (code, error) = site.refused(site.serve(&[]));
    assert!(code == 78 && error.contains("the schema shiftboss was altered"), "{code} {error}");
    server.edit("ALTER TABLE gone RENAME TO documents");
    site.start().stop();
}

/// So is one that a running daemon asks beside its work: it ends.
#[test]
fn a_table_that_went_missing_is_named() {
    let site = Site::new();
    let mut daemon = site.start();
    site.server().unwrap().edit("ALTER TABLE daemons RENAME TO gone");
    assert_eq!(daemon.exit().code(), Some(74), "{}", daemon.log());
    assert!(daemon.log().contains("the schema shiftboss was altered"), "{}", daemon.log());
}

/// A column that somebody took away ends a running daemon; when it is back, nothing is lost.
#[test]
fn a_missing_column_is_named() {
    let site = Site::new();
    let server = site.server().unwrap();
    let mut daemon = site.start();
    site.write("f.1.txt", "alpha 0 1\nbravo 0 2\n");
    site.wait_count(2);
    server.edit("ALTER TABLE rows RENAME payload TO gone");
    assert_eq!(site.ask("READY"), "");
    assert_eq!(daemon.exit().code(), Some(74), "{}", daemon.log());
    assert!(daemon.log().contains("the schema shiftboss was altered"), "{}", daemon.log());
    server.edit("ALTER TABLE rows RENAME gone TO payload");
    let _daemon = site.start();
    site.wait_queue(&["f|1|alpha|0 1|0", "f|1|bravo|0 2|0"]);
}

/// Keys of 4 KiB and payloads of any bytes that a line can have are handed out as they were listed.
#[test]
fn keys_and_payloads_are_kept_to_the_byte() {
    let site = Site::new();
    let _daemon = site.start();
    let (long, other) = ("k".repeat(4096), "k".repeat(4095) + "l");
    site.write("f.1.txt", format!("{long} \u{1}\u{7f}é\n{other} b\nnul a\0b\n"));
    let mut client = Client::connect(&site);
    let mut jobs: Vec<String> = (0..3).map(|_| client.ask("READY")).collect();
    jobs.sort();
    let mut expected = [
        format!("JOB {long} \u{1}\u{7f}é\n"),
        format!("JOB {other} b\n"),
        "JOB nul a\0b\n".to_owned(),
    ];
    expected.sort();
    assert_eq!(jobs, expected);
}

/// A key with a NUL is a key as any other, in both protocols; views show it escaped.
#[test]
fn keys_with_nul_are_worked_on_and_shown_escaped() {
    let site = Site::new();
    let server = site.server().unwrap();
    let _daemon = site.start();
    site.write("f.1.txt", "al\0pha 1\0 \\2\n");
    assert_eq!(site.ask("READY"), "JOB al\0pha 1\0 \\2\n");
    let shown = |columns: &str, view: &str| {
        server.ask(&format!("SELECT {columns} FROM shiftboss_public.{view}"))
    };
    assert_eq!(shown("attr_path, payload, is_dequeued", "queue"), r"al\000pha|1\000 \\2|1");
    assert_eq!(site.ask("DONE al\0pha 7"), "NOJOBS\n");
    assert_eq!(shown("attr_path, exit_code", "log"), r"al\000pha|7");
    let mut client = apart::worker(&site);
    assert_eq!(client.ask("RETRY al\0pha"), "{\"key\":\"al\\u0000pha\",\"rows\":1}\n");
    let job = client.ask("READY");
    assert!(job.ends_with(" al\0pha 1\0 \\2\n"), "{job:?}");
    assert_eq!(client.ask(&format!("DONE {} 0", attempt_of(&job))), "OK\n");
    assert_eq!(shown("attr_path, exit_code", "log"), r"al\000pha|0");
}

/// The URL comes from a configuration file, or from the environment, which wins; without a name the daemon has the machine's.
#[test]
fn a_url_comes_from_a_file_or_the_environment() {
    let site = Site::new();
    let server = site.server().unwrap();
    let (of_file, of_environment) = (Site::bare(), server.url());
    let keys = "input_dir = 'input'\nsocket = 'socket'\n";
    let url = of_file.server().unwrap().url();
    std::fs::write(site.path("shiftboss.toml"), format!("database = '{url}'\n{keys}")).unwrap();
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = site.program();
        let file = ("SHIFTBOSS_CONFIG", "shiftboss.toml");
        command.env_remove("SHIFTBOSS_TARGET");
        command.args(arguments).envs(variables.iter().copied()).envs([file]);
        command
    };
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let names = "SELECT name, gone IS NULL FROM daemons";
    for (server, variables) in [
        (of_file.server().unwrap(), &[][..]),
        (server, &[("SHIFTBOSS_DATABASE", of_environment.as_str())]),
    ] {
        let daemon = site.spawn(run(&["serve"], variables)).ready();
        assert_eq!(server.ask(names), format!("{host}|t"));
        let target = variables.iter().map(|(_, url)| ("SHIFTBOSS_TARGET", *url));
        let shown = text(&run(&["status"], &target.collect::<Vec<_>>()).output().unwrap());
        assert!(shown.contains(&server.url()), "{shown}");
        daemon.stop();
        assert_eq!(server.ask(names), format!("{host}|f"));
    }
}

/// An order by the URL goes to a daemon of this machine; one for a daemon alone wants its socket where there are several. Who drains ends,
/// and the others go on.
#[test]
fn an_order_finds_a_daemon_by_the_url() {
    let site = Site::new();
    let (code, error) = code_and_error(&site.run(&["pause"]));
    assert!(code == 69, "no queue is there: {code} {error}");
    let daemon = site.start();
    assert!(site.run(&["pause"]).status.success());
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    assert!(site.run(&["-t", "socket", "resume"]).status.success());
    let mut other = site.program();
    std::fs::create_dir(site.path("other")).unwrap();
    other
        .args(["serve", "--daemon-name", "other"])
        .arg(site.target())
        .args(["other", "other.sock"]);
    let mut second = site.spawn(other);
    wait_until("both run", || site.run(&["health", "-t", "other.sock"]).status.success());
    assert!(site.run(&["pause"]).status.success());
    let (code, error) = code_and_error(&site.run(&["drain"]));
    assert!(code == 64 && error.contains("other.sock"), "{code} {error}");
    assert!(site.run(&["resume"]).status.success());
    assert!(site.run(&["drain", "-t", "other.sock"]).status.success());
    assert_eq!(second.exit().code(), Some(0));
    site.write("f.1.txt", "alpha 1\n");
    wait_until("the other one goes on", || site.ask("READY") == "JOB alpha 1\n");
    daemon.stop();
    let (code, error) = code_and_error(&site.run(&["resume"]));
    assert!(code == 64 && error.contains("runs on this machine"), "{code} {error}");
}

/// A socket leads to the database, without a password in its note.
#[test]
fn a_socket_names_its_database() {
    let site = Site::new();
    let url = site.server().unwrap().url().replacen("shiftboss@", "shiftboss:secret@", 1);
    let mut command = site.program();
    command.args(["serve", &url, "input", "socket"]);
    let daemon = site.spawn(command).ready();
    let shown = said(&site, &["tasks", "--next", "--json", "-t", "socket"]);
    assert!(shown.contains(&format!("\"{}\"", site.server().unwrap().url())));
    let note = std::fs::read_to_string(site.path(".socket.shiftboss-daemon")).unwrap();
    assert!(note.contains("shiftboss@") && !note.contains("secret"), "{note}");
    let log = daemon.stop();
    assert!(!log.contains("secret"), "{log}");
}
