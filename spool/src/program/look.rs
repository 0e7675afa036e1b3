//! `shiftspool list` and `show`: what is in a spool.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Serialize, Serializer};
use shiftboss_console::exit::Failure;
use shiftboss_console::text::{self, columns, cut, line};
use shiftboss_console::{printing, terminal};

use super::cli::{ListArguments, OneEntry};
use super::never;
use crate::{EntryInfo, EntryName, Holding, QueueName, Spool, SpoolError};

/// Most characters of the metadata that are shown to people; the JSON object has them all.
const METADATA_WIDTH: usize = 1000;
/// Clears the terminal, and continues from the upper left corner.
const REDRAW: &str = "\u{1b}[H\u{1b}[2J";

#[derive(Serialize)]
struct Listed {
    queue: QueueName,
    available: Vec<EntryName>,
    /// In order; only those that were still there when they were looked at.
    checked_out: Vec<EntryInfo>,
}

/// Lists once, or until the reader is gone or a signal ends us.
pub fn list(spool: &Spool, of: &ListArguments) -> Result<(), Failure> {
    let Some(every) = of.every else {
        return printing::print(listing(spool, of)?);
    };
    let (is_terminal, wait) = (terminal::can_redraw(&io::stdout()) && !of.json, never()?);
    let before = if is_terminal { REDRAW } else { "" };
    let mut last = String::new();
    loop {
        let text = before.to_owned() + &listing(spool, of)?;
        let is_news = of.json || is_terminal || text != last;
        if is_news && !printing::offer(&text)? || wait.wait(every) {
            return Ok(());
        }
        last = text;
    }
}

fn listing(spool: &Spool, of: &ListArguments) -> Result<String, Failure> {
    match &of.queue {
        None => {
            let lengths = lengths(spool)?;
            if of.json { printing::json(&lengths) } else { Ok(lengths_text(&lengths)) }
        }
        Some(queue) => {
            let is_whole = of.checkouts || of.json;
            let checked_out = if is_whole { checkouts(spool, queue)? } else { Vec::new() };
            let available = spool.list(queue)?;
            let listed = Listed { queue: queue.clone(), available, checked_out };
            if of.json {
                return printing::json(&listed);
            }
            Ok(if of.checkouts { table(&listed) } else { names(&listed) })
        }
    }
}

fn checkouts(spool: &Spool, queue: &QueueName) -> Result<Vec<EntryInfo>, Failure> {
    let names = spool.list_checkouts(queue)?;
    let mut seen = Vec::with_capacity(names.len());
    for name in names {
        match spool.info(queue, &name) {
            Ok(info) if info.holding != Holding::Available => seen.push(info),
            // It was resolved meanwhile.
            Ok(_) | Err(SpoolError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
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
    columns(["Name", "since", "attempt", "by"], listed.checked_out.iter().map(row))
}

fn row(info: &EntryInfo) -> [String; 4] {
    let since = humantime::format_rfc3339_seconds(info.since).to_string();
    [info.name.to_string(), since, info.attempts.to_string(), holder(&info.holding)]
}

fn holder(holding: &Holding) -> String {
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

#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    info: EntryInfo,
    /// Null if it is not UTF-8; the file has it.
    metadata: Option<String>,
    #[serde(serialize_with = "path")]
    metadata_path: PathBuf,
    #[serde(serialize_with = "path")]
    data_path: PathBuf,
}

/// A path as it is; with `\xNN` for bytes that are not UTF-8.
fn path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().escape_ascii().map(char::from));
    }
    serializer.serialize_str(&text)
}

pub fn show(spool: &Spool, entry: &OneEntry, json: bool) -> Result<(), Failure> {
    let info = spool.info(&entry.queue, &entry.name)?;
    let metadata = String::from_utf8(spool.metadata(&entry.queue, &entry.name)?).ok();
    let (metadata_path, data_path) = (info.metadata_path.clone(), spool.data(&entry.name).path());
    let shown = Shown { info, metadata, metadata_path, data_path };
    printing::show(&shown, json, entry_text).map(drop)
}

fn file(path: &Path, bytes: u64) -> String {
    format!("{bytes} bytes in {}", text::shown(&path.to_string_lossy()))
}

fn entry_text(shown: &Shown) -> String {
    let info = &shown.info;
    let since = humantime::format_rfc3339_seconds(info.since).to_string();
    let data = match info.data {
        Some(data) => file(&shown.data_path, data.bytes),
        None => "missing".to_owned(),
    };
    let mut text = line("name", &info.name.to_string())
        + &line("queue", &info.queue.to_string())
        + &line("checked out by", &holder(&info.holding))
        + &line("since", &since)
        + &line("attempts", &info.attempts.to_string())
        + &line("data", &data);
    if let Some(reason) = &info.reason {
        text += &line("reason", &cut(reason, METADATA_WIDTH));
    }
    if info.metadata_bytes > 0 {
        text += &line("metadata", &file(&shown.metadata_path, info.metadata_bytes));
        let metadata = shown.metadata.as_deref().unwrap_or("(no text)");
        text += &line("", &cut(metadata, METADATA_WIDTH));
    }
    text
}

#[derive(Serialize)]
struct Length {
    queue: QueueName,
    available: usize,
    checked_out: usize,
}

#[derive(Serialize)]
struct Lengths {
    /// When it was looked at: seconds since 1970.
    time: u64,
    queues: Vec<Length>,
    /// Entries in quarantine, unreadable.
    quarantined: usize,
}

fn lengths(spool: &Spool) -> Result<Lengths, SpoolError> {
    let mut queues = Vec::new();
    for queue in spool.queues()? {
        let checked_out = spool.list_checkouts(&queue)?.len();
        queues.push(Length { available: spool.list(&queue)?.len(), checked_out, queue });
    }
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Ok(Lengths { time, queues, quarantined: spool.quarantined()?.len() })
}

fn lengths_text(lengths: &Lengths) -> String {
    let row = |length: &Length| {
        let (available, out) = (length.available.to_string(), length.checked_out.to_string());
        [length.queue.to_string(), available, out]
    };
    let mut text = match lengths.queues.is_empty() {
        true => "There is no queue.\n".to_owned(),
        false => columns(["Queue", "available", "checked out"], lengths.queues.iter().map(row)),
    };
    if lengths.quarantined > 0 {
        text += &format!("{} in .shiftboss/quarantine\n", lengths.quarantined);
    }
    text
}
