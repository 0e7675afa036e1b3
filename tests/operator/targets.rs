//! The target of a command: given, left out, and of the wrong kind.

use std::fs;
use std::process::Output;

use crate::common::Site;

/// Runs `shiftboss` with variables of the environment alone.
fn run(site: &Site, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = site.program();
    command.env_remove("SHIFTBOSS_TARGET").envs(variables.iter().copied());
    command.args(arguments).output().unwrap()
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

/// A database, a socket, or a file that names both serves every command, and so does -t, wherever it stands.
#[test]
fn any_kind_serves_any_command() {
    let site = site();
    let _daemon = site.start();
    site.wait_count(1);
    let database = site.target().display().to_string();
    let by_database = [("SHIFTBOSS_TARGET", &*database), ("SHIFTBOSS_CONFIG", "/nowhere")];
    let by_socket = [("SHIFTBOSS_TARGET", "socket"), ("SHIFTBOSS_CONFIG", "/nowhere")];
    let by_file = [("SHIFTBOSS_CONFIG", "shiftboss.toml")];
    let wrong = ("SHIFTBOSS_TARGET", "/nowhere");
    for (number, (variables, given)) in [
        (&by_database[..], &[][..]),
        (&by_socket, &[]),
        (&by_file, &[]),
        (&[wrong], &["-t", &*database]),
        (&[wrong], &["--target=socket"]),
    ]
    .into_iter()
    .enumerate()
    {
        let said = |arguments: &[&str]| {
            let behind = [&arguments[..1], given, &arguments[1..]].concat();
            let output = said(&run(&site, variables, &behind));
            assert_eq!(said(&run(&site, variables, &[given, arguments].concat())), output);
            output
        };
        assert!(said(&["why", "--json", "alpha"]).contains(&database), "{variables:?} {given:?}");
        assert!(said(&["tasks", "--next"]).contains("alpha"));
        assert_eq!(said(&["tasks", "--held"]), "No key is held.\n");
        assert!(said(&["search", "al"]).contains("alpha"));
        assert!(said(&["log"]).contains("No such attempt"));
        assert!(said(&["pause"]).starts_with("Paused"));
        assert_eq!(said(&["ask", "READY"]), "NOJOBS\n");
        assert!(said(&["resume"]).contains("handed out again"));
        assert!(said(&["retry", "alpha"]).starts_with("Nothing of alpha"));
        let copy = format!("copy{number}");
        assert_eq!(
            run(&site, variables, &[&["backup"], given, &[&*copy]].concat()).status.code(),
            Some(0)
        );
        assert!(site.path(&copy).exists());
    }
    said(&run(&site, &by_database, &["work", "--once", "--", "true"]));
    assert!(said(&run(&site, &by_database, &["drain"])).contains("The queue stays paused"));
}

/// What is printed as the next thing to type works as it stands: with -t if that was typed.
#[test]
fn hints_name_the_target_that_was_typed() {
    let site = site();
    let _daemon = site.start();
    site.wait_count(1);
    for (given, typed) in [(&[][..], ""), (&["-t", "socket"], "-t socket ")] {
        let paused = said(&site.run(&[given, &["pause"]].concat()));
        let expected = format!("nothing is handed out until `shiftboss {typed}resume`.\n");
        assert!(paused.ends_with(&expected), "{paused}");
        let next = paused.split('`').nth(1).unwrap().split(' ').skip(1).collect::<Vec<_>>();
        said(&site.run(&next));
        let why = said(&site.run(&[given, &["retry", "alpha"]].concat()));
        assert!(why.contains(&format!("`shiftboss {typed}why alpha`")), "{why}");
    }
}

/// Several keys are asked for one by one: what is refused of one holds up no other.
#[test]
fn several_keys() {
    let site = site();
    site.write("g.1.txt", "bravo 0 1\n");
    let _daemon = site.start();
    site.wait_count(2);
    let output = site.run(&["hold", "alpha", "bravo"]);
    assert_eq!(said(&output).lines().count(), 2);
    let output = site.run(&["bump", "alpha", "nobody", "bravo"]);
    let (code, why) = failure(&output);
    assert!(code == 65 && why.lines().count() == 3, "{code} {why}");
    assert_eq!(said(&site.run(&["unhold", "alpha", "bravo"])).lines().count(), 2);
    let output = site.run(&["bump", "nobody", "bravo"]);
    assert_eq!(output.status.code(), Some(65));
    assert!(String::from_utf8_lossy(&output.stdout).contains("bravo"), "{output:?}");
}

/// Who names none is told how to; what was typed as a target once is answered with the line that it is now.
#[test]
fn what_a_command_needs_is_told() {
    let site = site();
    let daemon = site.start();
    let (code, why) = failure(&site.run(&["requeue", "socket", "alpha"]));
    assert!(code == 64 && why.ends_with("  shiftboss requeue -t socket alpha\n"), "{why}");
    daemon.stop();
    fs::write(site.path("empty.toml"), "").unwrap();
    let none = [("SHIFTBOSS_CONFIG", "empty.toml")];
    let file = [("SHIFTBOSS_CONFIG", "shiftboss.toml")];
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], i32, &'a str);
    let cases: [Case<'_>; 9] = [
        (&none, &["status"], 64, "set SHIFTBOSS_TARGET"),
        (&none, &["pause"], 64, "set SHIFTBOSS_TARGET"),
        (&file, &["pause"], 69, "no answer from"),
        (&[], &["pause", "-t", "state.db"], 69, "no daemon runs on state.db"),
        (&[], &["status", "state.db"], 64, "shiftboss status -t state.db\n"),
        (&[], &["-t", "state.db", "serve", "a", "b", "c"], 64, "unexpected argument '-t'"),
        (&file, &["why"], 64, "<KEY>"),
        (&file, &["retry"], 64, "<KEY>"),
        (&[("SHIFTBOSS_CONFIG", "gone.toml")], &["tasks"], 78, "gone.toml"),
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
    let key = ["retry", "-t", "socket", "alpha"];
    for arguments in [
        &["pause", "-t", "socket"][..],
        &["resume", "-t", "socket"],
        &["drain", "-t", "socket"],
        &key,
    ] {
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
