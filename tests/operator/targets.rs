//! The target of a command: given, left out, and of the wrong kind.

use std::fs;
use std::process::Output;

use crate::common::Site;

/// Runs `shiftboss` with variables of the environment.
fn run(site: &Site, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    site.program().envs(variables.iter().copied()).args(arguments).output().unwrap()
}

/// Standard output of a command that goes well.
fn said(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn failure(output: &Output) -> (i32, String) {
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A site with one task, and a configuration file that names its database and socket.
fn site() -> Site {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\n");
    let names = "database = 'state.db'\ninput_dir = 'input'\nsocket = 'socket'\n";
    fs::write(site.path("shiftboss.toml"), names).unwrap();
    site
}

/// With variables or a file that say where the daemon is, no command needs to be told, and one that is told all the
/// same looks there.
#[test]
fn a_target_may_be_left_out() {
    let site = site();
    let _daemon = site.start();
    site.wait_count(1);
    let database = site.target().display().to_string();
    let by_database = [("SHIFTBOSS_DATABASE", "state.db"), ("SHIFTBOSS_CONFIG", "/nowhere")];
    let by_socket = [("SHIFTBOSS_SOCKET", "socket"), ("SHIFTBOSS_CONFIG", "/nowhere")];
    let by_file = [("SHIFTBOSS_CONFIG", "shiftboss.toml")];
    for variables in [&by_database[..], &by_socket, &by_file] {
        let said = |arguments: &[&str]| said(&run(&site, variables, arguments));
        assert!(said(&["status"]).contains(&database), "{variables:?}");
        assert!(said(&["why", "alpha"]).contains("alpha"));
        assert!(said(&["why", "--json", "alpha"]).contains(&database));
        assert!(said(&["why", "state.db", "--json", "alpha"]).contains(&database));
        assert!(said(&["queue"]).contains("alpha"));
        assert!(said(&["log"]).contains("No such attempt"));
        let copy = variables[0].0;
        said(&["backup", copy]);
        assert!(site.path(copy).exists());
    }
    for variables in [&by_socket[..], &by_file] {
        let said = |arguments: &[&str]| said(&run(&site, variables, arguments));
        assert!(said(&["pause"]).starts_with("Paused"));
        assert_eq!(said(&["ask", "READY"]), "NOJOBS\n");
        assert!(said(&["resume"]).contains("handed out again"));
        assert!(said(&["retry", "alpha"]).starts_with("Nothing of alpha"));
        assert!(said(&["retry", "socket", "alpha"]).starts_with("Nothing of alpha"));
    }
    said(&run(&site, &by_file, &["work", "--once", "--", "true"]));
    assert!(said(&run(&site, &[], &["status", "--config", "shiftboss.toml"])).contains(&database));
    said(&run(&site, &by_file, &["drain"]));
}

/// A target without the key behind it is not taken for the key.
#[test]
fn a_forgotten_key_is_told() {
    let site = site();
    let daemon = site.start();
    for command in ["why", "requeue", "retry", "cancel"] {
        let (code, why) = failure(&run(&site, &[], &[command, "socket"]));
        let expected = "KEY is missing: socket is a daemon's socket; give KEY after it";
        assert!(code == 64 && why.contains(expected), "{command}: {why}");
    }
    daemon.stop();
    let (code, why) = failure(&run(&site, &[], &["why", "state.db"]));
    assert!(code == 64 && why.contains("state.db is a database; give KEY"), "{why}");
}

/// Who names none is told how to; and which of the two a command needs.
#[test]
fn what_a_command_needs_is_told() {
    let site = site();
    site.start().stop();
    fs::write(site.path("empty.toml"), "").unwrap();
    let none = [("SHIFTBOSS_CONFIG", "empty.toml")];
    let file = [("SHIFTBOSS_CONFIG", "shiftboss.toml")];
    let both = ["status", "--config", "shiftboss.toml", "state.db"];
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], i32, &'a str);
    let cases: [Case<'_>; 10] = [
        (&none, &["status"], 64, "set SHIFTBOSS_DATABASE or SHIFTBOSS_SOCKET"),
        (&none, &["pause"], 64, "`pause` needs the daemon's socket: give it, set SHIFTBOSS_SOCKET"),
        (&none, &["work", "--", "true"], 64, "`work` needs the daemon's socket"),
        (&[], &["pause", "state.db"], 64, "the daemon's socket; state.db is a database"),
        (&[], &["ask", "state.db", "READY"], 64, "state.db is a database"),
        (&file, &["why"], 64, "KEY is missing"),
        (&file, &["retry"], 64, "KEY is missing"),
        (&file, &["backup"], 64, "FILE is missing"),
        (&[("SHIFTBOSS_CONFIG", "gone.toml")], &["queue"], 78, "gone.toml"),
        (&[], &both, 64, "not both"),
    ];
    for (variables, arguments, code, text) in cases {
        let found = failure(&run(&site, variables, arguments));
        assert!(found.0 == code && found.1.contains(text), "{arguments:?}: {found:?}");
    }
}

/// A socket that this user may not connect to is refused with 77, as the daemon refuses who may connect and no more.
#[test]
fn a_socket_of_somebody_elses() {
    let site = site();
    let daemon = site.start();
    let key = ["retry", "socket", "alpha"];
    for arguments in [&["pause", "socket"][..], &["resume", "socket"], &["drain", "socket"], &key] {
        let output = site.as_somebody_else(arguments).output().unwrap();
        let (code, why) = failure(&output);
        assert!(code == 77 && why.contains("Permission denied"), "{arguments:?}: {code} {why}");
        assert!(
            why.contains("--socket-group of the daemon decide") && why.contains("mode 0600"),
            "{why}"
        );
    }
    daemon.stop();
}
