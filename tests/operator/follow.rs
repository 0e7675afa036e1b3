//! `log --follow`: attempts as they end, each once, whatever is started again meanwhile.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use crate::common::{Site, wait_until};
use serde_json::Value;

/// Who ships ends elsewhere.
struct Shipper {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Shipper {
    fn start(site: &Site, after: i64) -> Self {
        let mut command = site.program();
        command.args(["log", "--follow", "--json", "--after", &after.to_string()]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The next line's key, and the number of its end.
    fn next(&mut self) -> (String, i64) {
        let mut line = String::new();
        assert!(self.lines.read_line(&mut line).unwrap() > 0, "it ended");
        let ended: Value = serde_json::from_str(&line).unwrap();
        (ended["key"].as_str().unwrap().to_owned(), ended["ended"].as_i64().unwrap())
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Over kills of the daemon and of the shipper, which goes on behind the last number that it read.
#[test]
fn each_end_is_read_once() {
    let list: String = (0..30).map(|number| format!("key{number} 0 1\n")).collect();
    let (site, mut daemon) = Site::serving(&list, &[]);
    let (mut done, mut read, mut after) = (Vec::new(), Vec::new(), 0);
    let mut next = site.next_key("READY");
    for round in 0..3 {
        let mut shipper = Shipper::start(&site, after);
        for at in 0..10 {
            let key = next.unwrap();
            next = site.next_key(&format!("DONE {key} {}", at % 2));
            done.push(key);
            if at == 4 {
                daemon.kill();
                daemon = site.start();
            }
        }
        // Some are left for the next one.
        for _ in 0..(if round == 2 { 30 - read.len() } else { 7 }) {
            let (key, ended) = shipper.next();
            assert!(ended > after, "{ended} after {after}");
            after = ended;
            read.push(key);
        }
        shipper.kill();
    }
    assert_eq!(read, done);
}

/// Without a number it begins now; as text it says what a person wants to know; and what is no number, or forgotten, is told.
#[test]
fn it_begins_where_it_is_told() {
    let (site, daemon) = Site::serving("alpha 0 1\nbravo 0 2\n", &["--history", "1000"]);
    let first = site.next_key("READY").unwrap();
    let mut next = site.next_key(&format!("DONE {first} 0")).unwrap();
    assert!(site.run(&["retry", "-t", "socket", &first]).status.success());
    let mut command = site.program();
    command.args(["log", "--follow", "--failed"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
    let mut line = None;
    // Until it has looked once, it begins later.
    wait_until("it tells of the failure", || {
        let failed = next.clone();
        next = site.next_key(&format!("DONE {failed} 3")).unwrap();
        assert!(site.run(&["retry", "-t", "socket", &failed]).status.success());
        line = told.recv_timeout(Duration::from_millis(100)).ok();
        line.is_some()
    });
    let line = line.unwrap();
    assert!(
        line.contains("  bravo  failure 3  ") || line.contains("  alpha  failure 3  "),
        "{line}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    daemon.stop();
    for wrong in
        [&["--follow", "--key", "a"][..], &["--after", "1"], &["--follow", "--after", "-1"]]
    {
        let refused = site.program().arg("log").args(wrong).output().unwrap();
        assert_eq!(refused.status.code(), Some(64), "{wrong:?}");
    }
}
