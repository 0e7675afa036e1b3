//! What was measured, as the table that is printed and written to docs/benchmarks.md.
//!
//! Called by `main`; the rows fill in [`Figure`]s. The text around the table is written by hand
//! and stays as it is.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::load::Load;

/// The driver replaces what stands between one of these lines and the next end.
pub const BENCH: &str = "<!-- figures: written by `make bench` -->";
/// The same for the spool's figures.
pub const BENCH_SPOOL: &str = "<!-- figures: written by `make bench-spool` -->";
/// The same for those of the queue on a PostgreSQL server.
pub const BENCH_POSTGRES: &str = "<!-- figures: written by `make bench-postgres` -->";
/// The same for those of relays.
pub const BENCH_BROKER: &str = "<!-- figures: written by `make bench-broker` -->";
const END: &str = "<!-- end of figures -->";

/// One line of the table.
#[derive(Debug, Clone)]
pub struct Figure {
    /// The row's number in the table of targets.
    pub row: u32,
    /// What was done.
    pub what: String,
    /// What was measured, with its unit.
    pub measured: String,
    /// What it is compared with, and the ratio.
    pub compared: String,
    /// What it should be.
    pub target: &'static str,
    /// Whether it is; `None` where nothing was there to compare with.
    pub met: Option<bool>,
}

impl Figure {
    fn line(&self) -> String {
        let met = match self.met {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "-",
        };
        let Self { row, what, measured, compared, target, .. } = self;
        format!("| {row} | {what} | {measured} | {compared} | {target} | {met} |\n")
    }
}

/// A load's rate and round trips.
#[must_use]
pub fn measured(load: &Load) -> String {
    let trips = [0.5, 0.99, 0.999, 1.0].map(|share| ms(load.trip(share)));
    let [p50, p99, p999, max] = trips;
    format!("{}; p50 {p50}, p99 {p99}, p99.9 {p999}, max {max}", per_second(load.rate))
}

/// The table in Markdown.
#[must_use]
pub fn table(figures: &[Figure]) -> String {
    let head =
        "| # | what | measured | compared with | target | met |\n|---|---|---|---|---|---|\n";
    head.to_owned() + &figures.iter().map(Figure::line).collect::<String>()
}

/// Writes the table, and in one line what it was measured on, into a document, behind the line `begin`.
///
/// # Errors
/// When the document cannot be written, or has no place for it.
pub fn write(document: &Path, begin: &str, machine: &str, figures: &[Figure]) -> io::Result<()> {
    let text = fs::read_to_string(document)?;
    let place = text
        .split_once(begin)
        .and_then(|(before, rest)| rest.split_once(END).map(|(_, after)| (before, after)));
    let Some((before, after)) = place else {
        let text = format!("{} has no line {begin:?} with {END:?} after it", document.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    };
    let figures = format!("{machine}\n\n{}", table(figures));
    fs::write(document, format!("{before}{begin}\n\n{figures}\n{END}{after}"))
}

/// The machine and the versions, in one line.
#[must_use]
pub fn machine() -> String {
    let beanstalkd = beanstalkd_version().unwrap_or_else(|| "beanstalkd missing".to_owned());
    format!("{}, SQLite {}, {beanstalkd}.", hardware(), rusqlite::version())
}

/// The machine, and the version of what is measured.
#[must_use]
pub fn hardware() -> String {
    let first = |path: &str, field: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(field)).unwrap_or_default();
        line.split_once(':').map_or(line, |(_, value)| value).trim().to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{cores} cores of {}, {} of memory, Linux {}; shiftboss {}",
        first("/proc/cpuinfo", "model name"),
        first("/proc/meminfo", "MemTotal"),
        kernel.trim(),
        env!("CARGO_PKG_VERSION"),
    )
}

/// What beanstalkd calls itself, if it is there.
#[must_use]
pub fn beanstalkd_version() -> Option<String> {
    let told = Command::new("beanstalkd").arg("-v").output().ok()?;
    Some(String::from_utf8_lossy(&told.stdout).trim().to_owned())
}

/// A duration as people read it.
#[must_use]
pub fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}

/// A rate as people read it.
#[must_use]
pub fn per_second(rate: f64) -> String {
    let digits = (rate.round() as u64).to_string();
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown + "/s"
}

#[cfg(test)]
mod tests {
    use super::per_second;

    #[test]
    fn rates_have_a_comma_at_each_thousand() {
        let shown = [7.0, 999.6, 23_045.0, 1_877_049.2].map(per_second);
        assert_eq!(shown, ["7/s", "1,000/s", "23,045/s", "1,877,049/s"]);
    }
}
