//! `shiftboss on-change` as a user runs it, over real trees: each fault of the reference (spec
//! on-change 2), editors' habits, storms, and kills.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;

use crate::common::left::wait_ended;
use crate::common::wait::pause_before_second_signal;
use crate::common::{Daemon, Site, wait_equal, wait_until};
use rustix::process::{Resource, Rlimit, Signal, prlimit};

/// Short times, so that tests are.
const QUICK: [&str; 4] = ["--debounce", "100ms", "--cooldown", "100ms"];

/// A tree, and what its runs have left: each a line in `runs`, its changed paths in `changed`.
struct Scene {
    site: Site,
}

impl Scene {
    fn new() -> Self {
        let site = Site::bare();
        fs::create_dir(site.path("runtime")).unwrap();
        fs::create_dir(site.path("tree")).unwrap();
        Self { site }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.site.path(name)
    }

    fn write(&self, name: &str) {
        fs::write(self.path(name), "x").unwrap();
    }

    fn make(&self, name: &str) {
        fs::create_dir_all(self.path(name)).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// `shiftboss on-change`.
    fn program(&self) -> Command {
        let mut program = self.site.program();
        program.env("XDG_RUNTIME_DIR", self.path("runtime")).arg("on-change");
        program
    }

    fn on_change(&self, options: &[&str], command: &[&str]) -> Command {
        let mut program = self.program();
        program.args(options).arg("tree").arg("--").args(command);
        program
    }

    /// The command `sh -c script`.
    fn shell(&self, options: &[&str], script: &str) -> Command {
        self.on_change(options, &["sh", "-c", script])
    }

    fn spawn(&self, command: Command) -> Daemon {
        self.site.spawn(command)
    }

    /// Runs `script` on change, after which a line `end` and the paths are noted.
    fn start(&self, options: &[&str], script: &str) -> Daemon {
        let noted = format!(
            "echo begin >> runs; {script}\ntr '\\0' '\\n' < $SHIFTBOSS_CHANGED > paths\ncat paths >> changed; echo end >> runs"
        );
        self.spawn(self.shell(options, &noted))
    }

    /// Notes runs, as [`Scene::start`] does, for what is named.
    fn watch(&self, options: &[&str], path: &str) -> Command {
        let mut program = self.program();
        let script =
            "tr '\\0' '\\n' < $SHIFTBOSS_CHANGED >> changed; echo begin >> runs; echo end >> runs";
        program.args(QUICK).args(options).args([path, "--", "sh", "-c", script]);
        program
    }

    /// Does something, and waits for the run that it causes.
    fn causes_a_run(&self, act: impl FnOnce()) {
        let before = self.count("end");
        act();
        wait_until("a run has ended", || {
            self.count("end") > before && self.status()["state"] == "idle"
        });
    }

    fn count(&self, word: &str) -> usize {
        self.read("runs").lines().filter(|line| *line == word).count()
    }

    /// Waits until so many runs have ended, and nothing is left to be served.
    fn wait_idle(&self, runs: usize) {
        wait_until("the runs have ended", || self.count("end") >= runs);
        wait_equal("it is idle", &"idle".to_owned(), || {
            self.status()["state"].as_str().unwrap_or("").to_owned()
        });
        assert_eq!((self.count("begin"), self.count("end")), (runs, runs));
    }

    fn status(&self) -> serde_json::Value {
        let output = self.program().args(["--status", "--json"]).output().unwrap();
        let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        all["on_change"][0].clone()
    }

    /// Changed paths of all runs, sorted.
    fn changed(&self) -> Vec<String> {
        let mut paths: Vec<String> = self.read("changed").lines().map(str::to_owned).collect();
        paths.sort();
        paths
    }
}

/// Fault 1: the exit code is kept, told, and `--once` leaves with it.
#[test]
fn exit_codes_are_seen() {
    let scene = Scene::new();
    let daemon = scene.spawn(scene.shell(&QUICK, "exit 7"));
    wait_equal("the code is kept", &7.into(), || scene.status()["last_run"]["exit_code"].clone());
    wait_until("it is idle", || scene.status()["state"] == "idle");
    let status = scene.program().arg("--status").output().unwrap();
    let text = String::from_utf8(status.stdout).unwrap();
    assert!(
        text.contains("idle") && text.contains("7 (the command ended with exit code 7)"),
        "{text}"
    );
    assert!(daemon.stop().contains("exit_code=7"));
    let once = ["--once", "--timeout", "10s"];
    for (command, code) in
        [(&["sh", "-c", "exit 5"][..], 5), (&["true"], 0), (&["sleep", "1000"], 124)]
    {
        let once = if code == 124 { &["--once", "--timeout", "100ms"] } else { &once };
        assert_eq!(scene.site.refused(scene.on_change(once, command)).0, code, "{command:?}");
    }
}

/// Faults 2, 3 and 6, and editors' habits: what is removed, renamed, put into new directories; what
/// only looks like a name that counts.
#[test]
fn editors_are_understood() {
    let scene = Scene::new();
    scene.make("tree/.git");
    scene.write("tree/old.org");
    let options = ["--glob", "*.org", "--debounce", "100ms", "--cooldown", "100ms"];
    let _daemon = scene.start(&options, "");
    scene.wait_idle(1);
    for name in [
        "a.org~",
        "a.org.bak",
        ".#a.org",
        "#a.org#",
        ".a.org.swp",
        "4913",
        ".git/index.org",
        "a.org.tmp",
    ] {
        scene.write(&format!("tree/{name}"));
    }
    // A save: written beside, renamed over; twice.
    for _ in 0..2 {
        scene.write("tree/a.org.tmp");
        scene.rename("tree/a.org.tmp", "tree/a.org");
    }
    scene.wait_idle(2);
    assert_eq!(scene.changed(), ["tree/a.org"]);
    fs::remove_file(scene.path("tree/old.org")).unwrap();
    scene.rename("tree/a.org", "tree/b.org");
    scene.make("tree/new/deep");
    scene.write("tree/new/deep/c.org");
    scene.wait_idle(3);
    let last = scene.read("paths");
    assert_eq!(
        last.lines().collect::<Vec<_>>(),
        ["tree/a.org", "tree/b.org", "tree/new/deep/c.org", "tree/old.org"]
    );
    scene.write("tree/new/deep/c.org");
    scene.wait_idle(4);
    assert_eq!(scene.read("paths"), "tree/new/deep/c.org\n");
}

/// Fault 8: a name is had once; the second one says whose it is.
#[test]
fn a_name_runs_once() {
    let scene = Scene::new();
    let daemon = scene.start(&QUICK, "");
    scene.wait_idle(1);
    let (code, log) = scene.site.refused(scene.shell(&QUICK, "true"));
    assert_eq!(code, 75);
    assert!(
        log.contains(&format!("pid {}", daemon.pid().as_raw_nonzero())) && log.contains("--name"),
        "{log}"
    );
    assert_eq!(scene.site.refused(scene.shell(&["--once", "--name", "other"], "true")).0, 0);
    daemon.stop();
    assert_eq!(scene.site.refused(scene.shell(&["--once"], "true")).0, 0, "the name is free again");
}

/// Fault 8: a command that writes into its own tree is found out by name, and does not run for ever.
#[test]
fn a_command_may_rewrite_its_input() {
    let scene = Scene::new();
    let daemon = scene.start(&["--debounce", "20ms", "--cooldown", "20ms"], "echo x >> tree/own");
    wait_until("it is found out", || {
        !daemon.warnings(&["three runs in a row", "tree/own"]).is_empty()
    });
    scene.wait_idle(4);
    scene.write("tree/other");
    scene.wait_idle(5);
    assert_eq!(scene.read("paths"), "tree/other\n");
}

/// Fault 9: paths are arguments of their own, whatever is in them, cut off where there is no room.
#[test]
fn paths_are_arguments() {
    let scene = Scene::new();
    let script = "printf '%s\\0' \"$@\" > arguments; echo begin >> runs; cp $SHIFTBOSS_CHANGED all; echo end >> runs";
    let command = ["sh", "-c", script, "sh", "first", "{paths}", "last"];
    let _daemon = scene.spawn(scene.on_change(&QUICK, &command));
    scene.wait_idle(1);
    assert_eq!(scene.read("arguments"), "first\0last\0");
    for name in ["tree/-rf", "tree/a b\nc", "tree/$(x)"] {
        scene.write(name);
    }
    scene.wait_idle(2);
    assert_eq!(scene.read("arguments"), "first\0tree/$(x)\0tree/-rf\0tree/a b\nc\0last\0");
    // More than any system takes, so none of them is lost in the file.
    let directory = format!("tree/{}", "d".repeat(200));
    scene.make(&directory);
    for number in 0..40_000 {
        fs::File::create(scene.path(&format!("{directory}/{number}"))).unwrap();
    }
    wait_until("all are served", || scene.status()["state"] == "idle" && scene.count("end") > 2);
    assert!(scene.read("arguments").ends_with("\0last\0"));
    assert!(scene.read("all").len() > 1_000_000 || scene.count("end") > 3);
}

/// Fault 10: the kernel has no watches left, in a user name space that has few.
#[test]
fn without_watches_it_polls() {
    let limits = "echo 3 > /proc/sys/user/max_inotify_watches && exec \"$@\"";
    let available =
        Command::new("unshare").args(["-Ur", "sh", "-c", limits, "sh", "true"]).status();
    let available = available.is_ok_and(|status| status.success());
    assert!(available, "this test needs `unshare` and user name spaces");
    let scene = Scene::new();
    scene.make("tree/a/b/c/d");
    let on_change = scene.shell(&QUICK, "echo begin >> runs; echo end >> runs");
    let mut program = Command::new("unshare");
    program.args(["-Ur", "sh", "-c", limits, "sh"]).arg(on_change.get_program());
    program.args(on_change.get_args()).current_dir(scene.path("."));
    program.env("XDG_RUNTIME_DIR", scene.path("runtime"));
    let daemon = scene.spawn(program);
    wait_until("the first run has ended", || scene.count("end") == 1);
    assert_eq!(daemon.warnings(&["fs.inotify.max_user_watches"]).len(), 1, "{}", daemon.log());
    scene.write("tree/a/b/c/d/f");
    wait_until("the change is found", || scene.count("end") == 2);
}

/// A signal while a run is on ends its group and says so; while none is on it is a clean end.
#[test]
fn signals_end_it() {
    let scene = Scene::new();
    let daemon = scene.start(&QUICK, "");
    scene.wait_idle(1);
    daemon.stop();
    let script = "sleep 1000 & echo $! > child; wait";
    let mut daemon = scene.start(&QUICK, script);
    wait_until("the run is on", || scene.read("child").ends_with('\n'));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.exit().code(), Some(143));
    wait_ended(scene.read("child").trim());
    // What ignores the first signal is killed by the second.
    fs::remove_file(scene.path("child")).unwrap();
    let mut daemon =
        scene.start(&QUICK, "trap '' TERM; echo $$ > child; while :; do sleep 0.1; done");
    wait_until("the run is on", || scene.read("child").ends_with('\n'));
    daemon.signal(Signal::INT);
    wait_until("it is stopping", || daemon.log().contains("Stopping"));
    daemon.signal(Signal::INT);
    pause_before_second_signal();
    assert!(daemon.is_running(), "{}", daemon.log());
    daemon.signal(Signal::INT);
    assert_eq!(daemon.exit().code(), Some(130));
    wait_ended(scene.read("child").trim());
}

