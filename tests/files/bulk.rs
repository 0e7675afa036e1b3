//! Very many files at once.

use std::time::{Duration, Instant};

use crate::common::Site;

const FILES: usize = 20_000;

/// Very many files, complete and growing, that are there at start: each becomes a run with its
/// row, and requests are answered meanwhile.
#[test]
fn very_many_files_at_once() {
    let site = Site::new();
    for i in 0..FILES {
        let end = if i % 4 == 0 { ".part" } else { "" };
        site.write(format!("f{i}.1.txt{end}"), format!("key{i} 0 {i}\n"));
    }
    let daemon = site.start();
    let mut loaded = 0;
    let mut slowest = Duration::ZERO;
    crate::common::wait_within(Duration::from_secs(90), "all files are loaded", || {
        let start = Instant::now();
        assert!(site.ask("DONE nobody 0").ends_with('\n'));
        slowest = slowest.max(start.elapsed());
        loaded = site.number("SELECT count(*) FROM queue");
        loaded == FILES as i64
    });
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    let complete = "SELECT sum(is_complete) FROM fetcher_runs";
    site.wait_sql(complete, &[&(FILES - FILES / 4).to_string()]);
    site.append("f0.1.txt.part", "zulu 0 1\n");
    site.wait_count(FILES + 1);
    assert!(daemon.memory_kib("VmHWM:") < 400 * 1024);
    daemon.stop();
}

/// The same number of files made while the daemon runs.
#[test]
fn very_many_files_made_while_running() {
    let site = Site::new();
    let _daemon = site.start();
    for i in 0..FILES / 4 {
        site.write(format!("f{i}.1.txt"), format!("key{i} 0 {i}\n"));
    }
    site.wait_sql("SELECT sum(is_complete) FROM fetcher_runs", &[&(FILES / 4).to_string()]);
    site.wait_count(FILES / 4);
    for i in 0..FILES / 4 {
        site.remove(format!("f{i}.1.txt"));
    }
    site.wait_sql("SELECT count(*) FROM fetcher_runs", &["0"]);
}
