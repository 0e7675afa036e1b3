//! `shiftboss fetch` as a user runs it: what is in the directory while it runs and after, and how it
//! ends.

use std::fs;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::left::wait_ended;
use crate::common::{Client, Site, wait_equal, wait_until};
use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::process::{Pid, Signal, kill_process};

/// A command that goes on until it is ended, after its first line.
const ENDLESS: &str = "echo a 1; sleep 1000";

/// The file that a list is in until it is whole.
const DRAFT: &str = ".f.fetch.part";

/// `fetch OPTIONS INPUT f -- sh -c SCRIPT`.
fn fetch(site: &Site, options: &[&str], script: &str) -> std::process::Command {
    let mut command = site.program();
    command.arg("fetch").args(options).arg(site.input()).args(["f", "--", "sh", "-c", script]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(site: &Site, options: &[&str], script: &str) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = fetch(site, options, script).output().unwrap();
    assert!(stdout.is_empty());
    (status.code(), String::from_utf8(stderr).unwrap())
}

/// Names and texts of the lists, by name; the lock file apart.
fn lists(site: &Site) -> Vec<(String, String)> {
    let names = fs::read_dir(site.input()).unwrap().map(|e| e.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    let read = |name: String| fs::read_to_string(site.file(&name)).map(|text| (name, text));
    names.into_iter().filter_map(|name| read(name).ok()).collect()
}

/// The one list there is.
fn only_list(site: &Site) -> (String, String) {
    let lists = lists(site);
    assert_eq!(lists.len(), 1, "{lists:?}");
    lists.into_iter().next().unwrap()
}

fn stamp_of(name: &str) -> i64 {
    name.split('.').nth(1).unwrap().parse().unwrap()
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// The list that is being written, whether or not the daemon reads it.
fn growing(site: &Site) -> Option<String> {
    let live = || lists(site).into_iter().find(|(name, _)| name.ends_with(".part"));
    fs::read_to_string(site.file(DRAFT)).ok().or_else(|| live().map(|(_, text)| text))
}

/// Waits until the growing list has `text`.
fn wait_part(site: &Site, text: &str) {
    wait_equal("the list grows", &Some(text.to_owned()), || growing(site));
}

/// Waits until the process that wrote its id to `file` is there, and returns it.
fn process_in(site: &Site, file: &str) -> i32 {
    let mut pid = None;
    wait_until("the command says its id", || {
        let text = fs::read_to_string(site.path(file)).unwrap_or_default();
        pid = text.strip_suffix('\n').and_then(|text| text.parse().ok());
        pid.is_some()
    });
    pid.unwrap()
}

/// A good list takes the place of the older ones; other lists are no matter.
#[test]
fn a_good_list_takes_its_place() {
    let site = Site::new();
    site.write("f.1.txt", "a 1\nb 2\n");
    site.write("f.5.txt", "a 1\nb 2\n");
    site.write("g.1.txt", "a 1\n");
    let before = now();
    let (code, log) = run(&site, &[], "echo a 3; printf 'b 4'; echo careful >&2");
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("f: careful\n"), "{log}");
    assert!(log.contains("lines=2"), "{log}");
    let lists = lists(&site);
    assert_eq!(lists[1], ("g.1.txt".to_owned(), "a 1\n".to_owned()));
    assert_eq!(lists.len(), 2);
    assert_eq!(lists[0].1, "a 3\nb 4");
    assert!((before..=now()).contains(&stamp_of(&lists[0].0)));
    // Again, within the same second: the number is larger all the same.
    assert_eq!(run(&site, &[], "echo a 5; echo b 6").0, Some(0));
    let next = self::lists(&site).remove(0);
    assert!(stamp_of(&next.0) > stamp_of(&lists[0].0));
}

/// Whatever goes wrong, the old list stays, and the exit code is 69.
#[test]
fn a_bad_list_keeps_the_old_one() {
    let site = Site::new();
    let old = ("f.7.txt".to_owned(), "a 1\nb 2\nc 3\nd 4\nfaulty\n".to_owned());
    site.write(&old.0, &old.1);
    let good = "echo a 1; echo b 2; echo c 3; echo d 4";
    let cases: [(&[&str], &str, &str); 9] = [
        (&[], "echo a 1; echo b 2; exit 3", "ended with exit code 3"),
        (&[], "echo a 1; echo b 2; kill -KILL $$", "ended by signal 9"),
        (&["--timeout", "100ms"], "echo a 1; echo b 2; sleep 1000", "did not end within 100ms"),
        (
            &["--timeout", "100ms", "--grace", "100ms"],
            "trap '' TERM; echo a 1; echo b 2; sleep 1000; sleep 1000",
            "did not end within 100ms",
        ),
        (&[], "exit 0", "no good line"),
        (&["--min-lines", "0", "--min-share", "0"], "echo word", "no good line (1 faulty ones)"),
        (&["--min-lines", "5"], good, "5 are asked for (min-lines)"),
        (&[], "echo a 1; echo word; echo word", "less than the share 0.5 (min-share) of the 4"),
        (&["--min-share", "1"], "echo a 1; echo b 2; echo c 3", "of the 4 in f.7.txt"),
    ];
    for (options, script, why) in cases {
        let (code, log) = run(&site, options, script);
        assert_eq!(code, Some(69), "{script}: {log}");
        assert!(log.contains(why), "{script}: {log}");
        assert_eq!(only_list(&site), old, "{script}");
    }
    // Half of the last one's good lines are enough, and with no share any.
    assert_eq!(run(&site, &[], "echo a 1; echo b 2").0, Some(0));
    assert_eq!(run(&site, &["--min-share", "0"], "echo a 1").0, Some(0));
    assert_eq!(only_list(&site).1, "a 1\n");
}

/// A program that cannot be run is told as such, by one exit code of all that run commands.
#[test]
fn a_missing_program() {
    let site = Site::new();
    let cases: [&[&str]; 5] = [
        &["fetch", "input", "f"],
        &["fetch", "--every", "1h", "input", "f"],
        &["work", "-t", "socket"],
        &["on-change", "."],
        &["on-change", "--once", "."],
    ];
    for case in cases {
        let output = site.run(&[case, &["--", "/nowhere/list"]].concat());
        let log = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(78), "{case:?} {log}");
        assert!(log.contains("cannot run /nowhere/list: there is no such program"), "{log}");
    }
    assert_eq!(lists(&site), []);
}

/// Faulty lines are told, with their numbers, and left to the daemon.
#[test]
fn faulty_lines_are_told() {
    let site = Site::new();
    let (code, log) = run(&site, &[], "echo a 1; echo word; echo; echo b 2");
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("line=2 reason=no space after the key"), "{log}");
    assert!(log.contains("line=3 reason=the line is empty"), "{log}");
    assert!(log.contains("lines=2 faulty=2"), "{log}");
    assert_eq!(only_list(&site).1, "a 1\nword\n\nb 2\n");
    // So many that nobody wants to read each.
    let script = "i=0; while [ $i -lt 1000 ]; do echo word; i=$((i+1)); done; echo a 1";
    let (code, log) = run(&site, &["--min-share", "0"], script);
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(log.matches("A faulty line").count(), 20);
    assert!(log.contains("lines=1 faulty=1000"), "{log}");
}

