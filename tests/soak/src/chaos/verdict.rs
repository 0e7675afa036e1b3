//! What is looked at when the faults are over: all is worked off, and the log of jobs has every result.
//!
//! Called once, by the chaos run.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::rounds::watch;
use super::site::Site;
use super::{World, key_of};
use crate::ledger::Line;

/// Longer than the leases of all that is out, one after the other.
const PATIENCE: Duration = Duration::from_secs(120);
/// Lines that are named.
const SHOWN: usize = 10;

/// Waits until all lines ended, in the ledger and in the database, and lets the workers go.
///
/// # Errors
/// When the database does not answer.
pub fn work_off(site: &mut Site, world: &World) -> io::Result<()> {
    let since = Instant::now();
    let left = loop {
        let left = left(site, world)?;
        if left.is_empty() || since.elapsed() > PATIENCE {
            break left;
        }
        watch(site, world);
    };
    println!("worked off in {:?}", since.elapsed());
    for text in left {
        world.report.fault(&text);
        world.given_up.store(true, Ordering::Relaxed);
    }
    world.over.store(true, Ordering::Relaxed);
    Ok(())
}

/// What is not ended, in words.
fn left(site: &Site, world: &World) -> io::Result<Vec<String>> {
    let missing = missing(world);
    if !missing.is_empty() {
        let shown: Vec<_> = missing.iter().take(SHOWN).map(|line| (line, key_of(*line))).collect();
        return Ok(vec![format!("{} lines never ended: {shown:?}", missing.len())]);
    }
    site.hub.left()
}

/// Lines that did not end; a repeated classic `DONE` may have ended those of its key though nobody had them.
fn missing(world: &World) -> Vec<Line> {
    let mut missing = world.ledger().missing_lines();
    let claims = world.claims();
    missing.retain(|line| !claims.is_muddled(&key_of(*line)));
    missing
}

/// Looks at the log, and stops the daemons.
///
/// # Errors
/// When the database does not answer.
pub fn after(site: &mut Site, world: &World) -> io::Result<()> {
    let mut found = 0;
    for (key, code) in site.hub.logged()? {
        found += 1;
        let looked = world.claims().look(&key, code);
        looked.unwrap_or_else(|text| world.report.fault(&text));
    }
    if found < world.claims().keys() {
        world.report.fault(&format!("of {} keys the log has {found}", world.claims().keys()));
    }
    for daemon in &mut site.daemons {
        let ended = daemon.end(Signal::TERM, &[0]);
        ended.unwrap_or_else(|error| world.report.fault(&error.to_string()));
    }
    Ok(())
}
