//! Roles with exactly the rights that docs/postgres.md grants: one that migrates, one that serves, one that looks.

use std::fs;
use std::path::Path;

use crate::common::said::code_and_error;
use crate::common::server::{Database, admin};
use crate::common::{Client, Site, attempt_of, wait_until};

/// The statements of "Rights", for a database and roles of this test's own.
fn statements(database: &str, mark: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/postgres.md");
    let text = fs::read_to_string(file).unwrap();
    let (_, part) = text.split_once("\n## Rights\n").unwrap();
    let part = part.split("\n## ").next().unwrap();
    let lines = part.lines().filter_map(|line| line.strip_prefix("    "));
    let statements = lines.collect::<Vec<_>>().join("\n");
    assert_eq!(statements.matches(';').count(), 11, "{statements}");
    statements.replace("DATABASE queue", &format!("DATABASE {database}")).replace("shiftboss", mark)
}

/// The roles go with the test, also when it fails.
struct Roles<'a> {
    server: &'a Database,
    mark: String,
}

impl Roles<'_> {
    fn url(&self, suffix: &str) -> String {
        self.server.url().replacen("shiftboss@", &format!("{}{suffix}@", self.mark), 1)
    }
}

impl Drop for Roles<'_> {
    fn drop(&mut self) {
        let roles =
            ["", "_owner", "_reader"].map(|suffix| format!("{}{suffix}", self.mark)).join(", ");
        roles
            .split(", ")
            .for_each(|role| self.server.edit(&format!("DROP OWNED BY {role} CASCADE")));
        admin(&format!("DROP ROLE {roles}"));
    }
}

/// Each does its part with what it was granted, and no more.
#[test]
fn each_role_needs_no_more_than_it_is_granted() {
    let site = Site::new();
    let server = site.server().unwrap();
    let mark = format!("rights_{}", std::process::id());
    let name = server.ask("SELECT current_database()");
    server.edit(&statements(&name, &mark));
    let roles = Roles { server, mark };
    let run = |arguments: &[&str]| code_and_error(&site.run(arguments));
    assert_eq!(run(&["migrate", "-t", &roles.url("")]).0, 78, "who serves makes no schema");
    assert_eq!(run(&["migrate", "-t", &roles.url("_owner")]), (0, String::new()));

    fs::write(site.path("rules.toml"), "[backoff]\nafter = 1\n[job_retry]\nretries = 1\n").unwrap();
    let serve = |name: &str, input: &str, socket: &str| {
        let mut command = site.program();
        command.args(["serve", "--no-migrate", "--config", "rules.toml", "--daemon-name", name]);
        command.args([&roles.url(""), input, socket]);
        command
    };
    let daemon = site.spawn(serve("one", "input", "socket")).ready();
    site.write("f.1.txt", "alpha 0 1\nbravo 0 1\ncharlie 0 1\n");
    site.wait_count(3);
    let mut client = Client::leased(&site, 60);
    let attempt = attempt_of(&client.ask("READY"));
    assert_eq!(client.ask(&format!("DONE {attempt} 1")), "OK\n");
    assert!(client.ask("READY").starts_with("JOB "));
    for order in [
        &["add", "-t", "socket", "delta", "1"][..],
        &["bump", "-t", "socket", "delta"],
        &["hold", "--for", "1h", "-t", "socket", "echo"],
        &["unhold", "-t", "socket", "echo"],
        &["pause", "-t", "socket"],
        &["resume", "-t", "socket"],
        &["cancel", "-t", "socket", "delta"],
    ] {
        assert_eq!(run(order).0, 0, "{order:?}: {}", run(order).1);
    }

    // Its jobs are another one's, and so is its name free.
    daemon.kill();
    let second = site.spawn(serve("two", "other", "socket")).ready();
    wait_until("the dead one's job is adopted", || {
        server.holds("SELECT count(*) = 1 FROM keys WHERE owner = 'member/two'")
    });
    assert_eq!(run(&["forget", "--daemon", "one", "-t", &roles.url("")]).0, 0);
    for look in [
        &["status"][..],
        &["tasks", "--next"],
        &["log"],
        &["tasks", "--held"],
        &["log", "--sum"],
        &["metrics"],
        &["top", "--once"],
        &["tasks", "--status", "delayed"],
    ] {
        let reader = roles.url("_reader");
        let asked = [look, &["-t", &*reader]].concat();
        assert_eq!(run(&asked).0, 0, "{look:?}: {}", run(&asked).1);
    }
    assert_eq!(run(&["why", "-t", &roles.url("_reader"), "alpha"]).0, 0);
    let as_reader = run(&["serve", "--no-migrate", &roles.url("_reader"), "third", "third.sock"]);
    assert_eq!(as_reader.0, 78, "{}", as_reader.1);
    second.stop();
}
