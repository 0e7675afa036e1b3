//! Row 1: how fast a list at a relay is stored by the daemon.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Instant;

use super::bare;
use super::installation::Installation;
use super::{Stage, figure};
use crate::load::median;
use crate::report::{Figure, per_second};
use crate::servers::{Server, new_home, write_list};

/// The bare loop's rows, as a multiple of the list's: it is faster.
const BARE_TIMES: usize = 5;

pub fn rows(stage: &Stage) -> io::Result<Vec<Figure>> {
    let (mut ours, mut bare, mut local) = (Vec::new(), Vec::new(), Vec::new());
    let (mut memory, mut bytes) = (0.0_f64, 0);
    for _ in 0..stage.setting.rounds {
        let (rate, most) = by_relay(stage)?;
        ours.push(rate);
        memory = memory.max(most);
        let (rate, size) = bare::rate(&stage.setting.broker, stage.setting.list * BARE_TIMES)?;
        bare.push(rate);
        bytes = size;
        local.push(by_daemon(stage)?);
    }
    let [ours, bare, local] = [ours, bare, local].map(|rates| median(&rates));
    let (ratio, beside) = (ours / bare, ours / local);
    let shown = per_second(ours);
    let compared =
        format!("the bare loop, 100 rows in {bytes} bytes, {}: {ratio:.2}x", per_second(bare));
    let at_daemon = format!("the same list at the daemon {}: {beside:.2}x", per_second(local));
    let what = format!("storing a list of {} lines of a relay, durable", stage.setting.list);
    Ok(vec![
        figure(1, &what, shown.clone(), compared, "0.5x", Some(ratio >= 0.5)),
        figure(1, "the same", shown, String::new(), "10,000/s", Some(ours >= 10_000.0)),
        figure(1, "the same", per_second(ours), at_daemon, "-", None),
        figure(
            1,
            "memory of the relay, the most meanwhile",
            format!("{memory:.1} MB"),
            String::new(),
            "-",
            None,
        ),
    ])
}

/// Rows a second, and the relay's memory at most.
fn by_relay(stage: &Stage) -> io::Result<(f64, f64)> {
    let mut installation = Installation::start(stage)?;
    let relay = installation.relay(stage)?;
    let list = relay.server.input("bench.1.txt");
    let rate = load(stage, &list, &mut installation.daemon)?;
    Ok((rate, relay.server.memory()?.1))
}

fn by_daemon(stage: &Stage) -> io::Result<f64> {
    let mut installation = Installation::start(stage)?;
    let list = installation.daemon.input("bench.1.txt");
    load(stage, &list, &mut installation.daemon)
}

/// Rows a second, from the moment that a list is there until the daemon has all of it.
fn load(stage: &Stage, list: &Path, daemon: &mut Server) -> io::Result<f64> {
    let home = new_home()?;
    let written = home.path().join("list");
    write_list(&written, stage.setting.list)?;
    let begun = Instant::now();
    fs::rename(&written, list)?;
    daemon.wait(|daemon| Ok(daemon.run("bench")?["complete"] == true))?;
    Ok(stage.setting.list as f64 / begun.elapsed().as_secs_f64())
}
