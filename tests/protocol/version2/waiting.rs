//! Workers that wait for work.

use std::collections::BTreeSet;

use crate::common::{Client, Site, job_of, wait_until};

/// The keys of all jobs that have arrived.
fn arrived(clients: &mut [Client]) -> Vec<String> {
    clients.iter_mut().filter_map(Client::take_line).map(|line| job_of(&line).1).collect()
}

/// A thousand workers wait; one line wakes one of them.
#[test]
fn a_thousand_waiting_workers() {
    let (site, daemon) = Site::running(&[]);
    let mut clients: Vec<Client> =
        (0..1_000).map(|number| Client::opted_in(&site, &format!("HELLO 2 w{number}"))).collect();
    for client in &mut clients {
        client.write(b"READY 600\n");
    }
    let mut served = Vec::new();
    for round in 0..3 {
        site.append(format!("f.{round}.txt.part"), format!("key{round} 1\n"));
        wait_until("somebody has it", || {
            served.extend(arrived(&mut clients));
            served.len() == round + 1
        });
    }
    // One write for all the others: each at most one job, and every key once.
    let rest: String = (0..997).map(|number| format!("more{number} 1\n")).collect();
    site.append("g.1.txt.part", rest);
    wait_until("all have one", || {
        served.extend(arrived(&mut clients));
        served.len() >= 1_000
    });
    assert_eq!(served.iter().collect::<BTreeSet<_>>().len(), 1_000, "each key once");
    assert!(arrived(&mut clients).is_empty(), "nobody has two");
    assert_eq!(daemon.warnings(&[]), Vec::<String>::new());
}
