//! `shiftboss output`: what jobs wrote, from the files of workers.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};

use crate::common::terminal::terminal;
use crate::common::{Site, wait_until};

const YESTERDAY: &str = "2026-11-20";
const TODAY: &str = "2026-11-21";

fn begin(day: &str, attempt: u32, key: &str) -> String {
    format!("=== {day}T23:59:58Z attempt {attempt} of {key}: sh\n")
}

fn end(day: &str, code: u8) -> String {
    format!("=== {day}T00:00:01Z exit code {code}, after 3.0s\n")
}

/// Writes a file of a day, as a worker does.
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
    let site = Site::new();
    let _daemon = site.start();
    site.deliver("f", 1, "a/b 1\n");
    site.wait_count(1);
    let script = "echo one; while [ ! -e go ]; do sleep 0.02; done; printf two; exit 3";
    let mut worker = site.program();
    worker.args(["work", "--once", "--log-dir", "logs", "socket", "--", "sh", "-c", script]);
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

/// An attempt goes on in the file of the day on which it began; one that ends without a word is given up.
#[test]
fn midnight() {
    let site = Site::new();
    wrote(&site, YESTERDAY, "a.log", &(begin(YESTERDAY, 1, "a") + "before\n"));
    let mut following = follow(&site, &["logs", "a"]);
    assert_eq!(until(&mut following, "before\n"), begin(YESTERDAY, 1, "a") + "before\n");
    wrote(&site, YESTERDAY, "a.log", &("after\n".to_owned() + &end(TODAY, 0)));
    assert_eq!(rest(following), ("after\n".to_owned() + &end(TODAY, 0), Some(0)));
    wrote(&site, YESTERDAY, "a.log", &(begin(YESTERDAY, 2, "a") + "lost"));
    let mut in_one_file = follow(&site, &["logs", "a"]);
    until(&mut in_one_file, "lost");
    wrote(&site, YESTERDAY, "a.log", &("\n".to_owned() + &begin(YESTERDAY, 3, "a")));
    assert_eq!(rest(in_one_file), ("\n".to_owned(), Some(69)));
    let mut in_the_next = follow(&site, &["logs", "a"]);
    until(&mut in_the_next, &begin(YESTERDAY, 3, "a"));
    wrote(&site, TODAY, "a.log", &begin(TODAY, 4, "a"));
    assert_eq!(rest(in_the_next), (String::new(), Some(69)));
}

/// Of several attempts the newest one is shown, or the one that is asked for; all are listed, and the last lines are counted.
#[test]
fn several_attempts() {
    let site = Site::new();
    let first = begin(YESTERDAY, 1, "a") + "1\n" + &end(YESTERDAY, 0);
    let second = begin(TODAY, 2, "a") + "2\n2\n" + &end(TODAY, 1);
    let third = begin(TODAY, 3, "a") + "3\n3";
    wrote(&site, YESTERDAY, "a.log", &first);
    wrote(&site, TODAY, "a.log", &(second.clone() + &third));
    let shown = |arguments: &[&str]| text(&output(&site, &[arguments, &["logs", "a"]].concat()));
    assert_eq!(shown(&[]), third);
    assert_eq!(shown(&["--attempt", "2"]), second);
    assert_eq!(shown(&["--attempt", "1"]), first);
    assert_eq!(shown(&["--day", YESTERDAY]), first);
    assert_eq!(shown(&["-n", "1"]), "3");
    assert_eq!(shown(&["-n", "2", "--attempt", "2"]), "2\n".to_owned() + &end(TODAY, 1));
    let list = shown(&["--list"]);
    let listed: Vec<&str> = list.lines().skip(1).map(str::trim_end).collect();
    assert_eq!(
        listed,
        [
            "3        2026-11-21T23:59:58Z  no end yet",
            "2        2026-11-21T23:59:58Z  exit code 1",
            "1        2026-11-20T23:59:58Z  exit code 0"
        ]
    );
    for none in [
        &["--attempt", "4", "logs", "a"][..],
        &["--day", "2026-11-19", "logs", "a"],
        &["logs", "b"],
        &["--list", "logs", "b"],
        &["logs2", "a"],
    ] {
        let ended = output(&site, none);
        assert_eq!(ended.status.code(), Some(69), "{none:?}");
        assert!(String::from_utf8_lossy(&ended.stderr).contains("there is no output"), "{none:?}");
    }
    for wrong in [&["logs"][..], &["--day", "today", "logs", "a"], &["--list", "-f", "logs", "a"]] {
        assert_eq!(output(&site, wrong).status.code(), Some(64), "{wrong:?}");
    }
}

/// A key of 4 KiB has its output, and a file that no worker wrote is shown as a whole.
#[test]
fn keys_and_files_of_all_kinds() {
    let site = Site::new();
    let _daemon = site.start();
    let key = "k/".repeat(2_048);
    site.deliver("f", 1, format!("{key} 1\n"));
    site.wait_count(1);
    let work = ["work", "--once", "--log-dir", "logs", "socket", "--", "echo", "done"];
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
