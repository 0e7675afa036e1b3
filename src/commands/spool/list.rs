//! `shiftboss spool list`: what is in a queue, by name.

use serde::Serialize;

use super::{failure, print};
use crate::commands::text::columns;
use crate::exit::Failure;
use shiftboss_spool::{EntryInfo, EntryName, Holding, QueueName, Spool, SpoolError};

#[derive(Serialize)]
struct Listed {
    queue: QueueName,
    available: Vec<EntryName>,
    /// In order, those that were still there when they were looked at.
    checked_out: Vec<EntryInfo>,
}

pub fn run(spool: &Spool, queue: &QueueName, checkouts: bool, json: bool) -> Result<(), Failure> {
    let checked_out = if checkouts || json { self::checkouts(spool, queue)? } else { Vec::new() };
    let available = spool.list(queue).map_err(failure)?;
    let listed = Listed { queue: queue.clone(), available, checked_out };
    print(&listed, json, |listed| if checkouts { table(listed) } else { names(listed) })?;
    Ok(())
}

fn checkouts(spool: &Spool, queue: &QueueName) -> Result<Vec<EntryInfo>, Failure> {
    let names = spool.list_checkouts(queue).map_err(failure)?;
    let mut seen = Vec::with_capacity(names.len());
    for name in names {
        match spool.info(queue, &name) {
            Ok(info) if info.holding != Holding::Available => seen.push(info),
            // It was resolved meanwhile.
            Ok(_) | Err(SpoolError::NotFound { .. }) => {}
            Err(error) => return Err(failure(error)),
        }
    }
    Ok(seen)
}

fn names(listed: &Listed) -> String {
    listed.available.iter().map(|name| format!("{name}\n")).collect()
}

fn table(listed: &Listed) -> String {
    if listed.checked_out.is_empty() {
        return "Nothing is checked out.\n".to_owned();
    }
    let head = ["Name", "since", "attempt", "by"].map(str::to_owned);
    let rows: Vec<_> = [head].into_iter().chain(listed.checked_out.iter().map(row)).collect();
    columns(&rows)
}

fn row(info: &EntryInfo) -> [String; 4] {
    let since = humantime::format_rfc3339_seconds(info.since).to_string();
    [info.name.to_string(), since, info.attempts.to_string(), holder(&info.holding)]
}

/// Who has an entry, in words.
pub fn holder(holding: &Holding) -> String {
    match holding {
        Holding::Available => "nobody".to_owned(),
        Holding::Process { process: Some(process), alive } => {
            let dead = if *alive { "" } else { ", dead" };
            format!("process {} on {}{dead}", process.pid, process.host)
        }
        Holding::Process { process: None, .. } => "a process without a record".to_owned(),
        Holding::Until { until } => {
            format!("nobody's process, until {}", humantime::format_rfc3339_seconds(*until))
        }
        Holding::Detached => "nobody's process, until it is resolved".to_owned(),
        Holding::Unknown => "a program that makes no notes".to_owned(),
    }
}
