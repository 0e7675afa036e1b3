//! Row 7: how soon rows of a killed daemon's ranges are stored by another one.

use std::io;
use std::time::{Duration, Instant};

use super::installation::{Installation, new_prefix};
use super::{Stage, figure};
use crate::postgres::database::Cluster;
use crate::report::{Figure, ms};
use crate::servers::write_list;

const DEATHS: usize = 5;
/// Some hundred of each range.
const LINES: usize = 5_000;
const TARGET: Duration = Duration::from_secs(5);

pub fn rows(stage: &Stage) -> io::Result<Vec<Figure>> {
    let cluster = Cluster::new(&stage.setting.server, Duration::ZERO)?;
    let mut times = Vec::new();
    for _ in 0..DEATHS {
        times.push(death(stage, &cluster)?);
    }
    let most = times.into_iter().max().unwrap_or_default();
    let what = format!(
        "from the kill of a daemon that consumes all ranges until a list of {LINES} lines is stored by another one, on PostgreSQL"
    );
    let shown = format!("at most {} of {DEATHS}", ms(most));
    Ok(vec![figure(7, &what, shown, String::new(), "5 s", Some(most <= TARGET))])
}

/// The daemon that was there first consumes all ranges. The list is there at the moment of its death.
fn death(stage: &Stage, cluster: &Cluster) -> io::Result<Duration> {
    let (database, prefix) = (cluster.database("relays", None)?, new_prefix());
    let mut first = Installation::on_server(stage, &database.url, "first", &prefix)?;
    let mut other = Installation::on_server(stage, &database.url, "other", &prefix)?;
    let relay = other.relay(stage)?;
    write_list(&relay.server.input("bench.1.txt"), LINES)?;
    let begun = Instant::now();
    first.daemon.kill()?;
    other.daemon.wait(|daemon| Ok(daemon.run("bench")?["complete"] == true))?;
    Ok(begun.elapsed())
}
