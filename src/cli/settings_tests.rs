//! What may be typed, and what is said about the rest.

use std::path::Path;

use clap::Parser;

use super::super::{Cli, Command};
use super::*;

/// The settings that `shiftboss serve OPTIONS state.db input s.sock` gives.
fn serve(options: &[&str]) -> Result<ServeSettings, String> {
    let words = [
        &["shiftboss", "serve"],
        options,
        &["state.db", "input", "s.sock"],
    ]
    .concat();
    let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
    let Command::Serve(args) = cli.command else {
        panic!("serve was typed")
    };
    args.try_into()
        .map_err(|error: SettingError| error.to_string())
}

fn ask(words: &[&str]) -> Result<AskSettings, String> {
    let words = [&["shiftboss", "ask"], words].concat();
    let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
    let Command::Ask(args) = cli.command else {
        panic!("ask was typed")
    };
    args.try_into()
        .map_err(|error: SettingError| error.to_string())
}

/// Without options the defaults of the help text hold.
#[test]
fn defaults() {
    let settings = serve(&[]).unwrap();
    assert_eq!(settings.lease, Some(Duration::from_secs(43_200)));
    assert!(!settings.classic());
    assert_eq!(settings.durability, Durability::Power);
    assert_eq!((settings.socket_mode, settings.socket_group), (0o600, None));
    assert_eq!(settings.max_connections, 16_384);
    assert_eq!(settings.log_format, LogFormat::Auto);
    let filter = std::env::var("SHIFTBOSS_LOG").unwrap_or_else(|_| "info".to_owned());
    assert_eq!(settings.log_filter, filter);
    assert_eq!(settings.database, Path::new("state.db"));
    assert_eq!(settings.input_dir, Path::new("input"));
    assert_eq!(settings.socket, Path::new("s.sock"));
}

/// Each option arrives where it belongs.
#[test]
fn options() {
    let lease = |text| serve(&["--lease", text]).unwrap().lease.unwrap().as_secs();
    assert_eq!(
        (lease("1s"), lease("1h 30min"), lease("10years")),
        (1, 5400, 315_576_000)
    );
    assert!(serve(&["--classic"]).unwrap().classic());
    assert_eq!(serve(&["--socket-mode", "660"]).unwrap().socket_mode, 0o660);
    assert_eq!(serve(&["--socket-mode=0777"]).unwrap().socket_mode, 0o777);
    let group = |text| {
        serve(&["--socket-group", text])
            .unwrap()
            .socket_group
            .unwrap()
    };
    assert_eq!(group("workers"), Group::Name("workers".to_owned()));
    assert_eq!(group("0"), Group::Id(0));
    assert_eq!(
        serve(&["--max-connections", "1"]).unwrap().max_connections,
        1
    );
    let process = serve(&["--durability", "process"]).unwrap();
    assert_eq!(process.durability, Durability::Process);
    assert_eq!(
        serve(&["--log-format", "json"]).unwrap().log_format,
        LogFormat::Json
    );
    assert_eq!(serve(&["--log-level", " "]).unwrap().log_filter, "info");
    assert_eq!(
        serve(&["--log-level", "a=debug,warn"]).unwrap().log_filter,
        "a=debug,warn"
    );
}

/// A value that cannot be used is refused with option, value and what would do.
#[test]
fn refusals() {
    let table = [
        ("--lease", "12x", "give a time"),
        ("--lease", "", "give a time"),
        ("--lease", "0s", "above 0"),
        ("--lease", "1500ms", "whole seconds"),
        ("--lease", "11years", "up to"),
        ("--socket-mode", "0888", "octal"),
        ("--socket-mode", "+600", "octal"),
        ("--socket-mode", "4755", "octal"),
        ("--socket-mode", "", "octal"),
        ("--socket-group", "", "name or number"),
        ("--socket-group", "a:b", "name or number"),
        ("--socket-group", "4294967295", "group numbers"),
        ("--max-connections", "0", "from 1"),
        ("--max-connections", "many", "from 1"),
        ("--max-connections", "1048577", "from 1"),
        ("--log-level", "a=b=c", "give a level"),
        ("--durability", "luck", "power"),
        ("--log-format", "xml", "journal"),
    ];
    for (option, value, why) in table {
        let error = serve(&[option, value]).unwrap_err();
        for part in [option, value, why] {
            assert!(error.contains(part), "{option} {value}: {error}");
        }
    }
    assert!(
        serve(&["--classic", "--lease", "1h"])
            .unwrap_err()
            .contains("cannot be used with")
    );
}

/// A socket path ends where the kernel's field for it ends.
#[test]
fn socket_paths() {
    let longest = "s".repeat(SOCKET_PATH_MAX_BYTES);
    assert_eq!(
        ask(&[&longest, "READY"]).unwrap().socket,
        Path::new(&longest)
    );
    let error = ask(&[&format!("{longest}s"), "READY"]).unwrap_err();
    assert!(
        error.starts_with("SOCKET \"sss") && error.contains("107 bytes"),
        "{error}"
    );
    assert!(ask(&["", "READY"]).unwrap_err().contains("SOCKET"));
}

/// `ask` takes several lines, a time, and needs one line at least.
#[test]
fn ask_settings() {
    let settings = ask(&["--timeout", "200ms", "s", "READY", "DONE a 0"]).unwrap();
    assert_eq!(settings.timeout, Duration::from_millis(200));
    assert_eq!(settings.lines, ["READY", "DONE a 0"]);
    assert_eq!(
        ask(&["s", "READY"]).unwrap().timeout,
        Duration::from_secs(5)
    );
    assert!(ask(&["s"]).unwrap_err().contains("LINE"));
    assert!(
        ask(&["--timeout", "0s", "s", "READY"])
            .unwrap_err()
            .contains("--timeout \"0s\"")
    );
}
