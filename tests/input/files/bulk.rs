//! Very many lines and very many files at once; loss 13 of spec 4.

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
    wait("all files are loaded", || {
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
    wait("all files are loaded", || site.number("SELECT count(*) FROM queue") == FILES as i64 / 4);
    wait("all are complete", || {
        site.number("SELECT sum(is_complete) FROM fetcher_runs") == FILES as i64 / 4
    });
    for i in 0..FILES / 4 {
        site.remove(format!("f{i}.1.txt"));
    }
    wait("all is deleted", || site.number("SELECT count(*) FROM fetcher_runs") == 0);
}

/// Very many files removed at once, of many fetchers and of one, while a worker asks: it waits for
/// one step of the deletion at most, and for what the watcher does.
#[test]
fn very_many_files_removed_at_once() {
    const REMOVED: usize = 15_000;
    let site = Site::new();
    let name = |i: usize| match i % 2 {
        0 => format!("f{i}.1.txt"),
        _ => format!("f.{i}.txt"),
    };
    for i in 0..REMOVED {
        site.write(name(i), format!("key{i} 0 {i}\n"));
    }
    let _daemon = site.start();
    wait("all files are loaded", || {
        site.number("SELECT count(*) FROM queue WHERE EXISTS (SELECT 1 FROM fetcher_runs)")
            == REMOVED as i64
    });
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| slowest_answer(&site, &over));
        (0..REMOVED).for_each(|i| site.remove(name(i)));
        wait("all is deleted", || site.number("SELECT count(*) FROM fetcher_runs") == 0);
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        let slowest = worker.join().unwrap();
        // So long the stock worker waits for an answer. How fast it is, benchmarks say.
        assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    });
}

/// Loss 13: 300,000 lines at once, and then the deletion of that run: none of six workers goes
/// without an answer for the five seconds that it waits.
#[test]
fn loss_13_no_worker_waits_five_seconds() {
    let site = Site::new();
    site.write("small.1.txt", "small 0 1\n");
    let _daemon = site.start();
    site.wait_count(1);
    let lines: Vec<String> = (0..300_000).map(|i| format!("key{i} 0 {i}\n")).collect();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..6).map(|_| scope.spawn(|| slowest_answer(&site, &over))).collect();
        site.write("big.1.txt.part", lines.concat());
        site.rename("big.1.txt.part", "big.1.txt");
        // To count the rows again and again would be most of what the machine does.
        let complete = "SELECT count(*) FROM fetcher_runs WHERE is_complete = 1";
        wait("all is loaded", || site.number(complete) == 2);
        assert_eq!(site.number("SELECT count(*) FROM queue"), 300_001);
        site.remove("big.1.txt");
        wait("all is deleted", || site.number("SELECT count(*) FROM fetcher_runs") == 1);
        assert_eq!(site.number("SELECT count(*) FROM queue"), 1);
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        for worker in workers {
            let slowest = worker.join().unwrap();
            assert!(slowest < Duration::from_secs(5), "{slowest:?}");
        }
    });
}

/// How long thousands of files take is the machine's matter: what is asserted is that all goes well meanwhile.
fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    crate::common::wait_within(Duration::from_secs(240), what, || {
        crate::common::wait::pause(Duration::from_millis(200));
        condition()
    });
}

/// Works like a stock worker until `over`; returns the longest wait for an answer.
fn slowest_answer(site: &Site, over: &std::sync::atomic::AtomicBool) -> Duration {
    let mut slowest = Duration::ZERO;
    let mut request = "READY".to_owned();
    while !over.load(std::sync::atomic::Ordering::Relaxed) {
        let start = Instant::now();
        let key = site.next_key(&request);
        slowest = slowest.max(start.elapsed());
        request = key.map_or("READY".to_owned(), |key| format!("DONE {key} 0"));
        crate::common::wait::pause(Duration::from_millis(5));
    }
    slowest
}
