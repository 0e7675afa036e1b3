//! What is looked at while the load lasts: memory, the write-ahead log, `status`; and the figures.
//!
//! Called by the soak's main thread. The limits of all that is measured are here, but for a
//! worker's wait ([`workers`](crate::workers)).

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use shiftboss_bench::report::{ms, per_second};

use crate::Soak;
use crate::site::{Daemon, Site};
use crate::workers::WAIT_MAX;

/// Between two questions to `status`.
const STATUS: Duration = Duration::from_secs(3);
/// The first part of the time in which memory may grow, as caches fill.
const WARM_UP_SHARE: u32 = 10;
const WARM_UP_MAX: Duration = Duration::from_secs(60);
/// How much more memory the second half may need than the first.
const MEMORY_FACTOR: f64 = 1.10;
const MEMORY_MB: f64 = 4.0;
/// Less than this is no growth, for SQLite's page cache (48 MiB) may fill at any time.
const MEMORY_WITH_CACHE_MB: f64 = 72.0;
/// The log is cut to 64 MiB when it is begun anew; what is written until that happens comes on top.
const LOG_AFTER_READER_MAX: u64 = 96 << 20;
/// The log at other times; and what it may get on top for each job that is handed out while a reader
/// stays, for it cannot be begun anew then. A job writes 8 KiB where a commit has many, and 12 pages where it
/// has few, as on a slow disk; its row's loading is little beside that.
const LOG_MAX: u64 = 256 << 20;
const LOG_A_JOB: u64 = 52 << 10;

/// What was measured.
#[derive(Debug, Default)]
pub struct Figures {
    /// The longest wait of a worker.
    pub wait: Duration,
    /// The longest edit by hand.
    pub edit: Duration,
    /// Most resident memory in MB, after the warm-up in the first half, and in the second.
    memory: [f64; 2],
    /// The jobs that had been handed out when a reader came that still stays.
    pub staying: Option<u64>,
    /// The largest log, and the largest some seconds after a reader had left.
    log: u64,
    log_after_reader: u64,
}

/// Looks at the daemon until the time is over.
pub fn until_end(soak: &Soak, site: &mut Site) -> io::Result<()> {
    let mut asked = Instant::now();
    while soak.is_time() {
        site.watch(soak);
        let daemon = &site.daemons[0];
        soak.look_at_memory(daemon)?;
        soak.look_at_log()?;
        if asked.elapsed() >= STATUS {
            asked = Instant::now();
            let told = daemon.status();
            if !told.as_ref().is_ok_and(|status| status["daemon"].is_object()) {
                soak.fault(&format!("status: {told:?}"));
            }
        }
    }
    soak.judge_memory();
    Ok(())
}

impl Soak {
    /// All jobs that were handed out.
    pub fn jobs(&self) -> u64 {
        let ledger = self.ledger();
        ledger.jobs + ledger.jobs_by_hand
    }

    fn look_at_memory(&self, daemon: &Daemon) -> io::Result<()> {
        let elapsed = self.report.begun.elapsed();
        if elapsed > WARM_UP_MAX.min(self.time / WARM_UP_SHARE) {
            let half = usize::from(elapsed > self.time / 2);
            let memory = daemon.memory()?;
            let most = &mut self.figures().memory[half];
            *most = most.max(memory);
        }
        Ok(())
    }

    fn judge_memory(&self) {
        let [first, second] = self.figures().memory;
        if second > MEMORY_WITH_CACHE_MB.max(first * MEMORY_FACTOR + MEMORY_MB) {
            self.fault(&format!("memory grew from {first:.1} to {second:.1} MB"));
        }
    }

    fn log_bytes(&self) -> io::Result<u64> {
        fs::metadata(self.path("state.db-wal")).map(|log| log.len())
    }

    fn look_at_log(&self) -> io::Result<()> {
        // In this order: the log may be small again before its reader is known to have left.
        let (bytes, before) = (self.log_bytes()?, self.figures().staying);
        let max = LOG_MAX + LOG_A_JOB * before.map_or(0, |before| self.jobs() - before);
        if bytes > max {
            self.fault(&format!("the log has {bytes} bytes, and {max} may be"));
        }
        let mut figures = self.figures();
        figures.log = figures.log.max(bytes);
        Ok(())
    }

    /// Some seconds after a reader that held the log up.
    pub fn look_at_log_after_reader(&self) -> io::Result<()> {
        let bytes = self.log_bytes()?;
        if bytes > LOG_AFTER_READER_MAX {
            let max = LOG_AFTER_READER_MAX;
            self.fault(&format!("after a reader left the log has {bytes} bytes, and {max} may be"));
        }
        let mut figures = self.figures();
        figures.log_after_reader = figures.log_after_reader.max(bytes);
        Ok(())
    }
}

impl Figures {
    /// Prints the summary.
    pub fn print(&self, soak: &Soak) {
        let rate = soak.jobs() as f64 / soak.time.as_secs_f64();
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        println!("rate            {}", per_second(rate));
        println!("worst wait      {} (limit {})", ms(self.wait), ms(WAIT_MAX));
        println!("memory          {:.1} MB, then {:.1} MB", self.memory[0], self.memory[1]);
        let (log, after) = (mib(self.log), mib(self.log_after_reader));
        println!("largest log     {log:.1} MiB (limit {:.0} without a reader)", mib(LOG_MAX));
        println!("after a reader  {after:.1} MiB (limit {:.0})", mib(LOG_AFTER_READER_MAX));
        println!(
            "edits by hand   {} jobs, an edit took at most {}",
            soak.ledger().jobs_by_hand,
            ms(self.edit)
        );
    }
}