/// `kill -9` during a run: nothing of the run is left, and the restart is followed by one run.
#[test]
fn a_kill_leaves_no_orphan() {
    let scene = Scene::new();
    let script = "sh -c 'echo $$ > child; sleep 1000' & wait";
    let daemon = scene.spawn(scene.shell(&QUICK, script));
    wait_until("the run is on", || scene.read("child").ends_with('\n'));
    daemon.kill();
    wait_ended(scene.read("child").trim());
    let status = scene.status();
    assert_eq!((status["pid"].is_null(), status["state"].as_str()), (true, Some("running")));
    let output = scene.program().arg("--status").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("not running; it was killed"));
    assert_eq!(output.status.code(), Some(69));
    let _daemon = scene.start(&QUICK, "");
    scene.wait_idle(1);
    assert_eq!(scene.status()["runs"], 1);
}

/// A root that goes away and comes back is watched again, and counts as changed.
#[test]
fn a_root_comes_back() {
    let scene = Scene::new();
    let daemon = scene.start(&QUICK, "");
    scene.wait_idle(1);
    scene.rename("tree", "elsewhere");
    wait_until("it is missed", || !daemon.warnings(&["is gone"]).is_empty());
    scene.make("tree");
    scene.wait_idle(2);
    scene.write("tree/f");
    scene.wait_idle(3);
    assert_eq!(scene.changed(), ["tree/f"]);
    let (code, log) = scene.site.refused({
        let mut program = scene.on_change(&["--name", "other"], &["true"]);
        program.current_dir(scene.path("runtime"));
        program
    });
    assert_eq!(code, 78, "{log}");
    assert!(log.contains("cannot watch tree"), "{log}");
}

