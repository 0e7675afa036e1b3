//! What is looked at when the load is over: all is worked off, the log of jobs has every result, and daemons stop; a file is sound, and
//! a daemon starts on it again.
//!
//! Called by the main thread, once.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use shiftboss_bench::rows::ask;

use crate::Soak;
use crate::site::Site;

/// Longer than the leases of all that is out, one after the other: so long nothing may end.
const PATIENCE: Duration = Duration::from_secs(120);
/// Lines that are named.
const SHOWN: usize = 10;

/// Waits until all lines ended, in the ledger and in the database, and lets the workers go.
pub fn work_off(site: &mut Site, soak: &Soak) -> io::Result<()> {
    let begun = Instant::now();
    let (mut moved, mut fewest) = (begun, usize::MAX);
    let left = loop {
        let lines = soak.ledger().all_left();
        if lines < fewest {
            (moved, fewest) = (Instant::now(), lines);
        }
        let left = left(site, soak)?;
        if left.is_empty() || moved.elapsed() > PATIENCE {
            break left;
        }
        site.watch(soak);
    };
    println!("worked off in {:?}", begun.elapsed());
    left.iter().for_each(|text| soak.fault(text));
    soak.is_over.store(true, Ordering::Relaxed);
    Ok(())
}

/// What is not ended, in words.
fn left(site: &Site, soak: &Soak) -> io::Result<Vec<String>> {
    let ledger = soak.ledger();
    let missing: Vec<_> = ledger.missing().take(SHOWN).collect();
    if missing.is_empty() {
        drop(ledger);
        return site.hub.left();
    }
    Ok(vec![format!("of {} lines that never ended: {missing:?}", ledger.all_left())])
}

/// Looks at the log, and stops the daemons; at full load it starts the daemon again.
pub fn after(site: &mut Site, soak: &Soak) -> io::Result<()> {
    let (logged, ledger) = (site.hub.logged()?, soak.ledger());
    for (key, code) in &logged {
        soak.check(ledger.look(key, *code));
    }
    let (_, keys) = ledger.size();
    if logged.len() < keys {
        soak.fault(&format!("of {keys} keys the log has {}", logged.len()));
    }
    drop(ledger);
    stop(site, soak);
    if soak.is_calm {
        site.hub.left()?.iter().for_each(|text| soak.fault(text));
        site.daemons[0].run()?;
        site.wait_up()?;
        let answer = ask(&soak.sockets[0], "READY\n")?;
        if answer != "NOJOBS\n" {
            soak.fault(&format!("started again it answers {answer:?}"));
        }
        stop(site, soak);
        site.hub.left()?.iter().for_each(|text| soak.fault(text));
    }
    Ok(())
}

fn stop(site: &mut Site, soak: &Soak) {
    for daemon in &mut site.daemons {
        soak.check(daemon.end(Signal::TERM, &[0]));
    }
}
