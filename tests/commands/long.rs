//! What holds for each command that runs for long: nobody need read what it writes, it ends when it is asked to, signals
//! that it was to ignore stay ignored, and as the first process of a container it reaps all.

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::unread::Unread;
use crate::common::{Site, wait_until};

const CHATTY: &str = "echo >> ran; seq 50000 >&2; seq 50000; exit 1";

/// The commands that run others, each in a site of its own where it has something to run.
fn runners(script: &str, mut attend: impl FnMut(&Site, &str, Command)) {
    for arguments in [
        &["work", "-t", "socket"][..],
        &["work", "--log-dir", "logs", "-t", "socket"],
        &["fetch", "--every", "1h", "input", "list"],
        &["on-change", "tree", "--debounce", "10ms"],
    ] {
        let site = Site::new();
        let _daemon = (arguments[0] == "work").then(|| site.start());
        site.write("f.1.txt", "alpha 0 1\n");
        fs::create_dir(site.path("tree")).unwrap();
        let mut command = site.program();
        command.args(arguments).args(["--", "sh", "-c", script]);
        command.env("XDG_RUNTIME_DIR", site.path("tree"));
        attend(&site, arguments[0], command);
    }
}

/// Each command that runs for long ends when it is asked to.
#[test]
fn all_end_on_term() {
    runners(CHATTY, |site, name, command| {
        let mut unread = Unread::start(command);
        wait_until(name, || site.path("ran").exists());
        unread.stop(name);
    });
    let site = Site::new();
    let mut web = site.program();
    web.args(["web", "--listen", "unix:page", "-t", "state.db"]);
    for (command, socket) in [(site.serve(&[]), "socket"), (web, "page")] {
        let mut unread = Unread::start(command);
        wait_until(socket, || UnixStream::connect(site.path(socket)).is_ok());
        unread.stop(socket);
    }
}

/// A worker with a job that takes longer than its lease, one that prints much, and one that fails, goes on with the first
/// one, however it is started.
fn keeps_its_job<R>(start: impl FnOnce(Command) -> Unread<R>) {
    let (site, _daemon) = Site::running(&[]);
    site.write("f.1.txt", "alpha 0 1\nbravo 0 1\ncharlie 0 1\n");
    let mut work = site.program();
    work.args(["work", "-n", "3", "--lease", "2s", "-t", "socket", "--", "sh", "-c"]).arg(format!(
        "case $SHIFTBOSS_KEY in alpha) sleep 7; echo > slept;; bravo) {CHATTY};; *) exit 3;; esac"
    ));
    let mut worker = start(work);
    wait_until("the job has ended", || site.path("slept").exists());
    worker.stop("the worker");
    let expired = "SELECT count(*) FROM ended WHERE outcome = 'expired'";
    assert_eq!(site.sql(expired), ["0"]);
}

/// A job that runs is kept while nobody reads what its worker logs, and what other jobs print.
#[test]
fn heartbeats_go_on() {
    keeps_its_job(Unread::start);
}

/// The same on a terminal that is stopped (Ctrl-S), with a progress line; and the worker ends.
#[test]
fn heartbeats_go_on_behind_a_stopped_terminal() {
    keeps_its_job(Unread::start_on_terminal);
}

