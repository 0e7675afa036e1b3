//! The verbs that look, and what all verbs refuse.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::common::Site;
use super::{command, done, json, refused, shown, spool, with};

/// A spool is made, and made again, without harm; other directories are refused.
#[test]
fn init() {
    let site = Site::bare();
    for _ in 0..2 {
        assert_eq!(done(&site, &["init", "s", "q", "odd \\x0aname"]), "");
    }
    assert!(site.path("s/odd \nname/.checkout").is_dir());
    fs::create_dir(site.path("other")).unwrap();
    fs::write(site.path("other/file"), "").unwrap();
    refused(&site, &["init", "other", "q"], 73, "has other files in it (file)");
    for words in [&["list", "other"][..], &["list", "nowhere", "q"], &["take", "other", "q"]] {
        refused(&site, words, 78, "");
    }
    assert_eq!(spool(&site, &["list", "s"]).0, 0);
}

/// Each verb reports what is wrong with its arguments, and does nothing.
#[test]
fn wrong_arguments() {
    let site = with(&["a"]);
    let wrong = "|dance s|init s|init s .hidden|put s|put s q/r|put s q --name .dot|put s q --name a\\|put s q --lines --name b|\
        take s q --wait soon|list s --checkouts|show s q|move s q a|rm s q|run s q|run s q -n 0 -- true|\
        run s q --timeout 0s -- true|list s --every 0s|monitor s --max-age 1h|monitor s --max-age q=soon|fsck s --older-than x";
    let spaced =
        [&["take", "s", ""][..], &["run", "s", "q", "--", "env", "bash", "-ec", "wc {data}"]];
    let wrong = wrong.split('|').map(|line| line.split_whitespace().collect::<Vec<_>>());
    for words in wrong.chain(spaced.map(<[_]>::to_vec)) {
        refused(&site, &words, 64, " ");
    }
    assert_eq!(done(&site, &["list", "s", "q"]), "a\n");
}

/// A typing error does not make a new queue: the error names the one that was probably meant.
#[test]
fn no_such_queue() {
    let site = Site::bare();
    done(&site, &["init", "s", "tasks", "done"]);
    let wrong: [&[&str]; 6] = [
        &["put", "s", "taks"],
        &["put", "s", "taks", "--lines"],
        &["list", "s", "taks"],
        &["take", "s", "taks"],
        &["move", "s", "done", "a", "taks"],
        &["run", "--once", "s", "taks", "--", "true"],
    ];
    for words in wrong {
        let told = "there is no queue taks in s: `shiftspool init s taks` makes it; \
            did you mean \"tasks\"?";
        refused(&site, words, 65, told);
    }
    assert_eq!(json(&site, &["list", "--json", "s"])["queues"].as_array().unwrap().len(), 2);
    let (code, _, stderr) = spool(&site, &["list", "s", "elsewhere"]);
    assert!(code == 65 && !stderr.contains("mean"), "{stderr}");
}

#[test]
fn no_such_entry() {
    let site = with(&[]);
    refused(&site, &["show", "s", "q", "a"], 65, "there is no entry a in q");
    assert_eq!(done(&site, &["list", "s", "q"]), "");
    assert_eq!(done(&site, &["list", "--checkouts", "s", "q"]), "Nothing is checked out.\n");
    assert!(!site.path("s/no such queue").exists());
}

/// Names of any bytes are shown in a form that can be typed again.
#[test]
fn strange_names() {
    let names = ["-n", "a b", "\\x1b[2J", "\\xff\\x5c", "日本", "$(id)", "*", "x=y"];
    let site = with(&[]);
    done(&site, &["init", "s", "odd\\x0aqueue"]);
    for name in names {
        let name = format!("--name={name}");
        assert_eq!(spool(&site, &["put", "s", "q", &name]).0, 0, "{name}");
    }
    assert!(site.path("s/q/\u{1b}[2J").exists());
    let listed = super::listed(&site, "q");
    let mut expected = names.map(str::to_owned);
    expected.sort_by_key(|name| name.replace("\\x1b", "\u{1b}").replace("\\xff", "\u{10ffff}"));
    assert_eq!(listed, expected);
    for name in names {
        assert_eq!(shown(&site, name)["name"], name);
        done(&site, &["move", "s", "q", "--", name, "odd\\x0aqueue"]);
        done(&site, &["rm", "s", "odd\\x0aqueue", "--", name]);
    }
    super::assert_whole(&site);
}

