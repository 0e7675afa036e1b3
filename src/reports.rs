//! Answers to operators over the socket: the actors' port [`Reports`] over the database's views.
//!
//! Made by `serve`. Every question opens the database for reading and closes it again: operators ask
//! seldom, and a reader that stays keeps the database's log from being cut.

use std::path::PathBuf;

use serde::Serialize;
use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_actors::reports::{ReportError, Reports};
use shiftboss_actors::wire::session::Question;

use crate::sqlite::{ViewError, queue_status};

/// Reads the database at a path.
#[derive(Debug)]
pub struct DatabaseReports(pub PathBuf);

impl Reports for DatabaseReports {
    fn answer(&self, question: &Question) -> Result<String, ReportError> {
        let now = SystemClock.now();
        match question {
            Question::Status => line(queue_status(&self.0, now)),
            Question::Why(_) | Question::Queue(_) | Question::Log(_) => {
                Err(ReportError::Unavailable("not yet".to_owned()))
            }
        }
    }
}

fn line<T: Serialize>(looked: Result<T, ViewError>) -> Result<String, ReportError> {
    let looked = looked.map_err(|error| ReportError::Unavailable(error.to_string()))?;
    serde_json::to_string(&looked).map_err(|error| ReportError::Unavailable(error.to_string()))
}
