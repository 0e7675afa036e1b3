//! Fetchers that the daemon runs itself, and the configuration file they are in: black box, with real
//! commands, trees, signals and kills.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::common::{Daemon, Site, wait_equal, wait_until};
use rustix::process::{Pid, Signal, test_kill_process};

/// A site with a configuration file in it.
struct Scene {
    site: Site,
}

impl Scene {
    fn new(fetchers: &str) -> Self {
        let scene = Self { site: Site::bare() };
        scene.configure(fetchers);
        scene
    }

    /// Writes the file; paths in it are relative to its directory.
    fn configure(&self, fetchers: &str) {
        let database = self.site.target();
        let database = if self.site.server().is_some() { database } else { "state.db".into() };
        let text = format!(
            "database = '{}'\ninput_dir = 'input'\nsocket = 'socket'\n{fetchers}",
            database.display()
        );
        fs::write(self.site.path("shiftboss.toml"), text).unwrap();
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = self.site.program();
        // Paths come from the file, not from where it is started.
        command.current_dir("/").arg("serve");
        command.arg("--config").arg(self.site.path("shiftboss.toml")).args(options);
        command
    }

    fn start(&self) -> Daemon {
        self.site.spawn(self.command(&[])).ready()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.site.path(name)).unwrap_or_default()
    }

    fn lines(&self, name: &str) -> usize {
        self.read(name).lines().count()
    }

    /// Waits until these, "key payload", are the tasks.
    fn wait_tasks(&self, tasks: &[&str]) {
        let query = "SELECT attr_path || ' ' || payload FROM queue ORDER BY attr_path";
        self.site.wait_sql(query, tasks);
    }

    /// The process that a command has written down.
    fn pid(&self, name: &str) -> Pid {
        let pid = || self.read(name).trim().parse().ok().and_then(Pid::from_raw);
        wait_until(name, || pid().is_some());
        pid().unwrap()
    }

    /// What `status --json` says of the fetchers.
    fn status(&self) -> serde_json::Value {
        self.site.status()["managed_fetchers"].clone()
    }
}

fn wait_gone(pid: Pid) {
    wait_until("the process is gone", || test_kill_process(pid).is_err());
}

fn reload(daemon: &Daemon, said: &str) {
    let before = daemon.log().matches(said).count();
    daemon.signal(Signal::HUP);
    wait_until(said, || daemon.log().matches(said).count() > before);
}

/// Where the list of the fetcher `links` is until it is whole.
const DRAFT: &str = "input/.links.fetch.part";

const READ_AGAIN: &str = "was read again";

/// A list is fetched at the start and by the clock, and is in the queue; the command runs where the file is,
/// with its environment, and what it says is in the log.
#[test]
fn a_fetcher_runs_by_the_clock() {
    let scene = Scene::new(
        "[[fetcher]]\nname = 'links'\ncommand = ['./list', 'a b']\nevery = '1s'\nenvironment = { WORD = 'x y' }\n",
    );
    let script = "#!/bin/sh\necho run >> runs\necho \"listing $1\" >&2\necho alpha \"$WORD\"\necho bravo 2\n";
    fs::write(scene.site.path("list"), script).unwrap();
    rustix::fs::chmod(scene.site.path("list"), 0o755.into()).unwrap();
    let daemon = scene.start();
    scene.site.wait_count(2);
    assert_eq!(scene.site.sql("SELECT payload FROM queue WHERE attr_path = 'alpha'"), ["x y"]);
    wait_until("it has run three times", || scene.lines("runs") >= 3);
    let lists = || {
        fs::read_dir(scene.site.input())
            .unwrap()
            .flatten()
            .filter(|file| file.path().extension().is_some_and(|extension| extension == "txt"))
            .count()
    };
    wait_equal("its newest list is there alone", &1, lists);
    let log = daemon.stop();
    let said = log.lines().find(|line| line.contains("listing a b")).unwrap();
    assert!(said.contains("links"), "{said}");
}

