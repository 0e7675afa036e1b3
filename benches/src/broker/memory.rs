//! Row 6: memory of a relay, with nothing to do and with as much under way as it lets be.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::thread;
use std::time::{Duration, Instant};

use super::client::Client;
use super::installation::Installation;
use super::{Stage, figure};
use crate::bare::key;
use crate::report::Figure;
use crate::rows::ask;

/// Lists that are read at once; one alone does not fill all that may be under way.
const LISTS: usize = 8;
const LINES: usize = 20_000;
const PAYLOAD_BYTES: usize = 400;
/// The lists are being sent when so many rows are stored.
const ROWS_BEFORE: u64 = 20_000;
/// So that the rows of a step fill all messages that may be outstanding.
const SMALL_MESSAGES: [&str; 2] = ["--message-rows", "4"];
/// How long a relay goes on sending once its daemon is dead.
const GOES_ON: Duration = Duration::from_secs(4);
const GLANCE: Duration = Duration::from_millis(50);

pub fn rows(stage: &Stage) -> io::Result<Vec<Figure>> {
    Ok(vec![idle(stage)?, outstanding(stage)?])
}

fn idle(stage: &Stage) -> io::Result<Figure> {
    let installation = Installation::start(stage)?;
    let relay = installation.relay(stage)?;
    ask(&relay.server.socket, "READY\n")?;
    Ok(memory("idle", relay.server.memory()?.0, 20.0, "20 MB"))
}

/// The daemon is killed while it stores lists: what it had not answered is in the broker then, and can be counted.
fn outstanding(stage: &Stage) -> io::Result<Figure> {
    let mut installation = Installation::start(stage)?;
    let relay = installation.relay_with(stage, &SMALL_MESSAGES)?;
    for list in 0..LISTS {
        let name = format!("bench-{list}.1.txt.part");
        write_long_lines(File::create(relay.server.input(&name))?)?;
    }
    installation.daemon.wait(|daemon| {
        let pending = daemon.status()?["rows"]["pending"].as_u64();
        Ok(pending.is_some_and(|rows| rows >= ROWS_BEFORE))
    })?;
    installation.daemon.kill()?;
    let (client, begun, mut messages) =
        (Client::connect(&stage.setting.broker)?, Instant::now(), 0);
    while begun.elapsed() < GOES_ON {
        messages = messages.max(installation.messages(&client)?);
        thread::sleep(GLANCE);
    }
    let when = format!("with {messages} messages outstanding, the most");
    Ok(memory(&when, relay.server.memory()?.1, 100.0, "100 MB"))
}

fn write_long_lines(list: File) -> io::Result<()> {
    let (mut list, payload) = (BufWriter::new(list), "p".repeat(PAYLOAD_BYTES));
    for index in 0..LINES {
        writeln!(list, "{} {payload}", key(index))?;
    }
    list.flush()
}

fn memory(when: &str, megabytes: f64, target: f64, target_text: &'static str) -> Figure {
    let (what, shown) = (format!("memory of a relay, {when}"), format!("{megabytes:.1} MB"));
    figure(6, &what, shown, String::new(), target_text, Some(megabytes <= target))
}