/// A list that fails has nobody do anything, not while it is written and not after: its lines are
/// nowhere but in a file that the daemon does not read, and that goes.
#[test]
fn a_list_that_fails_is_never_handed_out() {
    let (site, daemon) = Site::running(&[]);
    let mut worker = Client::connect(&site);
    let script = "echo a 1; echo b 2; until [ -e go ]; do sleep .01; done; exit 1";
    let mut child = fetch(&site, &[], script).spawn().unwrap();
    wait_part(&site, "a 1\nb 2\n");
    assert_eq!(worker.ask("READY"), "NOJOBS\n");
    fs::write(site.path("go"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(69));
    assert_eq!(worker.ask("READY"), "NOJOBS\n");
    assert_eq!(growing(&site), None);
    assert_eq!(site.sql("SELECT count(*) FROM queue"), ["0"]);
    // One that was killed leaves its file, which is nobody's task either; the next one removes it.
    let mut child = fetch(&site, &[], ENDLESS).spawn().unwrap();
    wait_part(&site, "a 1\n");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(worker.ask("READY"), "NOJOBS\n");
    let (code, log) = run(&site, &[], "echo c 3");
    assert!(code == Some(0) && log.contains("a fetch that was killed had left"), "{log}");
    assert_eq!(growing(&site), None);
    wait_until("the good list is handed out", || worker.ask("READY") == "JOB c 3\n");
    let log = daemon.stop();
    assert!(!log.contains("WARN") && !log.contains("is gone"), "{log}");
}

/// What the command writes on standard error steers no terminal, and forges no line.
#[test]
fn complaints_are_escaped() {
    let site = Site::new();
    let (code, log) = run(&site, &[], r"printf 'red \033[31m\rover\ttab\n' >&2; echo a 1");
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("f: red \\u{1b}[31m\\rover\ttab\n"), "{log}");
}

