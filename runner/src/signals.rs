//! The signals that ask a command to end: the first one gently, a second one at once.
//!
//! GNU `timeout`, some init systems and a Ctrl-C in a pipeline signal twice within milliseconds: a signal so soon after
//! the first counts as the same request. Used by every command that runs for long.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, Signal as StandardSignal};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{debug, info};

/// What a shell adds to the number of the signal that ended a program.
pub const SIGNAL_BASE: i32 = 128;
pub const HANG_UP: i32 = SignalKind::hangup().as_raw_value();
/// How long after the first signal a second one counts.
const SECOND_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Signals {
    interrupt: Listener,
    terminate: Listener,
    hang_up: Listener,
    /// SIGHUP asks for a reload, not the end.
    reloads: bool,
    first: Option<Instant>,
}

impl Signals {
    /// SIGTERM, SIGINT and SIGHUP, each of which asks for the end, unless it was ignored when we were started.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: Listener::new(SignalKind::interrupt())?,
            terminate: Listener::new(SignalKind::terminate())?,
            hang_up: Listener::new(SignalKind::hangup())?,
            reloads: false,
            first: None,
        })
    }

    /// The same, but [`HANG_UP`] asks for a reload, and each one counts, even if it was ignored.
    pub fn with_reloads() -> io::Result<Self> {
        let hang_up = Listener(Some(signal(SignalKind::hangup())?));
        Ok(Self { reloads: true, hang_up, ..Self::new()? })
    }

    /// Waits for the next signal that counts; its number. May be cancelled.
    pub async fn next(&mut self) -> i32 {
        loop {
            let number = self.any().await;
            let is_reload = self.reloads && number == HANG_UP;
            if is_reload || counts(&mut self.first, Instant::now()) {
                return number;
            }
            debug!(signal = number, "A signal so soon after the first is taken for the same.");
        }
    }

    /// Waits for `run`. The first signal asks it to stop, a second one drops it. Returns its outcome, and the first
    /// signal.
    pub async fn attend<T>(
        &mut self,
        run: impl Future<Output = T>,
        stop: impl FnOnce(),
    ) -> (Option<T>, Option<i32>) {
        let mut run = std::pin::pin!(run);
        let signal = tokio::select! {
            outcome = &mut run => return (Some(outcome), None),
            signal = self.next() => signal,
        };
        info!(
            signal,
            "Stopping. Another signal, a second after this one or later, kills what runs."
        );
        stop();
        tokio::select! {
            outcome = &mut run => (Some(outcome), Some(signal)),
            _ = self.next() => (None, Some(signal)),
        }
    }

    async fn any(&mut self) -> i32 {
        let kind = tokio::select! {
            // If several are pending, the terminal's comes first: other requests follow a Ctrl-C.
            biased;
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hang_up.recv() => SignalKind::hangup(),
        };
        kind.as_raw_value()
    }
}

/// Receives a signal; one that was ignored when we were started (`nohup`, a shell's `&`) stays ignored, and never
/// arrives.
#[derive(Debug)]
pub struct Listener(Option<Signal>);

impl Listener {
    pub fn new(kind: SignalKind) -> io::Result<Self> {
        let is_heard = !is_ignored(kind);
        is_heard.then(|| signal(kind)).transpose().map(Self)
    }

    pub async fn recv(&mut self) {
        match &mut self.0 {
            Some(signal) => _ = signal.recv().await,
            None => std::future::pending().await,
        }
    }
}

/// Whether this process ignores a signal, according to the kernel.
fn is_ignored(kind: SignalKind) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (kind.as_raw_value() - 1) & 1 == 1)
}

#[allow(unsafe_code)]
pub fn ignore(number: StandardSignal) -> io::Result<()> {
    // SAFETY: to ignore a signal installs no handler.
    unsafe { nix::sys::signal::signal(number, SigHandler::SigIgn) }?;
    Ok(())
}

fn counts(first: &mut Option<Instant>, now: Instant) -> bool {
    match *first {
        Some(first) => now.saturating_duration_since(first) >= SECOND_AFTER,
        None => {
            *first = Some(now);
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A signal within a second of the first counts as the same; every later one counts.
    #[test]
    fn a_second_signal_counts_after_a_second() {
        let (mut first, now) = (None, Instant::now());
        let mut at = |millis| counts(&mut first, now + Duration::from_millis(millis));
        assert_eq!(
            [0, 1, 10, 999, 1_000, 1_001].map(&mut at),
            [true, false, false, false, true, true]
        );
    }
}
