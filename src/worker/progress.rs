//! The progress line on a terminal: how many jobs run, ended and failed, how fast, and how many wait.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::watch;

use super::pool::{Counts, Pool};
use super::question;
use crate::logging;

/// Between two changes of the line.
const TICK: Duration = Duration::from_millis(250);
/// Between two questions how many jobs wait. The answer counts rows, so it is not asked for often.
const ASK_EVERY: Duration = Duration::from_secs(5);

/// A line on standard error; nothing where that is no terminal. Clones are the same line.
#[derive(Clone)]
pub struct Progress(ProgressBar);

impl Progress {
    /// The line, above which events are logged from now on. `is_terminal`: whether standard error is one.
    #[must_use]
    pub fn new(is_terminal: bool) -> Self {
        if !is_terminal {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{msg}, {elapsed}") {
            bar.set_style(style);
        }
        logging::share_terminal(bar.clone());
        Self(bar)
    }

    /// Does something that writes to the terminal, with the line out of its way.
    pub fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        self.0.suspend(write)
    }

    /// Keeps the line up to date. Never resolves.
    pub async fn follow(self, pool: watch::Receiver<Pool>, socket: PathBuf) {
        if self.0.is_hidden() {
            return std::future::pending().await;
        }
        let started = Instant::now();
        let mut waiting = None;
        let mut asked: Option<Instant> = None;
        loop {
            if asked.is_none_or(|asked| asked.elapsed() >= ASK_EVERY) {
                waiting = ask_waiting(&socket).await;
                asked = Some(Instant::now());
            }
            let text = line(pool.borrow().counts(), started.elapsed(), waiting);
            self.0.set_message(text);
            tokio::time::sleep(TICK).await;
        }
    }
}

/// Takes the line away when it is dropped.
pub struct Finish(pub Progress);

impl Drop for Finish {
    fn drop(&mut self) {
        self.0.0.finish_and_clear();
    }
}

/// How many jobs wait at the daemon, if it tells.
async fn ask_waiting(socket: &std::path::Path) -> Option<u64> {
    question::ask(socket, "STATUS").await?.get("rows")?.get("pending")?.as_u64()
}

fn line(
    Counts { out: running, done, failed, .. }: Counts,
    time: Duration,
    waiting: Option<u64>,
) -> String {
    let rate = done as f64 / time.as_secs_f64().max(1.0);
    let waiting = waiting.map(|waiting| format!(", {waiting} waiting")).unwrap_or_default();
    format!("{running} running, {done} done, {failed} failed, {rate:.1}/s{waiting}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is not known is left out.
    #[test]
    fn the_line_says_how_it_goes() {
        let time = Duration::from_secs(4);
        let counts = Counts { out: 3, done: 10, failed: 1, ..Counts::default() };
        assert_eq!(line(counts, time, Some(7)), "3 running, 10 done, 1 failed, 2.5/s, 7 waiting");
        assert_eq!(
            line(Counts::default(), Duration::ZERO, None),
            "0 running, 0 done, 0 failed, 0.0/s"
        );
    }
}
