//! This process's resource usage, for the daemon's answer to `METRICS`.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use shiftboss_protocol::answers::live::ProcessUsage;

/// `None`: the system does not report it.
pub fn own() -> Option<ProcessUsage> {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let cpu_seconds = Duration::try_from(cpu).ok()?.as_secs_f64();
    Some(ProcessUsage { resident_bytes: resident(&status()?)?, cpu_seconds })
}

fn status() -> Option<String> {
    fs::read_to_string("/proc/self/status").ok()
}

/// The line of the memory that is resident, in KiB.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read() {
        assert_eq!(resident("Name:\tx\nVmRSS:\t    1536 kB\nThreads:\t1\n"), Some(1_572_864));
        assert_eq!(resident("Name:\tx\n"), None);
        let own = own().unwrap();
        assert!(own.resident_bytes > 1_000_000 && own.cpu_seconds >= 0.0);
    }
}