/// One command on two trees is two on-changes with a name each; what runs is shown with what it watches, and
/// that nothing runs is told.
#[test]
fn names_differ_by_tree() {
    let scene = Scene::new();
    scene.make("other");
    let status = || {
        let output = scene.program().arg("--status").output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let nobody = scene.program().args(["--status", "--name", "nobody"]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(69));
    let (code, text) = status();
    assert!(code == Some(69) && text.contains("no on-change of this user runs"), "{text}");
    let start = |tree: &str| {
        let mut program = scene.program();
        program.args([tree, "--", "sh", "-c", "echo >> runs"]);
        scene.spawn(program)
    };
    let (one, two) = (start("tree"), start("other"));
    wait_until("both have run", || scene.read("runs").lines().count() == 2);
    wait_until("both are shown", || status().1.matches("Name            sh-").count() == 2);
    let (code, text) = status();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("/tree\n") && text.contains("/other\n"), "{text}");
    one.kill();
    fs::remove_dir(scene.path("tree")).unwrap();
    assert!(status().1.contains("/tree (gone)\n"), "{}", status().1);
    two.stop();
}

/// What COMMAND writes on its two outputs is on ours.
#[test]
fn outputs_are_kept_apart() {
    let scene = Scene::new();
    let mut command = scene.shell(&["--once"], "echo out; echo err >&2; printf end");
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
    assert_eq!(out.unwrap(), "out\nend");
    let err = err.unwrap();
    assert!(err.contains(": err\n") && !err.contains("out\n"), "{err}");
}

