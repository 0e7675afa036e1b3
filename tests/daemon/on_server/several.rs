//! Two daemons of one queue.

use rustix::process::Signal;
use serde_json::Value;

use crate::common::said::{all_said, said};
use crate::common::{Client, Daemon, Site, attempt_of, wait_until};

/// Starts a second daemon, with the files of a site of its own, on the queue of another site.
fn join(site: &Site, queue: &Site, name: &str) -> Daemon {
    let mut command = site.program();
    command.arg("serve").args([queue.target(), site.input(), site.socket()]);
    command.args(["--daemon-name", name, "--takeover", "1s"]);
    site.spawn(command).ready()
}

fn status(queue: &Site) -> String {
    said(queue, &["status"])
}

/// Whether a daemon that is not the fetcher's owner rejects a file.
fn is_rejected(queue: &Site, file: &str, at: &str, owner: &str) -> bool {
    let why =
        format!("Rejected        {file} at {at}: the fetcher f belongs to the daemon {owner};");
    let shown = status(queue);
    shown
        .lines()
        .any(|line| line.starts_with(&why) && line.contains("without a list of it, for 1s"))
}

/// The fetcher of a daemon that froze is another one's, without a restart: what only the frozen one lists is gone, and
/// the other one's files are read, complete ones too. Thawed, the first one rejects its files, says so once, and writes nothing.
#[test]
fn a_fetcher_is_taken_over() {
    let (one, two) = (Site::new(), Site::new());
    let first = join(&one, &one, "first");
    one.write("f.1.txt", "alpha 1\nbravo 2\n");
    one.write("f.2.txt.part", "bravo 3\n");
    one.write("g.1.txt", "golf 4\n");
    one.wait_count(4);
    two.write("f.1.txt", "alpha 5\ncharlie 6\n");
    let second = join(&two, &one, "second");
    wait_until("the second one's is rejected", || is_rejected(&one, "f.1.txt", "second", "first"));
    first.freeze();
    wait_until("the first one is gone for a second", || {
        let server = one.server().unwrap();
        server.holds("SELECT bool_or(gone_at < extract(epoch FROM now()) - 1) FROM daemons")
    });
    one.wait_queue(&["f|1|alpha|5|0", "f|1|charlie|6|0", "g|1|golf|4|0"]);
    two.write("f.7.txt", "delta 7\n");
    one.wait_queue(&["f|1|alpha|5|0", "f|1|charlie|6|0", "f|7|delta|7|0", "g|1|golf|4|0"]);
    wait_until("nothing is rejected", || !status(&one).contains("Rejected"));
    let said = "This daemon takes over the fetcher f of the daemon first.";
    assert_eq!(second.log().matches(said).count(), 1, "{}", second.log());
    first.thaw();
    wait_until("the first one's are rejected", || {
        ["f.1.txt", "f.2.txt.part"].iter().all(|file| is_rejected(&one, file, "first", "second"))
    });
    one.append("f.2.txt.part", "echo 8\n");
    one.write("h.1.txt", "hotel 9\n");
    let listed = ["f|1|alpha|5|0", "f|1|charlie|6|0", "f|7|delta|7|0", "g|1|golf|4|0"];
    one.wait_queue(&[&listed[..], &["h|1|hotel|9|0"]].concat());
    assert_eq!(first.warnings(&["The run's file is rejected"]).len(), 2, "{}", first.log());
    assert_eq!(first.warnings(&["A storage request failed"]).len(), 0, "{}", first.log());
    first.stop();
    assert!(!status(&one).contains("Rejected"), "a daemon that is gone rejects nothing");
    second.stop();
}

