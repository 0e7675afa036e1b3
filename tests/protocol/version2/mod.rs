//! Protocol 2 over the built daemon (docs/protocol.md).

mod attempts;
mod both;
mod client;
mod operators;
mod waiting;

use crate::common::{Client, Daemon, Site};

/// A connection that has opted in.
fn opted_in(site: &Site, hello: &str) -> Client {
    let mut client = Client::connect(site);
    assert!(client.ask(hello).starts_with("HELLO 2 "), "{hello}");
    client
}

/// A daemon with jobs for these keys.
fn with_jobs(keys: &[&str], options: &[&str]) -> (Site, Daemon) {
    let site = Site::new();
    site.write("f.1.txt", keys.iter().map(|key| format!("{key} 1\n")).collect::<String>());
    let daemon = site.start_with(options);
    site.wait_count(keys.len());
    (site, daemon)
}

/// The attempt and the key of a `JOB` line.
fn job(line: &str) -> (i64, String) {
    let mut words = line.split_whitespace();
    assert_eq!(words.next(), Some("JOB"), "{line:?}");
    let attempt = words.next().unwrap().parse().unwrap();
    (attempt, words.next().unwrap().to_owned())
}
