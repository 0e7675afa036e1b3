//! What is looked at while the load lasts: memory, the write-ahead log, `status`; and the figures.
//!
//! Called by the soak's main thread. The limits of all that is measured are here, but for a
//! worker's wait ([`workers`](super::workers)).

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use crate::Soak;
use crate::workers::WAIT_MAX;
use shiftboss_bench::report::{ms, per_second};
use shiftboss_bench::servers::Server;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// Between two questions to `status`.
const STATUS: Duration = Duration::from_secs(3);
/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(60);
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
    /// Counts by a reader.
    pub counts: u64,
    /// Edits by hand, those that were refused, and the longest.
    pub edits: u64,
    pub refused: u64,
    pub edit: Duration,
    /// Answers of `status`, and the longest wait for one.
    status: u64,
    status_wait: Duration,
    /// Most resident memory in MB, after the warm-up in the first half, and in the second.
    memory: [f64; 2],
    /// The jobs that had been handed out when a reader came that still stays.
    pub staying: Option<u64>,
    /// The largest log, the largest some seconds after a reader had left, and how many left.
    log: u64,
    log_after_reader: u64,
    readers: u64,
}

/// Looks at the daemon until the load ends.
///
/// # Errors
/// When the daemon has ended.
pub fn until_end(soak: &Soak, server: &mut Server) -> io::Result<()> {
    let (mut asked, mut told) = (Instant::now(), Instant::now());
    while soak.goes_on(LOOK) {
        server.check_running()?;
        soak.look_at_memory(server)?;
        soak.look_at_log()?;
        if asked.elapsed() >= STATUS {
            asked = Instant::now();
            soak.ask_status(server);
        }
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            soak.tell_progress(server)?;
        }
    }
    soak.judge_memory();
    Ok(())
}

impl Soak {
    fn look_at_memory(&self, server: &Server) -> io::Result<()> {
        let elapsed = self.report.begun.elapsed();
        if elapsed > WARM_UP_MAX.min(self.time / WARM_UP_SHARE) {
            let half = usize::from(elapsed > self.time / 2);
            let memory = server.memory()?.0;
            let most = &mut self.figures().memory[half];
            *most = most.max(memory);
        }
        Ok(())
    }

    fn judge_memory(&self) {
        let [first, second] = self.figures().memory;
        if second > MEMORY_WITH_CACHE_MB.max(first * MEMORY_FACTOR + MEMORY_MB) {
            self.fault(format!("memory grew from {first:.1} to {second:.1} MB"));
        }
    }

    fn log_bytes(&self) -> io::Result<u64> {
        fs::metadata(self.home.join("state.db-wal")).map(|log| log.len())
    }

    fn log_max(&self) -> u64 {
        let before = self.figures().staying;
        let jobs = before.map_or(0, |before| self.ledger().all_jobs() - before);
        LOG_MAX + LOG_A_JOB * jobs
    }

    fn look_at_log(&self) -> io::Result<()> {
        // In this order: the log may be small again before its reader is known to have left.
        let (bytes, max) = (self.log_bytes()?, self.log_max());
        if bytes > max {
            self.fault(format!("the log has {bytes} bytes, and {max} may be"));
        }
        let mut figures = self.figures();
        figures.log = figures.log.max(bytes);
        Ok(())
    }

    /// Some seconds after a reader that held the log up.
    ///
    /// # Errors
    /// When there is no log.
    pub fn look_at_log_after_reader(&self) -> io::Result<()> {
        let bytes = self.log_bytes()?;
        if bytes > LOG_AFTER_READER_MAX {
            let max = LOG_AFTER_READER_MAX;
            self.fault(format!("after a reader left the log has {bytes} bytes, and {max} may be"));
        }
        let mut figures = self.figures();
        figures.readers += 1;
        figures.log_after_reader = figures.log_after_reader.max(bytes);
        Ok(())
    }

    fn ask_status(&self, server: &Server) {
        let begun = Instant::now();
        match server.status() {
            Ok(status) if status["daemon"].is_object() => {}
            told => self.fault(format!("status: {told:?}")),
        }
        let mut figures = self.figures();
        figures.status += 1;
        figures.status_wait = figures.status_wait.max(begun.elapsed());
    }

    fn tell_progress(&self, server: &Server) -> io::Result<()> {
        let (jobs, wait) = (self.ledger().jobs, self.figures().wait);
        let (memory, log) = (server.memory()?.0, self.log_bytes()? >> 20);
        println!(
            "{:4.0} s: {jobs} jobs, worst wait {}, memory {memory:.1} MB, log {log} MiB",
            self.report.begun.elapsed().as_secs_f64(),
            ms(wait)
        );
        Ok(())
    }
}

impl Figures {
    /// Prints the summary.
    pub fn print(&self, soak: &Soak) {
        let ledger = soak.ledger();
        let rate = ledger.all_jobs() as f64 / soak.time.as_secs_f64();
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        println!("jobs            {} of {} runs, {}", ledger.jobs, ledger.runs(), per_second(rate));
        println!("worst wait      {} (limit {})", ms(self.wait), ms(WAIT_MAX));
        println!("memory          {:.1} MB, then {:.1} MB", self.memory[0], self.memory[1]);
        println!(
            "largest log     {:.1} MiB (limit {:.0}, and {} KiB for each job while a reader stays)",
            mib(self.log),
            mib(LOG_MAX),
            LOG_A_JOB >> 10
        );
        println!(
            "after a reader  {:.1} MiB (limit {:.0}), {} times",
            mib(self.log_after_reader),
            mib(LOG_AFTER_READER_MAX),
            self.readers
        );
        println!(
            "edits by hand   {}, {} of them refused, the longest {}, {} jobs",
            self.edits,
            self.refused,
            ms(self.edit),
            ledger.jobs_by_hand
        );
        println!("counts          {}", self.counts);
        println!("status          {}, the longest {}", self.status, ms(self.status_wait));
    }
}
