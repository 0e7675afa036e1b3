//! The command line: help, version and usage errors.

use std::process::{Command, Output};

fn shiftboss(words: &[&str]) -> (String, String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shiftboss"));
    let Output { stdout, stderr, status } = command.args(words).output().unwrap();
    (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap(), status.code())
}

/// Help and version go to standard output and end with 0.
#[test]
fn help_and_version() {
    let (stdout, stderr, code) = shiftboss(&["--version"]);
    assert_eq!(stdout, concat!("shiftboss ", env!("CARGO_PKG_VERSION"), "\n"));
    assert_eq!((&*stderr, code), ("", Some(0)));
    for command in [
        "serve", "status", "why", "tasks", "log", "pause", "resume", "drain", "retry", "check",
        "ask", "backup", "fetch", "work",
    ] {
        let (stdout, stderr, code) = shiftboss(&[command, "--help"]);
        assert!(stdout.contains(&format!("Usage: shiftboss {command}")), "{stdout}");
        assert!(stdout.contains("Example"), "{stdout}");
        assert_eq!((&*stderr, code), ("", Some(0)));
        assert!(shiftboss(&["--help"]).0.contains(&format!("\n  {command} ")));
    }
    // It is for shiftboss itself.
    assert!(!shiftboss(&["--help"]).0.contains("guardian"));
    assert_eq!(shiftboss(&["guardian"]).2, Some(64));
}

/// The long help of those that run commands says what these are told, and how they end.
#[test]
fn long_help() {
    let cases: [(&[&str], &[&str]); 4] = [
        (&["serve"], &["--config", "wins over the environment", "SIGHUP"]),
        (
            &["work"],
            &["{key} and {payload}", "SHIFTBOSS_PAYLOAD", "No command outlives the worker"],
        ),
        (&["fetch"], &["nothing of it is handed out", "exits with 69"]),
        (&["on-change"], &["{paths}", "SHIFTBOSS_CHANGED"]),
    ];
    for (command, expected) in cases {
        let (stdout, ..) = shiftboss(&[command, &["--help"]].concat());
        let text = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        let (about, _) = text.split_once("Usage:").unwrap();
        for words in expected {
            assert!(about.contains(words), "{words} is not in {about}");
        }
    }
}

/// A shell's completions are printed, and know the commands.
#[test]
fn completions() {
    for shell in ["bash", "zsh", "fish"] {
        let (stdout, stderr, code) = shiftboss(&["completions", shell]);
        assert_eq!((&*stderr, code), ("", Some(0)));
        assert!(stdout.contains("on-change") && stdout.contains("completions"), "{shell}");
    }
    assert_eq!(shiftboss(&["completions", "csh"]).2, Some(64));
}
