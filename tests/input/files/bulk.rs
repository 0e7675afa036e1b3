//! Very many lines and very many files at once; loss 13 of spec 4. How fast it is, benchmarks say.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::wait::pause;
use crate::common::{Site, list_of, wait_within};

const FILES: usize = 5_000;
/// So long the stock worker waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Very many files, complete and growing, of many fetchers and of few, that are there at the start: each becomes a run with its
/// row. Then they are removed at once. A worker waits for one step of that at most, and for what the watcher does.
#[test]
fn very_many_files_at_once() {
    let site = Site::new();
    let name = |i: usize| match i % 4 {
        0 => format!("f{i}.1.txt.part"),
        1 | 2 => format!("f{i}.1.txt"),
        _ => format!("f.{i}.txt"),
    };
    for i in 0..FILES {
        site.write(name(i), format!("key{i} 0 {i}\n"));
    }
    let daemon = site.start();
    let slowest = slowest_answer(&site, 1, || {
        wait("all files are loaded", || site.number("SELECT count(*) FROM queue") == FILES as i64);
        let complete = (FILES - FILES / 4).to_string();
        site.wait_sql("SELECT sum(is_complete) FROM fetcher_runs", &[&complete]);
        (0..FILES).for_each(|i| site.remove(name(i)));
        wait("all is deleted", || site.number("SELECT count(*) FROM fetcher_runs") == 0);
    });
    assert!(slowest < PATIENCE, "{slowest:?}");
    assert!(daemon.memory_kib("VmHWM:") < 400 * 1024);
    daemon.stop();
}

/// Loss 13: very many lines at once, and then the deletion of that run: none of six workers goes
/// without an answer for the five seconds that it waits.
#[test]
fn loss_13_no_worker_waits_five_seconds() {
    const LINES: usize = 40_000;
    let site = Site::new();
    site.write("small.1.txt", "small 0 1\n");
    let _daemon = site.start();
    site.wait_count(1);
    let slowest = slowest_answer(&site, 6, || {
        site.write("big.1.txt.part", list_of(LINES));
        site.rename("big.1.txt.part", "big.1.txt");
        // To count the rows again and again would be most of what the machine does.
        let complete = "SELECT count(*) FROM fetcher_runs WHERE is_complete = 1";
        wait("all is loaded", || site.number(complete) == 2);
        assert_eq!(site.number("SELECT count(*) FROM queue"), LINES as i64 + 1);
        site.remove("big.1.txt");
        wait("all is deleted", || site.number("SELECT count(*) FROM fetcher_runs") == 1);
        assert_eq!(site.number("SELECT count(*) FROM queue"), 1);
    });
    assert!(slowest < PATIENCE, "{slowest:?}");
}

/// How long thousands of files take is the machine's matter: what is asserted is that all goes well meanwhile.
fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    wait_within(Duration::from_secs(240), what, || {
        pause(Duration::from_millis(100));
        condition()
    });
}

/// The longest wait for an answer of so many stock workers, while something is done.
fn slowest_answer(site: &Site, workers: usize, doing: impl FnOnce()) -> Duration {
    let over = AtomicBool::new(false);
    let work = || {
        let (mut slowest, mut request) = (Duration::ZERO, "READY".to_owned());
        while !over.load(Ordering::Relaxed) {
            let start = Instant::now();
            let key = site.next_key(&request);
            slowest = slowest.max(start.elapsed());
            request = key.map_or("READY".to_owned(), |key| format!("DONE {key} 0"));
            pause(Duration::from_millis(5));
        }
        slowest
    };
    std::thread::scope(|scope| {
        let at_work: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let at_end = crate::common::wait::SetOnDrop(&over);
        doing();
        drop(at_end);
        at_work.into_iter().map(|worker| worker.join().unwrap()).max().unwrap()
    })
}
