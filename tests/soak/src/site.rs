//! The daemons and relays of a soak, and what they depend on: a file, a PostgreSQL server, or a broker and one of these.

pub mod broker;
mod daemons;
pub mod file;
pub mod postgres;

use std::io;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::Soak;
use crate::faults::OfServer;
use crate::random::Random;
pub use daemons::Daemon;

const GLANCE: Duration = Duration::from_millis(20);

pub struct Site {
    // In the order in which they go.
    pub daemons: Vec<Daemon>,
    pub hub: Box<dyn Hub>,
    _home: TempDir,
}

impl Site {
    /// Waits until all accept workers.
    pub fn wait_up(&mut self) -> io::Result<()> {
        while !self.daemons.iter().all(Daemon::is_up) {
            thread::sleep(GLANCE);
            self.daemons.iter_mut().try_for_each(Daemon::watch)?;
        }
        Ok(())
    }

    /// Pauses, and looks whether a daemon ended that nobody ended.
    pub fn watch(&mut self, soak: &Soak) {
        thread::sleep(GLANCE);
        self.daemons.iter_mut().for_each(|daemon| soak.check(daemon.watch()));
    }
}

/// The database in which all ends up, and the server or the broker that all use.
pub trait Hub {
    /// How soon after the end of all faults each daemon hands out a job, by itself.
    fn recovery_max(&self) -> Duration {
        Duration::ZERO
    }

    /// All faults that it may have, in an order that is drawn.
    fn faults(&self, _random: &mut Random) -> Vec<OfServer> {
        Vec::new()
    }

    fn begin(&mut self, _fault: OfServer, _time: Duration) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self, _fault: OfServer) -> io::Result<()> {
        Ok(())
    }

    /// What is there that must not be when all is worked off, in words.
    fn left(&self) -> io::Result<Vec<String>>;

    /// Keys, and the codes of their last results.
    fn logged(&self) -> io::Result<Vec<(String, Option<i64>)>>;
}

/// What gives no 0, in words.
fn unsound(
    questions: &[(&str, &str)],
    ask: impl Fn(&str) -> io::Result<String>,
) -> io::Result<Vec<String>> {
    let mut unsound = Vec::new();
    for (what, sql) in questions {
        let count = ask(sql)?;
        if count != "0" {
            unsound.push(format!("{count} {what}"));
        }
    }
    Ok(unsound)
}