/// A file is watched where it is: an editor that puts a new one in its place changes it, its neighbours and
/// what lies below do not.
#[test]
fn a_file_is_watched() {
    let scene = Scene::new();
    scene.make("tree/below");
    scene.write("tree/a [1].tmp");
    let program = scene.watch(&[], "tree/a [1].tmp");
    let _daemon = scene.spawn(program);
    scene.wait_idle(1);
    for name in ["tree/b", "tree/below/a [1].tmp", "tree/a 1.tmp", "tree/below/c"] {
        scene.write(name);
    }
    scene.write("new");
    scene.rename("new", "tree/a [1].tmp");
    scene.wait_idle(2);
    assert_eq!(scene.changed(), ["tree/a [1].tmp"]);
    scene.write("tree/a [1].tmp");
    scene.wait_idle(3);
}

/// A tree within a repository is under that one's rules.
#[test]
fn a_repositorys_ignore_file_counts() {
    let scene = Scene::new();
    scene.make(".git");
    fs::write(scene.path(".gitignore"), "*.o\n").unwrap();
    let _daemon = scene.start(&[&QUICK[..], &["--gitignore"]].concat(), "");
    scene.wait_idle(1);
    scene.write("tree/a.o");
    scene.write("tree/a.c");
    scene.wait_idle(2);
    assert_eq!(scene.changed(), ["tree/a.c"]);
}

