//! Links, pipes and directories that somebody planted where the program makes its files: what they lead
//! to is untouched, and the error says what is there.

use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode};

use super::tree::tree;
use crate::common::{Site, root, wait_until};

/// The user who plants.
const MALLORY: u32 = 65_533;
const PRECIOUS: &str = "what a link would have destroyed";

/// What is planted, and the words that name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plant {
    Symlink,
    HardLink,
    Pipe,
    Directory,
    File,
}

const ALL: [Plant; 5] =
    [Plant::Symlink, Plant::HardLink, Plant::Pipe, Plant::Directory, Plant::File];

impl Plant {
    /// Puts it at `path`, as another user would.
    fn put(self, site: &Site, path: &Path) {
        let victim = site.path("victim/precious");
        match self {
            Self::Symlink => symlink(victim, path).unwrap(),
            Self::HardLink => return fs::hard_link(victim, path).unwrap(),
            Self::Pipe => {
                let mode = Mode::from_raw_mode(0o666);
                rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0).unwrap();
            }
            Self::Directory => fs::create_dir(path).unwrap(),
            Self::File => fs::write(path, "theirs").unwrap(),
        }
        lchown(path, Some(MALLORY), Some(MALLORY)).unwrap();
    }

    fn word(self) -> &'static str {
        match self {
            Self::Symlink => "a symbolic link is there",
            Self::HardLink => "2 names",
            Self::Pipe => "a named pipe is there",
            Self::Directory => "a directory is there",
            Self::File => "uid 65533",
        }
    }
}

/// A site that everybody may write to, with a file of root's elsewhere; `mode`: of its directories.
fn open_site(mode: u32) -> Site {
    let site = Site::new();
    fs::create_dir(site.path("victim")).unwrap();
    fs::write(site.path("victim/precious"), PRECIOUS).unwrap();
    fs::set_permissions(site.path("victim"), PermissionsExt::from_mode(0o700)).unwrap();
    for directory in [site.path(""), site.input()] {
        fs::set_permissions(directory, PermissionsExt::from_mode(mode)).unwrap();
    }
    site
}

fn is_untouched(site: &Site) {
    let victim = site.path("victim/precious");
    assert_eq!(fs::read_to_string(&victim).unwrap(), PRECIOUS);
    assert_eq!(fs::metadata(&victim).unwrap().permissions().mode() & 0o777, 0o644);
}

/// Whatever is planted at `path`, in a directory that all may write to and in a sticky one: `command` is
/// refused with 73, names it, and changes nothing.
fn refuses(plants: &[Plant], path: &str, command: &dyn Fn(&Site) -> Command) {
    for mode in [0o777, 0o1777] {
        for plant in plants {
            let site = open_site(mode);
            plant.put(&site, &site.path(path));
            let before = tree(&site.path(""));
            let output = command(&site).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(73), "{plant:?}: {said}");
            assert!(said.contains(plant.word()) && said.contains("remove "), "{plant:?}: {said}");
            assert_eq!(tree(&site.path("")), before, "{plant:?}");
            is_untouched(&site);
        }
    }
}

/// In place of the locks of a database, a socket and a list, of the note of who runs, and of what SQLite keeps beside a database,
/// where another user's file may be a part of it.
#[test]
fn in_place_of_the_daemon_s_locks() {
    root!();
    for name in [".state.db.shiftboss-lock", ".socket.shiftboss-lock", ".state.db.shiftboss-daemon"]
    {
        refuses(&ALL, name, &|site| site.serve(&[]));
    }
    for name in ["state.db-shm", "state.db-wal"] {
        refuses(&ALL[..4], name, &|site| site.serve(&[]));
    }
    refuses(&ALL, "input/.f.fetch.lock", &|site| {
        let mut command = site.program();
        command.args(["fetch", "input", "f", "--", "echo", "k v"]);
        command
    });
}

/// A list in the making that an earlier fetch would have left: it is removed, and not written to.
#[test]
fn in_place_of_a_list_in_the_making() {
    root!();
    for plant in [Plant::Symlink, Plant::HardLink, Plant::Pipe, Plant::File] {
        let site = open_site(0o1777);
        plant.put(&site, &site.input().join("f.5.txt.part"));
        plant.put(&site, &site.input().join(".f.fetch.part"));
        let output = site.run(&["fetch", "input", "f", "--", "echo", "key value"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        is_untouched(&site);
        assert!(!site.input().join("f.5.txt.part").exists());
    }
}

/// Runs `command` as a process whose id the planter has guessed: `$$` in the shell's script.
fn guessed(site: &Site, plant: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{plant}; exec \"$@\""), "sh"]).arg(command.get_program());
    shell.args(command.get_args()).current_dir(site.path(""));
    shell
}

