//! Prometheus itself reads what the page serves.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use crate::common::{Client, Site, attempt_of, wait_within};
use crate::web;

/// It looks once a second, and begins within five.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a query of it finds: the values of all series.
fn query(address: &str, query: &str) -> Vec<String> {
    let answer = web::get(address, &format!("/api/v1/query?query={query}"));
    let Ok(answer) = serde_json::from_str::<serde_json::Value>(&answer) else { return Vec::new() };
    let series = answer["data"]["result"].as_array().cloned().unwrap_or_default();
    series.iter().filter_map(|series| Some(series["value"][1].as_str()?.to_owned())).collect()
}

/// It takes all families, with their types; counters and histograms are what was done.
#[test]
#[ignore = "needs Prometheus: make test-prometheus"]
fn it_reads_the_metrics() {
    let (site, _daemon) = Site::serving("alpha 1\nbravo 2\n", &[]);
    let mut worker = Client::opted_in(&site, "HELLO 2 w");
    for _ in 0..2 {
        let attempt = attempt_of(&worker.ask("READY"));
        assert_eq!(worker.ask(&format!("DONE {attempt} 0")), "OK\n");
    }
    let page = web::start(&site, &[]);
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let configuration = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n  - job_name: shiftboss\n    static_configs: [{{targets: ['{}']}}]\n",
        page.address
    );
    std::fs::write(site.path("prometheus.yml"), configuration).unwrap();
    let mut command = Command::new("prometheus");
    command
        .arg(format!("--config.file={}", site.path("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", site.path("tsdb").display()))
        .arg(format!("--web.listen-address={address}"));
    let prometheus = site.spawn(command);
    let jobs = "shiftboss_jobs_total%7Boutcome=%22success%22%7D";
    wait_within(PATIENCE, "it has read the jobs", || query(&address, jobs) == ["2"]);
    assert_eq!(query(&address, "up%7Bjob=%22shiftboss%22%7D"), ["1"]);
    assert_eq!(query(&address, "shiftboss_job_duration_seconds_count"), ["2"]);
    assert_eq!(
        query(&address, "shiftboss_job_duration_seconds_bucket%7Ble=%22%2BInf%22%7D"),
        ["2"]
    );
    let metadata = web::get(&address, "/api/v1/metadata?metric=shiftboss_revisit_interval_seconds");
    assert!(
        metadata.contains("\"type\":\"histogram\"") && metadata.contains("\"unit\":\"seconds\""),
        "{metadata}"
    );
    let said = prometheus.log();
    assert!(!said.contains("level=warn") && !said.contains("level=error"), "{said}");
}