/// On a terminal it says what it waits for; elsewhere it does not.
#[test]
fn on_a_terminal_it_says_what_it_waits_for() {
    use std::io::Read;
    let scene = Scene::new();
    let (given, mut shown) = crate::common::terminal::terminal();
    let options = ["--debounce", "1s", "--max-wait", "1m", "--cooldown", "1s"];
    let mut command = scene.shell(&options, "true");
    let mut child = command.stderr(given).spawn().unwrap();
    // The terminal's end is held by the command that was spawned, too.
    drop(command);
    let mut text = String::new();
    let mut wait_shown = |words: &str| {
        while !text.contains(words) {
            let mut bytes = [0; 1024];
            let length = shown.read(&mut bytes).unwrap();
            assert!(length > 0, "{words} is not in {text}");
            text.push_str(&String::from_utf8_lossy(&bytes[..length]));
        }
    };
    wait_shown("(--cooldown): changes are kept in mind.");
    wait_shown("Waiting for a change.");
    scene.write("tree/a");
    wait_shown("running once nothing has changed for 1s, after 1m at the latest.");
    child.kill().unwrap();
    child.wait().unwrap();
    let daemon = scene.spawn(scene.shell(&QUICK, "true"));
    // Not what the killed one left.
    wait_until("it is idle", || {
        let status = scene.status();
        status["state"] == "idle" && status["pid"] == daemon.pid().as_raw_nonzero().get()
    });
    assert!(!daemon.stop().contains("Waiting for a change"));
}

/// What a link leads to is watched, wherever it is on the way; when the link is switched that is a change, and what it leads
/// to then is watched.
#[test]
fn a_link_is_switched() {
    for watched in ["current", "current/deep"] {
        let scene = Scene::new();
        ["release/1/deep", "release/2/deep"].iter().for_each(|name| scene.make(name));
        symlink("release/1", scene.path("current")).unwrap();
        let _running = scene.spawn(scene.watch(&[], watched));
        scene.wait_idle(1);
        scene.causes_a_run(|| scene.write("release/1/deep/file"));
        symlink("release/2", scene.path("next")).unwrap();
        scene.causes_a_run(|| scene.rename("next", "current"));
        scene.causes_a_run(|| scene.write("release/2/deep/file"));
        // As `ln -sfn` does it: for an instant there is none.
        scene.causes_a_run(|| {
            fs::remove_file(scene.path("current")).unwrap();
            symlink("release/1", scene.path("current")).unwrap();
        });
        scene.causes_a_run(|| scene.write("release/1/deep/file"));
    }
}

/// Kubernetes puts files into a new directory, and switches the link `..data` to it: that is a change of a file that is
/// reached through it, and of the directory, whatever the globs say.
#[test]
fn kubernetes_switches_its_data() {
    for (watched, options) in [("tree/a.conf", &[][..]), ("tree", &["--glob", "*.conf"])] {
        let scene = Scene::new();
        for version in ["tree/..1", "tree/..2"] {
            scene.make(version);
            scene.write(&format!("{version}/a.conf"));
        }
        symlink("..1", scene.path("tree/..data")).unwrap();
        symlink("..data/a.conf", scene.path("tree/a.conf")).unwrap();
        let _running = scene.spawn(scene.watch(options, watched));
        scene.wait_idle(1);
        scene.causes_a_run(|| {
            symlink("..2", scene.path("tree/..data_tmp")).unwrap();
            scene.rename("tree/..data_tmp", "tree/..data");
        });
        scene.causes_a_run(|| scene.write("tree/..2/a.conf"));
    }
}