/// A job at one daemon is to stop, by an order to the other one.
#[test]
fn a_job_at_another_daemon_is_cancelled() {
    let (one, two) = (Site::new(), Site::new());
    let (_first, _second) = (join(&one, &one, "first"), join(&two, &one, "second"));
    one.write("f.1.txt", "alpha 1\n");
    one.wait_count(1);
    let mut worker = Client::leased(&two, 600);
    let attempt = attempt_of(&worker.ask("READY"));
    worker.write(format!("BEAT {attempt} 600\n").as_bytes());
    said(&one, &["cancel", "--running", "-t", "socket", "alpha"]);
    assert_eq!(worker.line(), "STOP\n");
    assert_eq!(worker.ask(&format!("RELEASE {attempt}")), "OK\n");
    one.wait_sql("SELECT attr_path, outcome FROM ended", &["alpha|cancelled"]);
}

/// What `status` says of the daemons, with the database: a name, its state and its jobs, each.
fn daemons(queue: &Site) -> Vec<String> {
    let shown = |daemon: &Value| {
        assert!(daemon["since"].is_i64() && daemon["version"].is_string());
        assert!(daemon["host"].is_string() && daemon["input_dir"].is_string());
        let text = |member: &str| daemon[member].to_string().replace('"', "");
        [text("name"), text("state"), text("in_flight"), text("fetchers")].join(" ")
    };
    queue.status()["daemons"].as_array().unwrap().iter().map(shown).collect()
}

fn check(queue: &Site) -> (i32, String) {
    all_said(&queue.run(&["status", "--check"]))
}

/// The database tells which daemons run, what each has, and since when one does not, and why that is.
#[test]
fn the_daemons_are_shown() {
    let (one, two) = (Site::new(), Site::new());
    let first = join(&one, &one, "first");
    let mut second = join(&two, &one, "second");
    one.write("f.1.txt", "alpha 1\n");
    two.write("g.1.txt", "golf 2\n");
    one.wait_count(2);
    assert!(two.ask("READY").starts_with("JOB "));
    wait_until("both run", || daemons(&one) == ["first running 0 [f]", "second running 1 [g]"]);
    let text = status(&one);
    assert!(text.contains("\nDaemon          2 of 2 running\n"), "{text}");
    assert!(text.contains("\nsecond  running for ") && text.contains(" 1     g "), "{text}");
    let place = format!("pid {} on ", second.pid().as_raw_nonzero());
    assert!(text.contains(&place) && text.contains(&two.input().display().to_string()), "{text}");
    assert!(text.contains("\n(classic) at second  1 "), "{text}");
    assert_eq!(check(&one), (0, String::new()));
    let started = || one.server().unwrap().ask("SELECT started FROM daemons WHERE name = 'second'");
    let start = started();
    second.freeze();
    wait_until("it is silent", || daemons(&one)[1] == "second silent 1 [g]");
    let (code, said) = check(&one);
    assert!(code == 1 && said.contains("daemon: second has not been heard of for "), "{said}");
    wait_until("it was taken for dead", || {
        one.server().unwrap().holds("SELECT bool_or(gone = 'silent') FROM daemons")
    });
    second.thaw();
    wait_until("it is back", || daemons(&one)[1] == "second running 1 [g]");
    assert_eq!(started(), start, "the same process");
    second.signal(Signal::TERM);
    second.exit();
    assert_eq!(daemons(&one)[1], "second stopped 1 [g]");
    first.stop();
    let (code, said) = check(&one);
    assert!(code == 69 && said.contains("no daemon runs on postgres://"), "{code} {said}");
}

/// An operator's order to one daemon is noticed by the others, which say so once.
#[test]
fn a_pause_is_noticed_by_all() {
    let (one, two) = (Site::new(), Site::new());
    let first = join(&one, &one, "first");
    let _second = join(&two, &one, "second");
    one.write("f.1.txt", "alpha 1\n");
    one.wait_count(1);
    for (order, said) in
        [("pause", "The queue is paused: "), ("resume", "The queue is not paused any more.")]
    {
        assert!(two.run(&[order, "-t", "socket"]).status.success());
        assert_eq!(one.ask("READY") == "NOJOBS\n", order == "pause");
        wait_until("it is noticed", || first.log().contains(said));
    }
    assert_eq!(first.log().matches("The queue is").count(), 2, "{}", first.log());
}