/// The daemon raises its own limit on open files; its fetchers have the one that it was started with.
#[test]
fn a_fetcher_has_the_inherited_limit() {
    let scene = Scene::new(
        "[[fetcher]]\nname = 'f'\ncommand = ['sh', '-c', 'ulimit -Sn > seen; echo a 1']\nevery = '1h'\n",
    );
    let serve = scene.command(&[]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -Sn 200; exec \"$@\"", "sh"]).arg(serve.get_program());
    shell.args(serve.get_args()).current_dir("/");
    let daemon = scene.site.spawn(shell).ready();
    wait_until("it has run", || scene.read("seen") == "200\n");
    daemon.stop();
}

/// A change in its trees has it run once more, with the changed paths at hand.
#[test]
fn a_fetcher_follows_its_trees() {
    let scene = Scene::new(
        "[[fetcher]]\nname = 'notes'\ncommand = ['sh', '-c', 'tr \"\\0\" \"\\n\" < $SHIFTBOSS_CHANGED >> changed; echo run >> runs; ls notes/*.org | sed s/$/\" 1\"/']\n\
         on_change = { paths = ['notes'], globs = ['*.org'], debounce = '50ms', cooldown = '0s' }\n",
    );
    fs::create_dir(scene.site.path("notes")).unwrap();
    fs::write(scene.site.path("notes/a.org"), "").unwrap();
    let daemon = scene.start();
    scene.wait_tasks(&["notes/a.org 1"]);
    let runs = scene.lines("runs");
    fs::write(scene.site.path("notes/b.txt"), "").unwrap();
    fs::write(scene.site.path("notes/b.org"), "").unwrap();
    scene.site.wait_count(2);
    assert_eq!(scene.lines("runs"), runs + 1);
    let changed = scene.site.path("notes/b.org");
    assert_eq!(scene.read("changed").lines().last(), changed.to_str());
    daemon.stop();
    assert!(!scene.site.path(".state.db.notes.changed").exists());
}

/// A tree that comes later than the daemon is watched then.
#[test]
fn a_tree_may_come_late() {
    let scene = Scene::new(
        "[[fetcher]]\nname = 'late'\ncommand = ['sh', '-c', 'ls late | sed s/$/\" 1\"/']\non_change = { paths = ['late'], debounce = '10ms' }\n",
    );
    let daemon = scene.start();
    wait_until("it is warned", || !daemon.warnings(&["late", "cannot watch"]).is_empty());
    fs::create_dir(scene.site.path("late")).unwrap();
    fs::write(scene.site.path("late/alpha"), "").unwrap();
    scene.wait_tasks(&["alpha 1"]);
    daemon.stop();
}

/// SIGHUP: what is the same goes on within its run, what is gone is ended, what is new begins.
#[test]
fn a_reload_touches_only_what_changed() {
    let fetcher = |name: &str, every: &str| {
        format!(
            "[[fetcher]]\nname = '{name}'\ncommand = ['sh', '-c', 'echo $$ > {name}.pid; echo run >> {name}.runs; exec sleep 600']\nevery = '{every}'\n"
        )
    };
    let scene = Scene::new(
        &[fetcher("same", "1h"), fetcher("other", "1h"), fetcher("gone", "1h")].concat(),
    );
    let daemon = scene.start();
    let [same, other, gone] = ["same.pid", "other.pid", "gone.pid"].map(|name| scene.pid(name));
    // A run that is killed before it counted itself would be missing for ever.
    wait_until("all run", || ["same.runs", "other.runs"].iter().all(|runs| scene.lines(runs) == 1));
    let new = [fetcher("same", "1h"), fetcher("other", "2h"), fetcher("new", "1h")].concat();
    scene.configure(&format!("lease = '3h'\n{new}"));
    reload(&daemon, READ_AGAIN);
    wait_gone(gone);
    wait_gone(other);
    assert!(test_kill_process(scene.pid("new.pid")).is_ok());
    wait_until("what changed runs anew", || scene.lines("other.runs") == 2);
    assert!(test_kill_process(same).is_ok());
    assert_eq!(scene.lines("same.runs"), 1);
    assert_eq!(daemon.warnings(&["lease", "restart"]).len(), 1, "{}", daemon.log());
    wait_until("what is gone is forgotten", || scene.status().as_array().unwrap().len() == 3);
    daemon.stop();
    wait_gone(same);
}

