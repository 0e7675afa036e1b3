//! The progress line on a terminal: how many jobs run, succeeded and failed, how fast, how many wait, and how
//! long those take.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use shiftboss_protocol::verbs::{Lease, Name, Status, StatusAnswer};
use shiftboss_protocol::wire::session::Hello;
use tokio::sync::watch;

use super::connection::Connection;
use super::pool::{Counts, Pool};
use crate::runner::command::print;
use crate::terminal::{is_shared, progress_line};
use crate::text::span;
use crate::{logging, standard_error};

/// Between two changes of the line.
const TICK: Duration = Duration::from_millis(250);
/// Between two questions how many jobs wait. The answer counts rows, so it is not asked for often.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// Looks at the daemon's count while jobs are being handed out, and the time between two of them.
const LOOKS_MAX: u32 = 5;
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// No longer time is shown, in seconds: a hundred years.
const TIME_SHOWN_MAX: i64 = 100 * 366 * 86_400;

/// A line on standard error; nothing if that is not a terminal. Clones are the same line.
#[derive(Clone)]
pub struct Progress(ProgressBar);

impl Progress {
    /// The line, above which events are logged from now on.
    pub fn new() -> Self {
        let bar = progress_line();
        if bar.is_hidden() {
            return Self(bar);
        }
        if let Ok(style) = ProgressStyle::with_template("{msg}; {elapsed} so far") {
            bar.set_style(style);
        }
        bar.set_message(line(Counts::default(), Duration::ZERO, None));
        logging::share_terminal(bar.clone());
        Self(bar)
    }

    /// Prints what commands print, above the line if that is on the same terminal. Waits for the reader.
    pub fn print(&self, text: &[u8]) -> io::Result<()> {
        if self.0.is_hidden() || !is_shared() {
            return print(text);
        }
        let above = |part: &[u8]| self.0.suspend(|| standard_error::write(part));
        standard_error::write_patiently(text, above);
        Ok(())
    }

    /// Takes the line away.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }

    /// Keeps the line up to date. Never resolves.
    pub async fn follow(self, pool: watch::Receiver<Pool>, socket: PathBuf) {
        if self.0.is_hidden() {
            return std::future::pending().await;
        }
        let started = Instant::now();
        let mut waiting = None;
        let mut taken_before = 0;
        let mut asked: Option<Instant> = None;
        loop {
            if asked.is_none_or(|asked| asked.elapsed() >= ASK_EVERY) {
                (waiting, taken_before) = look(&pool, &socket).await;
                asked = Some(Instant::now());
            }
            let counts = pool.borrow().counts;
            // Jobs taken since the question are running, or have run: they do not wait.
            let since = counts.taken().saturating_sub(taken_before);
            let left = waiting.map(|waiting| waiting.saturating_sub(since));
            self.0.set_message(line(counts, started.elapsed(), left));
            tokio::time::sleep(TICK).await;
        }
    }
}

/// How many jobs wait at the daemon, if it answers, and how many were taken before it counted them. With very short
/// jobs the two may differ by a few.
async fn look(pool: &watch::Receiver<Pool>, socket: &Path) -> (Option<u64>, u64) {
    let now = || {
        let pool = pool.borrow();
        (pool.counts.taken(), pool.asking > 0)
    };
    let mut looks = 1;
    loop {
        let before @ (taken, is_asking) = now();
        let waiting = ask_waiting(socket).await;
        if looks == LOOKS_MAX || (before == now() && !is_asking) {
            return (waiting, taken);
        }
        looks += 1;
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// How many jobs wait at the daemon. It only answers its operators, and a classic daemon answers no one.
async fn ask_waiting(socket: &Path) -> Option<u64> {
    let mut connection = Connection::connect(socket).await.ok()?;
    let hello = Hello { worker: Name::resembling("shiftboss-progress"), lease: Lease::USUAL };
    connection.send(format_args!("{hello}\n{}", Status {})).await.ok()?;
    connection.line(Duration::ZERO).await.ok()??;
    let status = connection.line(Duration::ZERO).await.ok()??;
    let status: StatusAnswer = serde_json::from_slice(&status).ok()?;
    u64::try_from(status.queue?.found.rows.pending).ok()
}

fn line(
    Counts { out: running, done, failed, .. }: Counts,
    time: Duration,
    waiting: Option<u64>,
) -> String {
    let rate = done as f64 / time.as_secs_f64().max(1.0);
    let succeeded = done.saturating_sub(failed);
    let mut text =
        format!("{running} running, {succeeded} succeeded, {failed} failed, {rate:.1}/s");
    if let Some(waiting) = waiting {
        text.push_str(&format!(", {waiting} waiting"));
        let jobs = waiting + running;
        if jobs > 0 && rate > 0.0 {
            let rest = span(((jobs as f64 / rate).ceil() as i64).min(TIME_SHOWN_MAX));
            text.push_str(&format!(", about {rest} left"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unknown values are left out.
    #[test]
    fn the_line_says_how_it_goes() {
        let time = Duration::from_secs(4);
        let counts = Counts { out: 3, done: 10, failed: 1, ..Counts::default() };
        let begin = "3 running, 9 succeeded, 1 failed, 2.5/s";
        assert_eq!(line(counts, time, Some(7)), format!("{begin}, 7 waiting, about 4s left"));
        assert_eq!(line(counts, time, None), begin);
        let many = line(counts, time, Some(1_000_000));
        assert_eq!(many, format!("{begin}, 1000000 waiting, about 4days 15h left"));
        assert_eq!(
            line(Counts::default(), Duration::ZERO, Some(2)),
            "0 running, 0 succeeded, 0 failed, 0.0/s, 2 waiting"
        );
    }
}
