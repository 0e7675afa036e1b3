//! `shiftboss top`: the queue on a terminal, as it is now. It reads the database as `status` does, and asks the daemon on its
//! socket for what only the daemon knows.
//!
//! A plain core, [`state`] (what an event changes) and [`draw`] (what a state looks like), knows no terminal and no queue, but
//! a [`picture`] of it. [`screen`] is the terminal; [`look`] asks the queue, on a thread of its own, so that no slow answer holds up
//! a key; [`live`] brings the three together. [`tabs`] are the lists, [`listing`] says what is selected in one, [`opened`] takes their
//! place. [`keys`] says which key does what, [`prompt`] when it is a text or an answer, [`orders`] what
//! may be changed; [`plain`] is one frame as text. Called by [`commands`](crate::commands).

mod commits;
mod draw;
mod head;
mod keys;
mod listing;
mod live;
mod look;
mod opened;
mod orders;
mod picture;
mod plain;
mod prompt;
mod screen;
mod state;
mod tabs;
#[cfg(test)]
mod tests;
mod theme;

use std::io;
use std::time::Duration;

use shiftboss_console::printing::print;

use crate::cli::{INTERVAL_MAX, INTERVAL_MIN, TopArguments};
use crate::exit::Failure;
use crate::terminal::can_redraw;

/// Pauses between two looks that `+` and `-` choose from, in milliseconds.
const INTERVALS: [u64; 8] = [500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000];

/// Shows the queue on the terminal until the user quits, or prints one frame of it as text.
pub fn run(typed: TopArguments) -> Result<(), Failure> {
    if typed.once || !can_redraw(&io::stdout()) {
        return print(plain::frame(&typed)?);
    }
    live::run(typed)
}

fn stepped(interval: Duration, is_longer: bool) -> Duration {
    let steps = INTERVALS.map(Duration::from_millis);
    let next = match is_longer {
        true => steps.into_iter().find(|step| *step > interval),
        false => steps.into_iter().rfind(|step| *step < interval),
    };
    next.unwrap_or(interval).clamp(INTERVAL_MIN, INTERVAL_MAX)
}