/// A faulty file is refused as a whole, with its line, and the old one stays in force.
#[test]
fn a_faulty_file_is_refused_as_a_whole() {
    let good = "[[fetcher]]\nname = 'good'\ncommand = ['sh', '-c', 'echo $$ > good.pid; exec sleep 600']\nevery = '1h'\n";
    let scene = Scene::new(good);
    let daemon = scene.start();
    let pid = scene.pid("good.pid");
    scene.configure(
        "[[fetcher]]\nname = 'x'\ncommand = ['touch', 'never']\nevery = '1h'\nwhen = 'now'\n",
    );
    reload(&daemon, "shiftboss.toml:8: there is no key \"when\"");
    fs::remove_file(scene.site.path("shiftboss.toml")).unwrap();
    reload(&daemon, "cannot read the configuration file");
    scene.configure(good);
    reload(&daemon, READ_AGAIN);
    assert!(test_kill_process(pid).is_ok());
    assert!(!scene.site.path("never").exists());
    daemon.stop();
}

/// The daemon is killed or stopped within a run whose command ignores TERM: nothing of it is left, its list is thrown away, and
/// one run follows the restart. What ran well is not run again by another one.
#[test]
fn an_end_within_a_run_leaves_it_to_the_next_start() {
    let script = "echo run >> runs; if test -e ready; then echo alpha 1; exit; fi; trap '' TERM; sleep 600 & echo $! > child.pid; echo $$ > own.pid; echo half 1; while :; do wait; sleep 1; done";
    for is_clean in [true, false] {
        let scene = Scene::new(&format!(
            "[[fetcher]]\nname = 'links'\ncommand = ['sh', '-c', \"{script}\"]\nevery = '1h'\n"
        ));
        let daemon = scene.start();
        let pids = ["own.pid", "child.pid"].map(|name| scene.pid(name));
        wait_equal("the list has begun", &"half 1\n".to_owned(), || scene.read(DRAFT));
        if is_clean {
            daemon.stop();
            assert!(!scene.site.path(DRAFT).exists());
        } else {
            daemon.kill();
        }
        assert_eq!(scene.site.sql("SELECT count(*) FROM queue"), ["0"]);
        pids.into_iter().for_each(wait_gone);
        fs::write(scene.site.path("ready"), "").unwrap();
        let daemon = scene.start();
        scene.wait_tasks(&["alpha 1"]);
        wait_until("the run is noted", || scene.status()[0]["last_run"]["exit_code"] == 0);
        daemon.stop();
        let daemon = scene.start();
        let waits = ["due=\"in 1h", "due=\"in 59m"];
        wait_until("it waits for its time", || waits.iter().any(|due| daemon.log().contains(due)));
        daemon.stop();
        assert_eq!(scene.lines("runs"), 2);
    }
}

/// What the command line says wins over the environment, and that over the file.
#[test]
fn flags_win_over_environment_over_file() {
    let scene = Scene::new("lease = '2h'\nmax_connections = 7\n");
    let lease = |command: Command| {
        let daemon = scene.site.spawn(command).ready();
        let lease = scene.site.status()["lease_seconds"].as_i64().unwrap();
        daemon.stop();
        lease
    };
    assert_eq!(lease(scene.command(&[])), 7200);
    let mut command = scene.command(&[]);
    command.env("SHIFTBOSS_LEASE", "3h");
    assert_eq!(lease(command), 10_800);
    let mut command = scene.command(&["--lease", "4h"]);
    command.env("SHIFTBOSS_LEASE", "3h");
    assert_eq!(lease(command), 14_400);
    fs::write(scene.site.path("empty.toml"), "").unwrap();
    let mut command = scene.site.program();
    command.args(["serve", "--config", "empty.toml"]);
    let (code, said) = scene.site.refused(command);
    assert!(code == 64 && said.contains("DATABASE"), "{said}");
}