/// The daemon serves on; lines that do not fit are dropped and counted: in `status`, in metrics, and in the log when it is
/// read again.
#[test]
fn dropped_lines_are_counted() {
    let site = Site::new();
    let mut fetchers = String::new();
    for number in 0..4 {
        fetchers += &format!(
            "[[fetcher]]\nname = 'f{number}'\ncommand = ['sh', '-c', 'seq 20000 >&2; echo a{number} 1']\nevery = '1h'\n"
        );
    }
    fs::write(site.path("fetchers.toml"), fetchers).unwrap();
    let mut daemon = Unread::start(site.serve(&["--config", "fetchers.toml"]));
    wait_until("it listens", || UnixStream::connect(site.socket()).is_ok());
    site.wait_count(4);
    assert!(site.ask("READY").starts_with("JOB "));
    let status = site.status_of("socket");
    let dropped = status["live"]["dropped_log_lines"].as_u64().unwrap();
    assert!(dropped > 0, "{status}");
    let text = String::from_utf8(site.run(&["status", "-t", "socket"]).stdout).unwrap();
    assert!(number_behind(&text, "Log             ") >= dropped, "{text}");
    let metrics = String::from_utf8(site.run(&["metrics", "-t", "socket"]).stdout).unwrap();
    assert!(number_behind(&metrics, "shiftboss_dropped_log_lines_total ") >= dropped);
    let mut pipe = daemon.reader.try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        let mut log = Vec::new();
        pipe.read_to_end(&mut log).map(|_| String::from_utf8(log).unwrap())
    });
    daemon.stop("it ends");
    drop(daemon);
    let log = reader.join().unwrap().unwrap();
    assert!(
        number_behind(&log, "Lines of the log were dropped: nobody read it. lines=") >= dropped
    );
}

/// The number behind a text; 0 if it is not there.
fn number_behind(text: &str, before: &str) -> u64 {
    let (_, rest) = text.split_once(before).unwrap_or_default();
    let end = rest.find(|character: char| !character.is_ascii_digit());
    rest[..end.unwrap_or(rest.len())].parse().unwrap_or(0)
}

/// A signal that was ignored when the command was started (`nohup`, a shell's `&`) stays so.
#[test]
fn ignored_signals_stay_ignored() {
    let ignoring = |command: &Command| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' HUP INT; exec \"$@\"", "sh"]).arg(command.get_program());
        shell.args(command.get_args()).current_dir(command.get_current_dir().unwrap());
        let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        shell.envs(set).stdin(Stdio::null());
        shell
    };
    let check = |site: &Site, name: &str, command: Command| {
        let mut running = site.spawn(ignoring(&command));
        wait_until(name, || running.handles(Signal::TERM));
        assert!(!running.handles(Signal::HUP) && !running.handles(Signal::INT), "{name}");
        running.signal(Signal::HUP);
        running.signal(Signal::INT);
        running.signal(Signal::TERM);
        running.exit();
    };
    runners("echo >> ran; sleep 1", check);
    let (site, _daemon) = Site::running(&[]);
    let mut web = site.program();
    web.args(["web", "--listen", "unix:page", "-t", "state.db"]);
    check(&site, "web", web);
}

/// As the first process of a container (PID 1) it reaps what others leave.
#[test]
fn orphans_are_reaped() {
    let orphan = "sleep 1000 & echo >> ran";
    let attend = |site: &Site, name: &str, command: Command| {
        let mut unshare = Command::new("unshare");
        let is_root = rustix::process::geteuid().is_root();
        unshare.args((!is_root).then_some("--map-root-user"));
        unshare.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
        unshare.arg(command.get_program()).args(command.get_args());
        unshare.current_dir(site.path("")).env("XDG_RUNTIME_DIR", site.path("tree"));
        let mut running = site.spawn(unshare);
        wait_until(name, || site.path("ran").exists());
        let first = children(running.pid().as_raw_nonzero().get());
        let [(first, _)] = first[..] else { panic!("{first:?}") };
        wait_until("no zombies are left", || {
            children(first).iter().all(|(_, state)| *state != 'Z')
        });
        let first = Pid::from_raw(first).unwrap();
        kill_process(first, Signal::TERM).unwrap();
        running.exit();
    };
    runners(orphan, attend);
}

/// The children of a process, and how they are.
fn children(parent: i32) -> Vec<(i32, char)> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let child = |pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?.chars().next()?;
        (fields.next()?.parse() == Ok(parent)).then_some((pid, state))
    };
    pids.filter_map(child).collect()
}
