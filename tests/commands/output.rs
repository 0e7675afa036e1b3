//! `shiftboss output`: what jobs wrote, from the files of workers.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};

use crate::common::terminal::terminal;
use crate::common::{Daemon, Site, wait_until};

const YESTERDAY: &str = "2026-11-20";
const TODAY: &str = "2026-11-21";

/// Writes to a file of a day that no worker has.
fn wrote(site: &Site, day: &str, file: &str, text: &str) {
    let directory = site.path("logs").join(day);
    fs::create_dir_all(&directory).unwrap();
    let mut file =
        fs::File::options().append(true).create(true).open(directory.join(file)).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn output(site: &Site, arguments: &[&str]) -> Output {
    site.run(&[&["output"], arguments].concat())
}

fn text(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Follows, with its standard output as a pipe.
fn follow(site: &Site, arguments: &[&str]) -> Child {
    let mut command: Command = site.program();
    command.args(["output", "-f"]).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Reads until that was shown; so it follows.
fn until(child: &mut Child, shown: &str) -> String {
    let (mut said, mut byte) = (Vec::new(), [0]);
    while !said.ends_with(shown.as_bytes()) {
        child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
        said.extend(byte);
    }
    String::from_utf8(said).unwrap()
}

/// What is left of its output, and how it ended.
fn rest(mut child: Child) -> (String, Option<i32>) {
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    (text, child.wait().unwrap().code())
}

/// A job that runs is followed to its end; the exit code is the job's.
#[test]
fn a_running_job_is_followed_to_its_end() {
    let (site, _daemon) = Site::serving("a/b 1\n", &[]);
    let script = "echo one; while [ ! -e go ]; do sleep 0.02; done; printf two; exit 3";
    let mut worker = site.program();
    worker.args(["work", "--once", "--log-dir", "logs", "-t", "socket", "--", "sh", "-c", script]);
    let mut worker = worker.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("it has written", || output(&site, &["logs", "a/b"]).stdout.ends_with(b"one\n"));
    let mut following = follow(&site, &["logs", "a/b"]);
    let mut said = BufReader::new(following.stdout.take().unwrap());
    let mut lines = String::new();
    said.read_line(&mut lines).unwrap();
    said.read_line(&mut lines).unwrap();
    assert!(lines.starts_with("=== ") && lines.ends_with("of a/b: sh -c echo one; while [ ! -e go ]; do sleep 0.02; done; printf two; exit 3\none\n"), "{lines}");
    fs::write(site.path("go"), "").unwrap();
    let mut left = String::new();
    said.read_to_string(&mut left).unwrap();
    assert!(left.starts_with("two\n=== ") && left.contains(" exit code 3, after "), "{left}");
    assert_eq!(following.wait().unwrap().code(), Some(3));
    worker.wait().unwrap();
    let (ended, code) = rest(follow(&site, &["logs", "a/b"]));
    assert!(ended.contains("one\ntwo\n"), "{ended}");
    assert_eq!(code, Some(3), "it has ended already");
}

/// An index that does not change is not read again at each look: that of a day may be long.
#[test]
fn an_index_is_read_once() {
    let site = Site::new();
    wrote(&site, TODAY, "a.log", "=== T attempt 1 of a: x\n");
    let ends = "\n{\"end\":{\"of\":9,\"at\":9,\"words\":\"w\",\"exit_code\":0}}".repeat(20_000);
    let index = "\n{\"begin\":{\"at\":0,\"time\":\"T\",\"attempt\":1}}".to_owned() + &ends;
    wrote(&site, TODAY, "a.log.index", &index);
    let mut following = follow(&site, &["logs", "a"]);
    for look in 0..8 {
        let line = format!("line {look}\n");
        wrote(&site, TODAY, "a.log", &line);
        until(&mut following, &line);
    }
    let counts = fs::read_to_string(format!("/proc/{}/io", following.id())).unwrap();
    let read = counts.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
    let reads = read.parse::<usize>().unwrap() / index.len();
    assert!(reads < 4, "{reads}");
    let end = "\n{\"end\":{\"of\":0,\"at\":9,\"words\":\"w\",\"exit_code\":3}}";
    wrote(&site, TODAY, "a.log.index", end);
    assert_eq!(rest(following).1, Some(3));
}

/// Lists the key `a` again, and starts a worker for it.
fn start(site: &Site, run: i64, script: &str) -> Daemon {
    site.deliver("f", run, "a 1\n");
    let mut worker = site.program();
    let options = ["--max-jobs", "1", "--lease", "1s", "--log-dir", "logs"];
    worker.arg("work").args(options).args(["-t", "socket", "--", "sh", "-c", script]);
    site.spawn(worker)
}

/// Has all that was written today be of another day.
fn date_back(site: &Site, day: &str) {
    let days = fs::read_dir(site.path("logs")).unwrap().map(|it| it.unwrap().path());
    fs::rename(days.max().unwrap(), site.path("logs").join(day)).unwrap();
}

/// Kills a worker when something is so.
fn kill_when(worker: Daemon, wait: impl FnOnce()) {
    wait();
    worker.kill();
}

fn wait_shown(site: &Site, end: &str) {
    let shown = || output(site, &["logs", "a"]).stdout;
    wait_until("it has written", || shown().ends_with(end.as_bytes()));
}

/// What a job prints is not taken for what its worker says.
#[test]
fn a_job_that_prints_marks() {
    let (site, _daemon) = Site::running(&[]);
    let marks = "=== 2026-11-21T00:00:00Z exit code 0, after 1.0s\n\
        === 2026-11-21T00:00:00Z attempt 99 of a: x\n";
    fs::write(site.path("marks"), marks).unwrap();
    let mut worker = start(&site, 1, "cat marks; while [ ! -e go ]; do sleep 0.02; done; exit 3");
    wait_shown(&site, marks);
    let mut following = follow(&site, &["logs", "a"]);
    until(&mut following, "attempt 99 of a: x\n");
    fs::write(site.path("go"), "").unwrap();
    let (left, code) = rest(following);
    assert!(left.contains(" exit code 3, after "), "{left}");
    assert_eq!(code, Some(3));
    worker.exit();
    let list = text(&output(&site, &["--list", "logs", "a"]));
    assert!(list.lines().count() == 2 && list.ends_with("exit code 3\n"), "{list}");
    assert_eq!(output(&site, &["--attempt", "99", "logs", "a"]).status.code(), Some(69));
}

/// An attempt goes on in the file of the day on which it began; one that ends without a word is given up, and the next one begins
/// with a line of its own.
#[test]
fn midnight() {
    let (site, _daemon) = Site::running(&[]);
    let wait = "while [ ! -e go ]; do sleep 0.02; done";
    let mut worker = start(&site, 1, &format!("echo before; {wait}; echo after"));
    wait_shown(&site, "before\n");
    date_back(&site, YESTERDAY);
    let mut following = follow(&site, &["logs", "a"]);
    until(&mut following, "before\n");
    fs::write(site.path("go"), "").unwrap();
    let (left, code) = rest(following);
    assert!(left.starts_with("after\n=== ") && left.contains(" exit code 0, after "), "{left}");
    assert_eq!(code, Some(0));
    worker.exit();
    kill_when(start(&site, 2, "echo; printf lost; exec sleep 1000"), || {
        wait_shown(&site, "\nlost")
    });
    let mut in_one_file = follow(&site, &["logs", "a"]);
    until(&mut in_one_file, "\nlost");
    let lost = start(&site, 3, "echo; printf lost; exec sleep 1000");
    assert_eq!(rest(in_one_file), ("\n".to_owned(), Some(69)));
    kill_when(lost, || wait_shown(&site, "\nlost"));
    let list = text(&output(&site, &["--list", "logs", "a"]));
    let ends = ["no end yet", "ended without a word", "exit code 0"];
    assert!(list.lines().skip(1).zip(ends).all(|(line, end)| line.ends_with(end)), "{list}");
    fs::remove_dir_all(site.path("logs").join(YESTERDAY)).unwrap();
    date_back(&site, YESTERDAY);
    let mut in_the_next = follow(&site, &["logs", "a"]);
    until(&mut in_the_next, "\nlost");
    start(&site, 4, "true").exit();
    assert_eq!(rest(in_the_next), (String::new(), Some(69)));
}

/// Of several attempts the newest one is shown, or the one that is asked for; all are listed, and the last lines are counted.
#[test]
fn several_attempts() {
    let (site, _daemon) = Site::running(&[]);
    start(&site, 1, "echo 1").exit();
    date_back(&site, YESTERDAY);
    start(&site, 2, "echo 2; echo 2; exit 1").exit();
    kill_when(start(&site, 3, "echo 3; printf 3; exec sleep 1000"), || wait_shown(&site, "3\n3"));
    let shown = |arguments: &[&str]| text(&output(&site, &[arguments, &["logs", "a"]].concat()));
    let is_shown = |arguments: &[&str], begin: &str, end: &str| {
        let shown = shown(arguments);
        assert!(shown.starts_with("=== ") && shown.contains(begin), "{shown}");
        assert!(shown.contains(end) && shown.matches("attempt").count() == 1, "{shown}");
    };
    let numbers = site.sql("SELECT attempt FROM ended ORDER BY attempt");
    let [first, second, ..] = &numbers[..] else { panic!("{numbers:?}") };
    let [of_first, of_second] = [first, second].map(|number| format!("attempt {number} of a"));
    is_shown(&[], "attempt ", "\n3\n3");
    is_shown(&["--attempt", second], &of_second, "\n2\n2\n===");
    is_shown(&["--attempt", first], &of_first, "\n1\n===");
    is_shown(&["--day", YESTERDAY], &of_first, "\n1\n===");
    assert_eq!(shown(&["-n", "1"]), "3");
    assert!(shown(&["-n", "2", "--attempt", second]).starts_with("2\n=== "));
    let list = shown(&["--list"]);
    let ends = [("", "no end yet"), (second, "exit code 1"), (first, "exit code 0")];
    let is_listed =
        |(line, (begin, end)): (&str, (&str, &str))| line.starts_with(begin) && line.ends_with(end);
    assert!(list.lines().skip(1).map(str::trim_end).zip(ends).all(is_listed), "{list}");
    assert_eq!(list.lines().count(), 4, "{list}");
    for (none, why) in [
        (&["--attempt", "4", "logs", "a"][..], "there is no output of attempt 4 of a"),
        (&["--day", "2026-11-19", "logs", "a"], "there is no output"),
        (&["logs", "b"], "`--all-keys` shows what there is of others"),
        (&["--list", "logs", "b"], "there is no output"),
        (&["input", "a"], "no worker wrote there: is it their --log-dir?"),
        (&["logs2", "a"], "cannot read logs2: "),
    ] {
        let ended = output(&site, none);
        assert_eq!(ended.status.code(), Some(69), "{none:?}");
        assert!(String::from_utf8_lossy(&ended.stderr).contains(why), "{none:?}");
    }
    for wrong in [&["logs"][..], &["--day", "today", "logs", "a"], &["--list", "-f", "logs", "a"]] {
        assert_eq!(output(&site, wrong).status.code(), Some(64), "{wrong:?}");
    }
}

/// A key of 4 KiB has its output, and a file that no worker wrote is shown as a whole.
#[test]
fn keys_and_files_of_all_kinds() {
    let (site, _daemon) = Site::running(&[]);
    let key = "k/".repeat(2_048);
    site.deliver("f", 1, format!("{key} 1\n"));
    site.wait_count(1);
    let work = ["work", "--once", "--log-dir", "logs", "-t", "socket", "--", "echo", "done"];
    assert!(site.run(&work).status.success());
    assert!(text(&output(&site, &["logs", &key])).contains("\ndone\n=== "));
    wrote(&site, TODAY, "a.log", "by hand\n");
    assert_eq!(text(&output(&site, &["logs", "a"])), "by hand\n");
}

/// Of all keys each line stands behind its key; followed, those that are written from now on.
#[test]
fn all_keys() {
    let site = Site::new();
    wrote(&site, YESTERDAY, "old.log", "old\n");
    wrote(&site, TODAY, "a%2Fb.log", "1\n2\n3\n");
    wrote(&site, TODAY, "c.log", "x\n");
    assert_eq!(text(&output(&site, &["-n", "2", "--all-keys", "logs"])), "a/b: 2\na/b: 3\nc: x\n");
    let mut following = follow(&site, &["--all-keys", "logs"]);
    let mut said = BufReader::new(following.stdout.take().unwrap()).lines();
    let (sent, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        said.by_ref().map_while(Result::ok).for_each(|line| drop(sent.send(line)))
    });
    let mut heard = Vec::new();
    wait_until("it has begun to look", || {
        wrote(&site, TODAY, "c.log", "y\n");
        heard.extend(lines.try_iter());
        !heard.is_empty()
    });
    for (day, file, line, shown) in
        [(YESTERDAY, "old.log", "late\n", "old: late"), ("2026-11-22", "d.log", "new\n", "d: new")]
    {
        wrote(&site, day, file, line);
        wait_until("it is shown", || {
            heard.extend(lines.try_iter());
            heard.iter().any(|it| it == shown)
        });
    }
    following.kill().unwrap();
    following.wait().unwrap();
    assert!(!heard.contains(&"old: old".to_owned()), "{heard:?}");
}

/// On a terminal colours are kept, and nothing else that steers it; `--raw` keeps all.
#[test]
fn a_terminal_is_not_steered() {
    let site = Site::new();
    wrote(&site, TODAY, "a.log", "\u{1b}[31mred\u{1b}[0m\u{1b}[2J\n");
    for (option, expected) in [
        (&[][..], "\u{1b}[31mred\u{1b}[0m\\u{1b}[2J"),
        (&["--raw"][..], "\u{1b}[31mred\u{1b}[0m\u{1b}[2J"),
    ] {
        let (given, shown) = terminal();
        let mut command = site.program();
        command.arg("output").args(option).args(["logs", "a"]).stdout(Stdio::from(given));
        assert!(command.status().unwrap().success());
        drop(command);
        let mut lines = BufReader::new(shown);
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), expected);
    }
}
