//! With few open files, or few processes, a command works or says which limit is too low, how high it is,
//! and what it needs; it never ends as a bug.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::{Resource, Rlimit, setrlimit};

use crate::common::wait::{DEADLINE, wait_within};
use crate::common::{Daemon, Site, root};

/// A user without any processes, not even those of the other tests here.
fn user() -> u32 {
    1_000_000 + std::process::id()
}

/// Each command, as it is typed in the site's directory.
const COMMANDS: [&[&str]; 9] = [
    &["serve", "state.db", "input", "socket"],
    &["work", "--once", "-t", "other-socket", "--", "true"],
    &["fetch", "input", "f", "--", "echo", "key value"],
    &["on-change", "--once", "input", "--", "true"],
    &["status", "-t", "state.db"],
    &["log", "-t", "state.db"],
    &["check", "input"],
    &["backup", "-t", "state.db", "copy.db"],
    &["ask", "-t", "other-socket", "READY"],
];

/// A site with a database and a list, and the program, all a user's who is not root; and a daemon
/// that has nothing to do, for workers.
fn prepared() -> (Site, PathBuf, Daemon) {
    let (site, daemon) = Site::running(&[]);
    site.write("g.1.txt", "key value\n");
    site.wait_count(1);
    daemon.stop();
    let program = site.path("program");
    fs::copy(env!("CARGO_BIN_EXE_shiftboss"), &program).unwrap();
    fs::create_dir(site.path("other-input")).unwrap();
    give(site.path(""));
    let mut other = site.program();
    other.args(["serve", "other.db", "other-input", "other-socket", "--socket-mode", "0666"]);
    let other = site.spawn(other);
    wait_within(DEADLINE, "the other daemon is ready", || other.log().contains("Ready"));
    (site, program, other)
}

fn give(directory: PathBuf) {
    fs::set_permissions(&directory, PermissionsExt::from_mode(0o755)).unwrap();
    chown(&directory, Some(user()), Some(user())).unwrap();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            give(path);
        } else {
            std::os::unix::fs::lchown(path, Some(user()), Some(user())).unwrap();
        }
    }
}

/// Runs it at a limit, until it ends or, with 0, until it is `Ready`; its code and what it said.
#[allow(unsafe_code)]
fn at(
    site: &Site,
    program: &PathBuf,
    words: &[&str],
    which: Resource,
    limit: u64,
) -> (i32, String) {
    let mut command = Command::new(program);
    command.args(words).env("XDG_RUNTIME_DIR", site.path("")).stdin(Stdio::null());
    command.current_dir(site.path("")).uid(user()).gid(user());
    let few = Rlimit { current: Some(limit), maximum: Some(limit) };
    // SAFETY: one system call.
    unsafe { command.pre_exec(move || Ok(setrlimit(which, few)?)) };
    let mut process = site.spawn(command);
    let mut code = None;
    wait_within(DEADLINE, "it ends, or is ready", || {
        let ready = process.log().contains("Ready");
        code = if process.is_running() { ready.then_some(0) } else { process.exit().code() };
        code.is_some()
    });
    if process.is_running() {
        assert!(!site.ask("READY").is_empty(), "it says that it is ready: {}", process.log());
    }
    (code.unwrap(), process.log())
}

/// At each limit every command works, or is refused with the limit's name and value.
fn works_or_tells(which: Resource, name: &str, limits: impl Iterator<Item = u64>) {
    let (site, program, _other) = prepared();
    for limit in limits {
        for words in COMMANDS {
            let (code, said) = at(&site, &program, words, which, limit);
            let what = format!("{words:?} at {name} {limit} ended with {code}: {said}");
            assert!(!said.contains("panicked") && !said.contains("a bug"), "{what}");
            let told = said.contains(name) && said.contains(&format!("is {limit}, which leaves "));
            match (code, words[0]) {
                (69, _) if told => assert!(said.contains("are needed: raise it"), "{what}"),
                // Nobody serves; and what is not there is not.
                (69, "work" | "ask") => assert!(!said.contains("Too many"), "{what}"),
                (code, _) => assert_eq!(code, 0, "{what}"),
            }
            let _ = fs::remove_file(site.path("copy.db"));
        }
    }
}

/// Open files. With 3 of them the loader of the C library has none for that, and tells it itself.
#[test]
fn open_files() {
    root!();
    works_or_tells(Resource::Nofile, "RLIMIT_NOFILE", (4..30).chain((30..=64).step_by(6)));
}

/// Threads and processes.
#[test]
fn threads_and_processes() {
    root!();
    works_or_tells(Resource::Nproc, "RLIMIT_NPROC", 1..=14);
}