/// A lock that cannot be used is told with one hint: its own, or whether this user may write there.
#[test]
fn a_lock_that_cannot_be_used_has_one_hint() {
    let site = Site::new();
    std::os::unix::fs::symlink("/nowhere", site.file(".f.fetch.lock")).unwrap();
    let (code, log) = run(&site, &[], "echo a 1");
    assert!(code == Some(73) && log.contains("find out who put it there"), "{log}");
    assert!(!log.contains("may this user write"), "{log}");
}

/// What the kernel says happened to names in the directory so far: what, and to which.
fn events(watch: &impl AsFd) -> Vec<(ReadFlags, String)> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(watch, &mut buffer);
    let mut events = Vec::new();
    while let Ok(event) = reader.next() {
        let name = event.file_name().unwrap().to_str().unwrap();
        if !name.starts_with('.') {
            events.push((event.events(), name.to_owned()));
        }
    }
    events
}

/// The old list goes only when the new one is in place.
#[test]
fn renamed_then_removed() {
    let site = Site::new();
    site.write("f.1.txt", "a 1\n");
    site.write("f.2.txt", "a 1\n");
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    let flags = WatchFlags::CREATE | WatchFlags::MOVE | WatchFlags::DELETE;
    inotify::add_watch(&watch, site.input(), flags).unwrap();
    assert_eq!(run(&site, &["--live"], "echo a 1").0, Some(0));
    let (list, _) = only_list(&site);
    let mut events = events(&watch);
    events[3..].sort_by(|one, other| one.1.cmp(&other.1));
    let event = |what: ReadFlags, name: &str| (what, name.to_owned());
    assert_eq!(
        events,
        [
            event(ReadFlags::CREATE, &format!("{list}.part")),
            event(ReadFlags::MOVED_FROM, &format!("{list}.part")),
            event(ReadFlags::MOVED_TO, &list),
            event(ReadFlags::DELETE, "f.1.txt"),
            event(ReadFlags::DELETE, "f.2.txt"),
        ]
    );
}

/// Two fetches of one list exclude each other; those of two lists do not.
#[test]
fn one_at_a_time() {
    let site = Site::new();
    let mut first = fetch(&site, &[], ENDLESS).spawn().unwrap();
    wait_part(&site, "a 1\n");
    let (code, log) = run(&site, &[], "echo b 2");
    assert_eq!(code, Some(75), "{log}");
    assert!(log.contains("another fetch of \"f\" into "), "{log}");
    let mut other = site.program();
    other.arg("fetch").arg(site.input()).args(["g", "--", "echo", "a", "1"]);
    assert_eq!(other.output().unwrap().status.code(), Some(0));
    kill_process(pid(&first), Signal::TERM).unwrap();
    first.wait().unwrap();
    assert_eq!(run(&site, &[], "echo b 2").0, Some(0));
}

/// Told to stop, it ends its command, removes what there is, and ends as a shell tells signals.
#[test]
fn a_signal_stops_it() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let site = Site::new();
        site.write("f.1.txt", "a 1\n");
        let script = format!("sleep 1000 & echo $! > grandchild; {ENDLESS}");
        for options in [&[][..], &["--every", "1h"]] {
            let mut child = fetch(&site, options, &script).spawn().unwrap();
            wait_part(&site, "a 1\n");
            let grandchild = process_in(&site, "grandchild");
            kill_process(pid(&child), signal).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(code));
            wait_ended(grandchild);
            assert_eq!((only_list(&site).0.as_str(), growing(&site)), ("f.1.txt", None));
            fs::remove_file(site.path("grandchild")).unwrap();
        }
    }
}

