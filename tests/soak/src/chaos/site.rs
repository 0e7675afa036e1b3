//! The daemons and relays of a chaos run, and what they depend on.

use std::io;
use std::time::Duration;

use tempfile::TempDir;

use super::daemons::Daemon;
use super::faults::{Held, OfServer};
use crate::random::Random;

pub struct Site {
    // In the order in which they go.
    pub daemons: Vec<Daemon>,
    pub hub: Box<dyn Hub>,
    pub _home: TempDir,
}

/// The server or the broker that all use, and the database in which all ends up.
pub trait Hub {
    /// How soon after the end of all faults each daemon hands out a job, by itself.
    fn recovery_max(&self) -> Duration;

    /// All faults that it may have, in an order that is drawn.
    fn faults(&self, random: &mut Random) -> Vec<OfServer>;

    /// # Errors
    /// When it cannot be done.
    fn begin(&mut self, fault: OfServer, time: Duration) -> io::Result<Held>;

    /// # Errors
    /// When it cannot be undone.
    fn end(&mut self, fault: OfServer) -> io::Result<()>;

    /// What is there that must not be when all is worked off, in words.
    ///
    /// # Errors
    /// When it does not answer.
    fn left(&self) -> io::Result<Vec<String>>;

    /// Keys, and the codes of their last results.
    ///
    /// # Errors
    /// When it does not answer.
    fn logged(&self) -> io::Result<Vec<(String, Option<i64>)>>;
}

/// What gives no 0, in words.
///
/// # Errors
/// When a question cannot be answered.
pub fn unsound(
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