/// `check --config` says what the daemon would, and starts nothing.
#[test]
fn a_file_is_checked_without_a_start() {
    let fetcher = |more: &str| {
        format!("[[fetcher]]\nname = 'links'\ncommand = ['./list']\nevery = '12h'\n{more}")
    };
    let scene = Scene::new(&fetcher("on_change = { paths = ['notes'] }\n"));
    let check = || scene.site.run(&["check", "--config", "shiftboss.toml"]);
    let missing = check();
    let said = String::from_utf8(missing.stdout).unwrap();
    assert_eq!(missing.status.code(), Some(78), "{said}");
    assert!(
        said.contains("fault: fetcher links: cannot run ") && !said.contains("in order"),
        "{said}"
    );
    fs::write(scene.site.path("list"), "#!/bin/sh\n").unwrap();
    assert_eq!(check().status.code(), Some(78), "it may not be executed");
    fs::set_permissions(scene.site.path("list"), fs::Permissions::from_mode(0o755)).unwrap();
    let good = check();
    let said = String::from_utf8(good.stdout).unwrap();
    assert!(good.status.success(), "{said}");
    assert!(
        said.contains("links: every 12h, and on change in") && said.contains("in order"),
        "{said}"
    );
    assert_eq!(said.matches("note:").count(), 2, "{said}");
    assert!(said.contains("network.conf"), "{said}");
    scene.configure(&fetcher("user = 'root'\n"));
    let bad = check();
    let said = String::from_utf8(bad.stderr).unwrap();
    assert_eq!(bad.status.code(), Some(78), "{said}");
    assert!(said.contains("shiftboss.toml:8: there is no key \"user\""), "{said}");
    assert!(!scene.site.database().exists() && !Path::new(&scene.site.input()).exists());
    assert_eq!(scene.site.refused(scene.command(&[])).0, 78);
}