/// An entry is shown with its metadata and where its data is, for people and as JSON.
#[test]
fn show() {
    let site = with(&["a"]);
    let text = done(&site, &["show", "s", "q", "a"]);
    assert!(text.starts_with("name            a\nqueue           q\n"), "{text}");
    assert!(text.contains("checked out by  nobody\n"), "{text}");
    let shown = shown(&site, "a");
    assert_eq!((&shown["state"], &shown["metadata"]), (&"available".into(), &"m".into()));
    assert_eq!((&shown["attempts"], &shown["data"]["bytes"]), (&0.into(), &4.into()));
    let read = |field: &str| fs::read_to_string(shown[field].as_str().unwrap()).unwrap();
    assert_eq!((&*read("metadata_path"), &*read("data_path")), ("m", "data"));
    // What is no text is in the file.
    fs::write(site.path("s/q/a"), b"\xff").unwrap();
    assert!(super::shown(&site, "a")["metadata"].is_null());
    assert!(done(&site, &["show", "s", "q", "a"]).contains("(no text)"));
}

/// Lengths of the queues, with taken entries counted separately.
#[test]
fn lengths() {
    let site = with(&["a", "b", "c"]);
    done(&site, &["init", "s", "r"]);
    done(&site, &["take", "s", "q"]);
    done(&site, &["move", "s", "q", "c", "r"]);
    let expected = "Queue  available  checked out\nq      1          1\nr      1          0\n";
    assert_eq!(done(&site, &["list", "s"]), expected);
    let lengths = json(&site, &["list", "--json", "s"]);
    assert_eq!(lengths["queues"][0]["checked_out"], 1);
    assert!(lengths["time"].as_u64().unwrap() > 1_700_000_000);
    let empty = Site::bare();
    done(&empty, &["init", "s", "q"]);
    let expected = "Queue  available  checked out\nq      0          0\n";
    assert_eq!(done(&empty, &["list", "s"]), expected);
}

/// On a terminal a list is drawn anew at each look, from the upper left corner, over nothing.
#[test]
fn a_list_on_a_terminal() {
    const REDRAW: &str = "\u{1b}[H\u{1b}[2J";
    let site = with(&["a", "b"]);
    let (given, mut shown) = super::common::terminal::terminal();
    let mut watch = command(&site, &["list", "--every", "10ms", "s"]);
    let mut watch = watch.stdout(given).spawn().unwrap();
    let mut text = String::new();
    // More output always comes: the list is redrawn all the time, whether it has changed or not.
    let mut wait = |last: &str| loop {
        let mut bytes = [0; 1024];
        let length = std::io::Read::read(&mut shown, &mut bytes).unwrap();
        text.push_str(&String::from_utf8_lossy(&bytes[..length]));
        let screens: Vec<&str> = text.split(REDRAW).collect();
        assert_eq!(screens[0], "");
        // The last one may be incomplete.
        let whole = &screens[1..screens.len() - 1];
        if whole.len() > 2 && whole[whole.len() - 2..].iter().all(|screen| screen.contains(last)) {
            return whole.last().unwrap().to_string();
        }
    };
    let table =
        |available| format!("Queue  available  checked out\r\nq      {available}          0\r\n");
    assert_eq!(wait("q      2 "), table(2));
    done(&site, &["rm", "s", "q", "a"]);
    assert_eq!(wait("q      1 "), table(1));
    watch.kill().unwrap();
    watch.wait().unwrap();
}

/// The table is printed when it changes; JSON at each look. It ends with its reader.
#[test]
fn a_list_again_and_again() {
    let site = with(&["a"]);
    for json in [false, true] {
        let mut watch = command(&site, &["list", "--every", "10ms", "s"]);
        if json {
            watch.arg("--json");
        }
        let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
        let mut wait = |text: &str| while !lines.next().unwrap().unwrap().contains(text) {};
        wait(if json { "\"available\":1" } else { "q      1 " });
        done(&site, &["put", "s", "q", "--name", "b"]);
        wait(if json { "\"available\":2" } else { "q      2 " });
        drop(lines);
        done(&site, &["rm", "s", "q", "b"]);
        assert_eq!(watch.wait().unwrap().code(), Some(0));
    }
}
