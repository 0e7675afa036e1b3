//! `simulate`: from lists alone, and from a queue, which it leaves as it is.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::common::said::{failure, json as object, said, told};
use crate::common::{Client, Site, job_of};

#[test]
fn lists_alone() {
    let site = Site::new();
    site.write("pages.1.txt", "old\n");
    let keys: String = (0..10).map(|at| format!("https://h.example/{at} now\n")).collect();
    site.write("pages.2.txt", keys);
    let lists = ["input/pages.1.txt", "input/pages.2.txt"];
    let asked = [&["simulate", "--duration", "3s", "--workers", "4,2"], &lists[..]].concat();
    let text = said(&site, &asked);
    let words: Vec<_> = text.lines().map(|it| it.split_whitespace().collect::<Vec<_>>()).collect();
    assert_eq!(words[1], ["2", "15s", "2400", "100%", "0%", "+25%", "pages", "15s"], "{text}");
    assert_eq!(words[2], ["4", "9s", "4000", "83%", "0%", "+50%", "pages", "9s"], "{text}");
    assert!(text.ends_with("\nOne more worker helps with 2, 4.\n"), "{text}");
    let part = object(&site, &[&asked[..], &["--for", "7s"]].concat());
    assert_eq!((&part["runs"][0]["jobs"], &part["runs"][0]["left"]), (&json!(4), &json!(6)));
    // Ten starts of one host, five seconds from each to the next.
    fs::write(site.path("c.toml"), "[[group]]\nname = 'host'\nby = 'host'\ndelay = '5s'\n")
        .unwrap();
    let (_, text, why) = told(&site.run(&[&asked[..], &["--config", "c.toml"]].concat()));
    assert_eq!(why, "");
    let ends =
        "One more worker hardly helps with 2, 4: there tasks wait for limits, not for workers.\n";
    assert!(text.contains(" 48s ") && text.ends_with(ends), "{text}");
    for wrong in [&["simulate", "input/pages.1.txt"][..], &["simulate", "--workers", "0"]] {
        assert_eq!(failure(&site.run(wrong)).0, 64);
    }
    site.write("names", "alpha\n");
    let (code, why) = failure(&site.run(&["simulate", "--duration", "3s", "input/names"]));
    assert!(code == 64 && why.contains("FETCHER.NUMBER.txt"), "{why}");
    site.write("web.1.txt", " faulty\nalpha 1\n");
    let (code, _, why) = told(&site.run(&["simulate", "--duration", "3s", "input/web.1.txt"]));
    let left_out = "simulated without groups and retries: ";
    assert!(code == 0 && why.contains("1 faulty line left out"), "{why}");
    assert_eq!(why.contains(left_out), !Path::new("/etc/shiftboss.toml").exists(), "{why}");
}

#[test]
fn a_queue() {
    let site = crate::views::site();
    let next = said(&site, &["tasks", "--next"]);
    let (code, why) = failure(&site.run(&["simulate"]));
    assert!(code == 64 && why.contains("--duration"), "{why}");
    let all = object(&site, &["simulate", "--duration", "3s", "--workers", "1"]);
    assert_eq!((&all["runs"][0]["took_ms"], &all["runs"][0]["left"]), (&json!(12_000), &json!(0)));
    // The key of both lists ran longest ago: after its first job the others come first.
    let cycle = |name, tasks, seconds| json!({"fetcher": name, "tasks": tasks, "ran": tasks, "cycle_seconds": seconds});
    assert_eq!(all["runs"][0]["fetchers"], json!([cycle("f", 3, 9), cycle("g", 1, 12)]));
    assert_eq!(said(&site, &["tasks", "--next"]), next);
    let _daemon = site.start();
    let mut worker = Client::opted_in(&site, "HELLO 2 builder 600");
    let (attempt, _) = job_of(&worker.ask("READY"));
    assert_eq!(worker.ask(&format!("DONE {attempt} 1")), "OK\n");
    let measured = || object(&site, &["simulate", "--seed", "7"])["runs"].clone();
    let runs = measured();
    assert_eq!((&runs[0]["jobs"], &runs[0]["failures"]), (&json!(4), &json!(4)));
    assert_eq!(runs, measured());
}
