//! Arguments, or a file, become settings.

use clap::Parser;

use super::*;
use crate::cli::{Cli, Command};
use crate::config::File;
use crate::stores::Policy;

fn typed(more: &[&str]) -> Result<ServeArguments, String> {
    match Cli::try_parse_from(["shiftboss", "serve"].iter().chain(more)).map(|cli| cli.command) {
        Ok(Command::Serve(typed)) => Ok(*typed),
        Ok(_) => Err("another command".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn settings(words: &[&str], file: Option<&str>) -> Result<ServeSettings, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shiftboss.toml");
    std::fs::write(&path, file.unwrap_or_default()).unwrap();
    let file = File::read(&path).unwrap();
    ServeSettings::new(&typed(words)?, Some(&file)).map_err(|error| error.to_string())
}

const PATHS: [&str; 3] = ["/d", "/i", "/s"];

/// Arguments become settings, and wrong ones are named.
#[test]
fn typed_settings_are_checked() {
    let with = |more: &[&str]| settings(&[&PATHS, more].concat(), None);
    let plain = with(&[]).unwrap();
    assert_eq!(plain.store.policy, Policy::Fair { lease_seconds: 43_200 });
    assert_eq!(
        (plain.common.socket.mode, plain.common.said.max_connections.get()),
        (0o600, 16_384)
    );
    assert_eq!(with(&["--classic"]).unwrap().store.policy, Policy::Classic);
    for wrong in [
        ["--lease", "0s"],
        ["--lease", "1500ms"],
        ["--lease", "11years"],
        ["--lease", "soon"],
        ["--socket-mode", "999"],
        ["--durability", "none"],
        ["--max-connections", "0"],
        ["--max-expired-leases", "1001"],
        ["--bump-share", "0.0001"],
        ["--bump-share", "0.501"],
    ] {
        assert!(with(&wrong).unwrap_err().contains(wrong[0]), "{wrong:?}");
    }
    assert!(with(&["--classic", "--lease", "2h"]).unwrap_err().contains("classic"));
    assert!(settings(&["/d"], None).unwrap_err().contains("INPUT_DIR"));
}

/// A rule for failed tasks counts for single tasks, too; without one, only single tasks are retried.
#[test]
fn single_tasks_are_tried_again_as_others() {
    let of = |file: &str| {
        let rules = settings(&PATHS, Some(file)).unwrap().store.retries;
        [rules.lists, rules.single].map(|rule| rule.map(|it| it.most))
    };
    assert_eq!(of("[job_retry]\nretries = 7\n"), [Some(7), Some(7)]);
    assert_eq!(of(""), [None, Some(3)]);
}

/// A flag wins over the file; the file's paths are its directory's.
#[test]
fn flags_win_over_the_file() {
    let file = "database = 'state.db'\ninput_dir = '/in'\nsocket = 's'\nlease = '2h'\nmax_expired_leases = 7\nsocket_mode = '0660'\n";
    let found = settings(&[], Some(file)).unwrap();
    let database = found.database.file().unwrap();
    assert!(database.is_absolute() && database.ends_with("state.db"), "{database:?}");
    assert_eq!((found.common.input.as_path(), found.common.socket.mode), (Path::new("/in"), 0o660));
    assert_eq!(found.store.policy, Policy::Fair { lease_seconds: 7200 });
    assert_eq!(found.store.max_expired_leases, 7);
    let flagged = settings(&["/other.db", "--max-expired-leases", "9"], Some(file)).unwrap();
    assert_eq!(
        (flagged.database.file().unwrap(), flagged.store.max_expired_leases),
        (Path::new("/other.db"), 9)
    );
    let classic = settings(&["--classic"], Some(file)).unwrap();
    assert_eq!(classic.store.policy, Policy::Classic);
    let leased =
        settings(&["--lease", "1h"], Some("database='d'\ninput_dir='i'\nsocket='s'\nclassic=true"));
    assert_eq!(leased.unwrap().store.policy, Policy::Fair { lease_seconds: 3600 });
    assert!(settings(&[], Some("database = 'd'")).unwrap_err().contains("input_dir"));
}
