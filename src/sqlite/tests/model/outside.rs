//! Edits by other connections, as the model sees them.

use super::{Log, Model};

impl Model {
    /// `INSERT OR REPLACE` of a log row from outside.
    pub fn replace_log(&mut self, key: &str, row: Log) {
        self.log.insert(key.to_owned(), row);
        if row.1.is_some() {
            self.land(key);
        }
    }

    /// `UPDATE log SET started` from outside.
    pub fn restart_log(&mut self, key: &str, started: i64) {
        if let Some(log) = self.log.get_mut(key) {
            log.0 = started;
        }
    }

    /// `UPDATE log SET finished` from outside.
    pub fn refinish_log(&mut self, key: &str, finished: Option<i64>) {
        if let Some(log) = self.log.get_mut(key) {
            let ends = log.1.is_none() && finished.is_some();
            log.1 = finished;
            if ends {
                self.land(key);
            }
        }
    }

    /// `UPDATE queue SET is_dequeued` of a key in all runs, from outside.
    pub fn set_dispatched(&mut self, key: &str, dispatched: bool) {
        for row in self.queue.iter_mut().filter(|row| row.key == key) {
            row.dispatched = dispatched;
        }
    }
}
