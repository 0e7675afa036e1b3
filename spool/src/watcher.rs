//! The monitor as a daemon: looks again and again, and tells which problems begin and end.

use std::collections::HashMap;
use std::time::SystemTime;

use serde::Serialize;

use super::Spool;
use super::error::Result;
use super::monitor::{Limits, Problem, Report};
use super::stop::Stop;
use super::time::unix_seconds;

/// The beginning or the end of a problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// It was seen in enough scans.
    Start {
        /// When.
        #[serde(serialize_with = "unix_seconds")]
        time: SystemTime,
        /// What.
        problem: Problem,
    },
    /// It was not seen any more.
    End {
        /// When.
        #[serde(serialize_with = "unix_seconds")]
        time: SystemTime,
        /// What.
        problem: Problem,
    },
}

impl Spool {
    /// Looks again and again until the signal, and tells what begins and ends. A look that fails is
    /// told too, and the next is made all the same.
    pub fn monitor_daemon(
        &self,
        limits: &Limits,
        stop: &Stop,
        mut tell: impl FnMut(Result<Event>),
    ) {
        let mut monitor = Monitor::new(limits.alert_after);
        loop {
            match self.monitor(limits) {
                Ok(report) => {
                    let events = monitor.update(&report, SystemTime::now());
                    events.into_iter().for_each(|event| tell(Ok(event)));
                }
                Err(error) => tell(Err(error)),
            }
            if stop.wait(limits.every) {
                return;
            }
        }
    }
}

/// Problems over several looks: which of them begin and end.
#[derive(Debug)]
pub struct Monitor {
    alert_after: u32,
    /// In how many looks, one after the other, each was seen.
    seen: HashMap<Problem, u32>,
}

impl Monitor {
    /// One that has seen nothing; see [`Limits::alert_after`].
    #[must_use]
    pub fn new(alert_after: u32) -> Self {
        Self { alert_after, seen: HashMap::new() }
    }

    /// Takes what a look found; ends before beginnings, each in order.
    pub fn update(&mut self, report: &Report, time: SystemTime) -> Vec<Event> {
        let mut before = std::mem::take(&mut self.seen);
        let mut starts = Vec::new();
        for problem in &report.problems {
            let count = before.remove(problem).unwrap_or(0).saturating_add(1);
            if count == self.alert_after.saturating_add(1) {
                starts.push(Event::Start { time, problem: problem.clone() });
            }
            self.seen.insert(problem.clone(), count);
        }
        let ended = before.into_iter().filter(|(_, count)| *count > self.alert_after);
        let mut ended: Vec<_> = ended.map(|(problem, _)| problem).collect();
        ended.sort();
        let ends = ended.into_iter().map(|problem| Event::End { time, problem });
        ends.chain(starts).collect()
    }
}