/// A file that is reached through links is watched where it is.
#[test]
fn a_file_behind_links_is_watched() {
    let scene = Scene::new();
    scene.make("elsewhere");
    scene.write("elsewhere/real");
    symlink("../elsewhere/real", scene.path("tree/link")).unwrap();
    let _running = scene.spawn(scene.watch(&[], "tree/link"));
    scene.wait_idle(1);
    scene.write("elsewhere/other");
    scene.causes_a_run(|| scene.write("elsewhere/real"));
    scene.write("elsewhere/new");
    scene.causes_a_run(|| scene.rename("elsewhere/new", "elsewhere/real"));
    assert_eq!(scene.changed(), ["tree/link", "tree/link"]);
}

/// A directory that may not be read at first is watched as soon as it may be.
#[test]
fn a_directory_becomes_readable() {
    let scene = Scene::new();
    scene.make("tree/sub/deep");
    let rights = |mode| {
        fs::set_permissions(scene.path("tree/sub"), PermissionsExt::from_mode(mode)).unwrap();
    };
    let mut command = scene.site.unprivileged(scene.watch(&[], "tree"));
    command.env("XDG_RUNTIME_DIR", scene.path("runtime"));
    rights(0o000);
    let running = scene.spawn(command);
    wait_until("a run has ended", || scene.count("end") == 1);
    assert!(running.log().contains("cannot be watched"), "{}", running.log());
    scene.write("tree/sub/deep/unseen");
    rights(0o755);
    wait_until("what is there is seen", || {
        scene.changed() == ["tree/sub/deep", "tree/sub/deep/unseen"]
    });
    scene.write("tree/sub/deep/file");
    wait_until("what comes is seen", || scene.changed().len() == 3);
}

/// Files that a cleaner removes are made again at once: runs go on, and the name stays taken.
#[test]
fn a_cleaner_removes_its_files() {
    let scene = Scene::new();
    let name = ["--name", "n"];
    let running = scene.spawn(scene.watch(&name, "tree"));
    scene.wait_idle(1);
    for gone in ["runtime/shiftboss", "runtime/shiftboss/n.lock", "runtime/shiftboss/n.status"] {
        let gone = scene.path(gone);
        // Of a directory it may be made again while it is removed.
        wait_until("it is removed", || match gone.is_dir() {
            true => fs::remove_dir_all(&gone).is_ok(),
            false => fs::remove_file(&gone).is_ok(),
        });
        wait_until("it is made again", || gone.exists() && scene.status()["pid"].is_number());
        assert_eq!(scene.site.refused(scene.shell(&name, "true")).0, 75);
    }
    scene.causes_a_run(|| scene.write("tree/file"));
    running.stop();
}

/// A status that was removed and cannot be made again, for lack of room, keeps nobody from ending it.
#[test]
fn a_status_that_cannot_be_made_again() {
    let scene = Scene::new();
    let running = scene.spawn(scene.watch(&["--name", "n"], "tree"));
    scene.wait_idle(1);
    let no_byte = Rlimit { current: Some(0), maximum: Some(0) };
    prlimit(Some(running.pid()), Resource::Fsize, no_byte).unwrap();
    fs::remove_file(scene.path("runtime/shiftboss/n.status")).unwrap();
    running.stop();
}

/// A run whose program is being replaced has not failed: it is tried again without being asked to.
#[test]
fn a_command_that_does_not_start_is_tried_again() {
    let scene = Scene::new();
    let program = scene.path("program");
    fs::write(&program, "#!/bin/sh\necho begin >> runs; echo end >> runs\n").unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let running = scene.spawn(scene.on_change(&QUICK, &["./program"]));
    scene.wait_idle(1);
    scene.rename("program", "old");
    scene.write("tree/file");
    wait_until("it is said", || running.log().contains("The command was not started"));
    scene.causes_a_run(|| scene.rename("old", "program"));
}