/// Processes that were started with `MARK=mark`, or by such.
fn marked(mark: &str) -> Vec<String> {
    let wanted = format!("MARK={mark}");
    let is_marked = |path: &std::path::Path| {
        let environment = fs::read(path.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let line =
        |path: std::path::PathBuf| fs::read_to_string(path.join("cmdline")).unwrap_or_default();
    processes.filter(|path| is_marked(path)).map(line).collect()
}

/// Killed at any moment, from its start to its end, it leaves no process and always a whole list; the
/// next one has everything in order again.
#[test]
fn a_kill_at_any_moment() {
    let old = "a 1\nb 2\n";
    let new = "a 3\nb 4\n";
    let script = "sleep 1000 & trap '' TERM; echo a 3; (sleep 1000 & wait) & echo b 4";
    let mut random = crate::common::random::Random::seeded();
    for round in 0..60 {
        let site = Site::new();
        site.write("f.1.txt", old);
        let mark = format!("{}-{round}", std::process::id());
        let mut child = fetch(&site, &[], script).env("MARK", &mark).spawn().unwrap();
        crate::common::wait::pause(Duration::from_micros(random.below(40_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        wait_equal("all processes are gone", &Vec::new(), || marked(&mark));
        let complete = lists(&site).into_iter().filter(|(name, _)| name.ends_with(".txt"));
        let texts: Vec<String> = complete.map(|(_, text)| text).collect();
        assert!(texts.iter().all(|text| text == old || text == new), "{texts:?}");
        assert!(!texts.is_empty());
        assert_eq!(run(&site, &[], "echo a 5; echo b 6").0, Some(0));
        assert_eq!(only_list(&site).1, "a 5\nb 6\n");
    }
}

/// A list's number is above all others of its name, also of one that is from the future.
#[test]
fn numbers_grow() {
    let site = Site::new();
    let future = now() + 1_000_000;
    site.write(format!("f.{future}.txt"), "a 1\n");
    assert_eq!(run(&site, &[], "echo a 1").0, Some(0));
    assert_eq!(only_list(&site).0, format!("f.{}.txt", future + 1));
    site.write("f.9223372036854775807.txt", "a 1\n");
    let (code, log) = run(&site, &[], "echo a 1");
    assert_eq!(code, Some(65), "{log}");
    assert!(log.contains("f.9223372036854775807.txt: remove or rename it"), "{log}");
    assert_eq!(lists(&site).len(), 2);
}

/// With `--every` it goes on after a failure, and is stopped between two runs with 0.
#[test]
fn it_repeats() {
    let site = Site::new();
    let script = "echo . >> runs; [ $(wc -l < runs) != 2 ] || exit 1; echo a 1";
    let mut child = fetch(&site, &["--every", "1s"], script).spawn().unwrap();
    let runs = || fs::read_to_string(site.path("runs")).unwrap_or_default().lines().count();
    let mut stamps = Vec::new();
    wait_until("there are three lists", || {
        for (name, _) in lists(&site) {
            if name.ends_with(".txt") && !stamps.contains(&name) {
                stamps.push(name);
            }
        }
        stamps.len() == 3
    });
    assert!(runs() >= 4);
    wait_until("no run is going on", || only_or_none(&site));
    kill_process(pid(&child), Signal::TERM).unwrap();
    let output = child
        .wait()
        .map(|status| (status, std::io::read_to_string(child.stderr.take().unwrap()).unwrap()));
    let (status, log) = output.unwrap();
    assert_eq!(status.code(), Some(0), "{log}");
    assert_eq!(log.matches("ended with exit code 1").count(), 1, "{log}");
}

/// Whether there is one complete list and no growing one.
fn only_or_none(site: &Site) -> bool {
    let lists = lists(site);
    lists.len() == 1 && lists[0].0.ends_with(".txt") && growing(site).is_none()
}

/// A directory that was replaced between two runs is claimed anew.
#[test]
fn a_new_directory_is_found() {
    let site = Site::new();
    let mut child = fetch(&site, &["--every", "1s"], "echo a 1").spawn().unwrap();
    wait_until("there is a list", || only_or_none(&site));
    fs::rename(site.input(), site.path("old")).unwrap();
    fs::create_dir(site.input()).unwrap();
    wait_until("there is a list in the new directory", || only_or_none(&site));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A list is not put into a directory that nobody reads: the input directory was replaced while the command
/// ran.
#[test]
fn a_directory_that_is_replaced_meanwhile() {
    for remade in [true, false] {
        let site = Site::new();
        site.write("f.1.txt", "a 1\n");
        let remake = if remade { "mkdir input; " } else { "" };
        let (code, log) = run(&site, &[], &format!("mv input old; {remake}echo a 2"));
        assert_eq!(code, Some(69), "{log}");
        assert!(log.contains("fetch again; an older one stays, if there is one"), "{log}");
        assert_eq!(fs::read_to_string(site.path("old/f.1.txt")).unwrap(), "a 1\n");
        let names = fs::read_dir(site.path("old")).unwrap().map(|e| e.unwrap().file_name());
        let count = names.filter(|name| !name.to_string_lossy().starts_with('.')).count();
        assert_eq!(count, 1, "the new one is removed");
    }
}

/// A list that cannot be written is thrown away, and its command ended.
#[test]
fn a_list_that_is_too_large() {
    let site = Site::new();
    site.write("f.1.txt", "a 1\n");
    // Beyond the limit a write fails, as on a full disk, for the signal is ignored.
    let limited = "ulimit -f 100; exec \"$@\"";
    let fetch = fetch(&site, &["--grace", "1h"], "while :; do echo key payload; done");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", limited, "sh"]).arg(fetch.get_program()).args(fetch.get_args());
    let output = command.current_dir(site.path("")).output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(69), "{log}");
    assert!(log.contains("cannot write to"), "{log}");
    assert_eq!(only_list(&site).0, "f.1.txt");
}

/// Missing directories and bad names are told, and nothing is made.
#[test]
fn what_cannot_be_fetched_into() {
    let site = Site::bare();
    let (code, log) = run(&site, &[], "echo a 1");
    assert_eq!(code, Some(78), "{log}");
    assert!(!site.input().exists());
    let site = Site::new();
    for (name, why) in [("a.b", "has no dot"), ("", "is not empty"), ("../f", "slash")] {
        let output = site.run(&["fetch", "input", name, "--", "true"]);
        assert_eq!(output.status.code(), Some(64), "{name}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(why), "{name}");
    }
    let wrong: [&[&str]; 5] = [
        &["--every", "0s"],
        &["--every", "367days"],
        &["--timeout", "0s"],
        &["--min-share", "1.5"],
        &["--min-share", "NaN"],
    ];
    for options in wrong {
        let (code, log) = run(&site, options, "echo a 1");
        assert_eq!(code, Some(64), "{log}");
        assert!(log.contains(options[0]), "{log}");
    }
    assert_eq!(lists(&site), []);
}

/// On a terminal it shows how far it is, and takes that away at the end.
#[test]
fn progress_on_a_terminal() {
    let site = Site::new();
    let (given, mut shown) = crate::common::terminal::terminal();
    let script = "echo a 1; until [ -e one ]; do sleep .01; done; echo b 2; echo careful >&2; \
        until [ -e go ]; do sleep .01; done";
    let mut child = fetch(&site, &[], script).stderr(given).env("TERM", "xterm").spawn().unwrap();
    let mut text = String::new();
    // Reading waits for more, which comes: the time is shown anew all the time.
    while !(text.contains("f: 1 line, ")
        && text.contains("f: 2 lines, ")
        && text.contains("careful\r\n"))
    {
        let mut bytes = [0; 1024];
        let length = shown.read(&mut bytes).unwrap();
        text.push_str(&String::from_utf8_lossy(&bytes[..length]));
        if text.contains("f: 1 line, ") {
            fs::write(site.path("one"), "").unwrap();
        }
    }
    assert!(!text.contains("f: careful"), "{text}");
    fs::write(site.path("go"), "").unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    // The program was the last to hold the terminal: it has no end but an error.
    let mut bytes = Vec::new();
    let _ = shown.read_to_end(&mut bytes);
    let last = String::from_utf8_lossy(&bytes).into_owned();
    let log = last.rfind("The list is in place.").unwrap();
    assert!(!last[log..].contains("2 lines, "), "{last}");
    assert_eq!(only_list(&site).1, "a 1\nb 2\n");
}

/// Beside a daemon the lines of a live list are handed out while it grows, and those of the old one go when the
/// new one is in place.
#[test]
fn a_daemon_hands_the_lines_out() {
    let (site, daemon) = Site::running(&[]);
    let mut worker = Client::connect(&site);
    let script = "echo a 1; until [ -e go ]; do sleep .01; done; echo b 2";
    let mut child = fetch(&site, &["--live"], script).spawn().unwrap();
    wait_part(&site, "a 1\n");
    wait_until("the first line is handed out", || worker.ask("READY").trim_end() == "JOB a 1");
    fs::write(site.path("go"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    wait_until("the second line is handed out", || worker.ask("DONE a 0").trim_end() == "JOB b 2");
    assert_eq!(worker.ask("DONE b 0").trim_end(), "NOJOBS");
    assert_eq!(run(&site, &[], "echo c 3; echo d 4").0, Some(0));
    let mut keys = Vec::new();
    wait_until("the new list is handed out", || {
        keys.extend(crate::common::worker::key_of(&worker.ask("READY")));
        keys.len() == 2
    });
    keys.sort();
    assert_eq!(keys, ["c", "d"]);
    let log = daemon.stop();
    assert!(!log.contains("WARN"), "{log}");
}
