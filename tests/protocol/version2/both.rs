//! Protocol 2 beside the classic one.

use super::with_jobs;
use crate::common::{Client, Site, job_of};

/// Under --classic nobody may opt in.
#[test]
fn classic_daemons_close_in_silence() {
    let (site, _daemon) = with_jobs(&["alpha"], &["--classic"]);
    assert_eq!(site.ask("HELLO 2 w"), "");
    assert_eq!(site.send(b"HELLO 2 w\nREADY\n"), "");
    assert_eq!(site.next_key("READY").as_deref(), Some("alpha"));
}

/// Works through the queue as a stock worker does; returns the keys.
fn classic(site: &Site) -> Vec<String> {
    let mut done = Vec::new();
    let mut next = site.next_key("READY");
    while let Some(key) = next {
        next = site.next_key(&format!("DONE {key} 0"));
        done.push(key);
    }
    done
}

/// The same with protocol 2.
fn modern(site: &Site) -> Vec<String> {
    let mut client = Client::opted_in(site, "HELLO 2 w");
    let mut done = Vec::new();
    let mut next = client.ask("READY");
    while !next.starts_with("NOJOBS") {
        let (attempt, key) = job_of(&next);
        client.write(format!("DONE {attempt} 0\nREADY\n").as_bytes());
        assert_eq!(client.line(), "OK\n");
        next = client.line();
        done.push(key);
    }
    done
}

/// Workers of both kinds beside each other: every key once.
#[test]
fn both_kinds_of_workers_share_a_queue() {
    let keys: Vec<String> = (0..300).map(|number| format!("key{number}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let (site, _daemon) = with_jobs(&keys, &[]);
    let work = |number: i32| if number % 2 == 0 { classic(&site) } else { modern(&site) };
    let mut done: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..12).map(|number| scope.spawn(move || work(number))).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    done.sort();
    done.dedup();
    assert_eq!(done.len(), keys.len());
    let counted = "SELECT count(*) FROM ended WHERE exit_code IS NOT NULL";
    assert_eq!(site.sql(counted), ["300"]);
}
