//! `shiftboss spool stat` and `watch`: how long the queues are, once or live.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::{failure, never};
use crate::commands::output;
use crate::commands::text::columns;
use crate::exit::Failure;
use crate::terminal;
use shiftboss_spool::{QueueName, Spool, SpoolError};

/// From the upper left corner on, and nothing left of what was there.
const REDRAW: &str = "\u{1b}[H\u{1b}[2J";

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

fn look(spool: &Spool) -> Result<Lengths, SpoolError> {
    let mut queues = Vec::new();
    for queue in spool.queues()? {
        let checked_out = spool.list_checkouts(&queue)?.len();
        queues.push(Length { available: spool.list(&queue)?.len(), checked_out, queue });
    }
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Ok(Lengths { time, queues, quarantined: spool.quarantined()?.len() })
}

fn render(lengths: &Lengths) -> String {
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

pub fn stat(spool: &Spool, json: bool) -> Result<(), Failure> {
    output::show(&look(spool).map_err(failure)?, json, render).map(drop)
}

/// Shows the queues until nobody reads any more, or a signal ends us.
pub fn watch(spool: &Spool, every: Duration, json: bool) -> Result<(), Failure> {
    let (is_terminal, wait) = (terminal::can_redraw(&io::stdout()) && !json, never()?);
    let before = if is_terminal { REDRAW } else { "" };
    let mut last = String::new();
    loop {
        let now = look(spool).map_err(failure)?;
        let text = if json { output::json(&now)? } else { before.to_owned() + &render(&now) };
        if (json || is_terminal || text != last) && !output::offer(&text)? {
            return Ok(());
        }
        last = text;
        if wait.wait(every) {
            return Ok(());
        }
    }
}