/// `check --config` finds what would keep the daemon from starting, and makes nothing.
#[test]
fn what_the_daemon_needs_is_checked() {
    let scene = Scene::new("");
    let site = &scene.site;
    fs::write(site.path("plain"), "not a database, and no directory\n").unwrap();
    let long = "s".repeat(120);
    let names = |database: &str, input: &str, socket: &str| {
        format!("database = '{database}'\ninput_dir = '{input}'\nsocket = '{socket}'\n")
    };
    let before = fs::read_dir(site.path(".")).unwrap().count();
    for (text, said) in [
        (names("gone/state.db", "input", "socket"), "/gone for the database does not exist"),
        (names("state.db", "input", "gone/socket"), "/gone for the socket does not exist"),
        (names("plain", "input", "socket"), "plain is no"),
        (names(".", "input", "socket"), "is a directory"),
        (names("state.db", "plain/input", "socket"), "plain is no directory"),
        (names("state.db", "input", &long), "the system's limit is 107"),
        (names("state.db", "input", "plain"), "is not a socket"),
        (names("both", "input", "both"), "both database and socket"),
        (names("state.db", "input", "socket") + "socket_group = 'nobodys'", "no group \"nobodys\""),
    ] {
        fs::write(site.path("shiftboss.toml"), text.clone()).unwrap();
        let checked = site.run(&["check", "--config", "shiftboss.toml"]);
        let found = String::from_utf8(checked.stdout).unwrap();
        assert!(found.contains("fault: ") && found.contains(said), "{text}{found}");
        assert_eq!(checked.status.code(), Some(78), "{found}");
    }
    assert_eq!(fs::read_dir(site.path(".")).unwrap().count(), before);
    fs::write(site.path("shiftboss.toml"), names("state.db", "a/b", "socket")).unwrap();
    let _daemon = scene.start();
    let checked = site.run(&["check", "--config", "shiftboss.toml"]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

/// What would hold up a reader, or is read before the daemon is up, harms nothing.
#[test]
fn a_reload_at_any_time_of_anything() {
    let scene = Scene::new("");
    scene.start().stop();
    // It waits for the database as it starts.
    let locked = crate::common::sql::editor(&scene.site.database()).unwrap();
    locked.execute_batch("BEGIN IMMEDIATE").unwrap();
    let daemon = scene.site.spawn(scene.command(&[]));
    wait_until("it has begun", || !scene.read(".state.db.shiftboss-daemon").is_empty());
    daemon.signal(Signal::HUP);
    drop(locked);
    let daemon = daemon.ready();
    let file = scene.site.path("shiftboss.toml");
    fs::remove_file(&file).unwrap();
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &file, kind, 0o600.into(), 0).unwrap();
    reload(&daemon, "is no file");
    assert_eq!(scene.site.ask("READY"), "NOJOBS\n");
    daemon.stop();
}

/// Who watches what the daemon itself writes would run for ever: that is refused, and may be left out.
#[test]
fn the_daemons_own_files_are_not_watched() {
    let fetcher = |more: &str| {
        format!(
            "[[fetcher]]\nname = 'all'\ncommand = ['echo', 'alpha', '1']\non_change = {{ paths = ['.'], debounce = '10ms', cooldown = '0s'{more} }}\n"
        )
    };
    let scene = Scene::new(&fetcher(""));
    let (code, said) = scene.site.refused(scene.command(&[]));
    assert!(
        code == 78
            && said.contains("run for ever")
            && said.contains(
                "\"/.socket.*\", \"/.state.db.*\", \"/input\", \"/socket*\", \"/state.db*\""
            ),
        "{said}"
    );
    let check = scene.site.run(&["check", "--config", "shiftboss.toml"]);
    assert_eq!(check.status.code(), Some(78));
    scene.configure(&fetcher(", globs = ['*.org']"));
    assert!(scene.site.run(&["check", "--config", "shiftboss.toml"]).status.success());
    scene.configure(&fetcher(
        ", ignore = ['/input', '/state.db*', '/.state.db.*', '/socket*', '/.socket.*', '/stderr*']",
    ));
    let daemon = scene.start();
    scene.wait_tasks(&["alpha 1"]);
    wait_until("the first run is over", || daemon.log().contains("The run ended well"));
    fs::write(scene.site.path("changed"), "").unwrap();
    wait_until("one more follows", || daemon.log().matches("The run ended well").count() == 2);
    let log = daemon.log();
    assert_eq!(log.matches("A run starts").count(), 2, "{log}");
    // Another input directory is in force after a restart only: the old one is still written to.
    let text = fs::read_to_string(scene.site.path("shiftboss.toml")).unwrap();
    let moved = text.replace("'input'", "'elsewhere'").replace("'/input'", "'/elsewhere'");
    fs::write(scene.site.path("shiftboss.toml"), moved).unwrap();
    reload(&daemon, "run for ever");
    daemon.stop();
}

/// What changed before a run that failed is told to the one that is tried after it.
#[test]
fn a_failed_run_loses_no_change() {
    let script = r#"echo "$(xargs -0 < $SHIFTBOSS_CHANGED) $SHIFTBOSS_CHANGED_WHOLE" >> told; test ! -e broken || exit 1; echo alpha 1"#;
    let scene = Scene::new(&format!(
        "[[fetcher]]\nname = 'notes'\ncommand = ['sh', '-c', '''{script}''']\nrerun_on_failure = true\n\
         on_change = {{ paths = ['notes'], debounce = '10ms', cooldown = '0s' }}\n"
    ));
    fs::create_dir(scene.site.path("notes")).unwrap();
    let daemon = scene.start();
    wait_equal("it is told of anything", &" 0\n".to_owned(), || scene.read("told"));
    wait_until("that run is over", || daemon.log().contains("The run ended well"));
    fs::write(scene.site.path("broken"), "").unwrap();
    fs::write(scene.site.path("notes/a"), "").unwrap();
    let note = format!("{} 1", scene.site.path("notes/a").display());
    wait_until("it has failed twice", || daemon.log().matches("The run failed").count() == 2);
    fs::remove_file(scene.site.path("broken")).unwrap();
    wait_until("it is mended", || daemon.log().matches("The run ended well").count() == 2);
    let told = scene.read("told");
    assert_eq!(
        told.lines().skip(1).filter(|line| *line == note).count(),
        told.lines().count() - 1,
        "{told}"
    );
    daemon.stop();
}

/// A daemon without a file forgets what another one with a file ran.
#[test]
fn without_a_file_nothing_is_remembered() {
    let scene = Scene::new(
        "[[fetcher]]\nname = 'links'\ncommand = ['sh', '-c', 'echo $$ > own.pid; exec sleep 600']\nevery = '1h'\n",
    );
    let daemon = scene.start();
    scene.pid("own.pid");
    wait_until("it is noted", || scene.status()[0]["state"] == "running");
    daemon.kill();
    let daemon = scene.site.start();
    wait_equal("it is forgotten", &serde_json::json!([]), || scene.status());
    daemon.stop();
}

/// Between two runs a list may be fetched by hand.
#[test]
fn a_list_may_be_fetched_by_hand() {
    let scene =
        Scene::new("[[fetcher]]\nname = 'links'\ncommand = ['echo', 'alpha', '1']\nevery = '1h'\n");
    let daemon = scene.start();
    wait_until("it has run", || daemon.log().contains("The run ended well"));
    let by_hand = scene.site.run(&["fetch", "input", "links", "--", "echo", "bravo", "2"]);
    assert!(by_hand.status.success(), "{}", String::from_utf8_lossy(&by_hand.stderr));
    scene.wait_tasks(&["bravo 2"]);
    daemon.stop();
}

/// An operator has a fetcher run now; a name that nobody has is told with the nearest one.
#[test]
fn a_fetcher_runs_when_an_operator_says_so() {
    let scene = Scene::new(
        "[[fetcher]]\nname = 'links'\ncommand = ['sh', '-c', 'echo run >> runs; echo alpha 1']\nevery = '1h'\n",
    );
    let daemon = scene.start();
    let ended = || daemon.log().matches("The run ended well").count();
    wait_equal("it has run", &1, ended);
    let run = |name: &str| {
        let output = scene.site.run(&["run-fetcher", name]);
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    assert_eq!(run("links"), (Some(0), "A run of links starts.\n".to_owned()));
    wait_equal("it has run again", &2, ended);
    assert_eq!(scene.lines("runs"), 2);
    let (code, said) = run("link");
    assert!(code == Some(65) && said.contains("did you mean \"links\"?"), "{said}");
}

/// A daemon with fetchers in a unit without a network says so, once; one without fetchers, or outside a unit,
/// does not.
#[test]
fn a_unit_without_a_network_is_told() {
    let fetcher = "[[fetcher]]\nname = 'links'\ncommand = ['echo', 'alpha', '1']\nevery = '1h'\n";
    for (fetchers, in_unit, warnings) in [(fetcher, true, 1), (fetcher, false, 0), ("", true, 0)] {
        let scene = Scene::new(fetchers);
        let plain = scene.command(&[]);
        let mut command = Command::new("unshare");
        command
            .arg("-n")
            .arg(plain.get_program())
            .args(plain.get_args())
            .env_remove("INVOCATION_ID");
        if in_unit {
            command.env("INVOCATION_ID", "0123456789abcdef0123456789abcdef");
        }
        let daemon = scene.site.spawn(command).ready();
        let log = daemon.stop();
        assert_eq!(log.matches("network.conf").count(), warnings, "{log}");
    }
}

/// Many runs leave no descriptor and no process behind.
#[test]
fn runs_leave_nothing_behind() {
    let scene = Scene::new(
        "[[fetcher]]\nname = 'notes'\ncommand = ['sh', '-c', 'echo run >> runs; sleep 600 & echo $! >> sleepers; echo alpha 1']\n\
         on_change = { paths = ['notes'], debounce = '1ms', cooldown = '0s' }\n",
    );
    fs::create_dir(scene.site.path("notes")).unwrap();
    let daemon = scene.start();
    let descriptors = || {
        let open = fs::read_dir(format!("/proc/{}/fd", daemon.pid().as_raw_nonzero())).unwrap();
        open.count()
    };
    // The guardian, and nobody else, when no run is on.
    let children = || {
        let task = format!("/proc/{0}/task/{0}/children", daemon.pid().as_raw_nonzero());
        fs::read_to_string(task).unwrap().split_whitespace().count()
    };
    wait_until("it runs at the start", || scene.lines("runs") == 1);
    let run = |count: usize| {
        // What changes in run after run would be taken for the command's own doing.
        let ended = || daemon.log().matches("The run ended well").count();
        wait_until("no run is on", || ended() == scene.lines("runs"));
        fs::write(scene.site.path("notes/a"), count.to_string()).unwrap();
        wait_until("a run follows", || scene.lines("runs") > count);
    };
    run(1);
    wait_until("the first runs are over", || children() == 1);
    let before = descriptors();
    (0..40).for_each(|_| run(scene.lines("runs")));
    wait_equal("no process is left", &1, children);
    wait_until("no descriptor is left", || descriptors() <= before);
    let sleepers = scene.read("sleepers");
    let sleepers = sleepers.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
    assert_eq!(sleepers.map(wait_gone).count(), scene.lines("runs"));
    daemon.stop();
}