/// A new database, and a backup, are not written into what stands in place of their drafts.
#[test]
fn in_place_of_a_database_in_the_making() {
    root!();
    for plant in ["ln -s", "ln"] {
        let site = open_site(0o1777);
        let script = format!("{plant} victim/precious state.db.new-$$");
        let daemon = site.spawn(guessed(&site, &script, &site.serve(&[]))).ready();
        is_untouched(&site);
        let mut backup = site.program();
        backup.args(["backup", "-t", "state.db", "copy.db"]);
        let script = format!("{plant} victim/precious copy.db.new-$$");
        let output = guessed(&site, &script, &backup).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        is_untouched(&site);
        assert!(fs::symlink_metadata(site.path("copy.db")).unwrap().is_file());
        daemon.stop();
    }
}

/// The file that tells a fetcher's command what changed takes the place of a link, and of a pipe.
#[test]
fn in_place_of_what_a_fetcher_s_command_is_told() {
    root!();
    for plant in [Plant::Symlink, Plant::HardLink, Plant::Pipe, Plant::File] {
        for name in [".state.db.notes.changed", ".state.db.notes.changed.new"] {
            let site = open_site(0o1777);
            fs::create_dir(site.path("notes")).unwrap();
            plant.put(&site, &site.path(name));
            let config = "[[fetcher]]\nname = 'notes'\ncommand = ['echo', 'key value']\n\
                 on_change = { paths = ['notes'], debounce = '10ms' }\n";
            fs::write(site.path("config.toml"), config).unwrap();
            let daemon = site.start_with(&["--config", "config.toml"]);
            site.wait_count(1);
            daemon.stop();
            is_untouched(&site);
        }
    }
}

/// The logs of jobs: a job whose log cannot be had runs without one, and the worker's log says why.
#[test]
fn in_place_of_a_job_s_log() {
    root!();
    for plant in ALL {
        let site = open_site(0o1777);
        let _daemon = site.start();
        site.write("f.1.txt", "key value\n");
        let options = ["--once", "--log-dir", "logs"];
        let run = || {
            let mut work = site.program();
            work.args(["work", "-t"]).arg(site.socket()).args(options).args(["--", "echo", "said"]);
            let output = work.output().unwrap();
            (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        assert_eq!(run().0, Some(0));
        let day = fs::read_dir(site.path("logs")).unwrap().next().unwrap().unwrap().path();
        fs::remove_file(day.join("key.log")).unwrap();
        plant.put(&site, &day.join("key.log"));
        site.write("f.2.txt", "key value\n");
        let (code, said) = run();
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains(plant.word()), "{plant:?}: {said}");
        is_untouched(&site);
        if plant == Plant::Symlink {
            fs::remove_dir_all(&day).unwrap();
            symlink(site.path("victim"), &day).unwrap();
            site.write("f.3.txt", "key value\n");
            let said = run().1;
            assert!(said.contains(plant.word()), "{said}");
            assert_eq!(fs::read_dir(site.path("victim")).unwrap().count(), 1);
        }
    }
}

/// The files of an on-change: its lock is refused, its status takes the place of what is there.
#[test]
fn in_place_of_an_on_change_s_files() {
    root!();
    let command = |site: &Site| {
        let mut command = site.program();
        command.env("XDG_RUNTIME_DIR", site.path("run"));
        command.args(["on-change", "--name", "n", "input", "--", "true"]);
        command
    };
    let make = || {
        let site = open_site(0o1777);
        fs::create_dir_all(site.path("run/shiftboss")).unwrap();
        site
    };
    for plant in ALL {
        let site = make();
        plant.put(&site, &site.path("run/shiftboss/n.lock"));
        let output = command(&site).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(73), "{said}");
        assert!(said.contains(plant.word()), "{plant:?}: {said}");
        is_untouched(&site);
    }
    for name in ["n.status", "n.status.new", "n.changed", "n.changed.new"] {
        let site = make();
        Plant::Symlink.put(&site, &site.path("run/shiftboss").join(name));
        let watch = site.spawn(command(&site));
        wait_until("it reports", || {
            let status = fs::symlink_metadata(site.path("run/shiftboss/n.status"));
            status.is_ok_and(|status| status.is_file())
        });
        drop(watch);
        is_untouched(&site);
    }
}
