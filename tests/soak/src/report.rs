//! What a run tells: events, and faults, which are printed when they are seen; the run goes on, and fails at its end.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Faults that are printed; further ones are counted.
const FAULTS_SHOWN: usize = 20;
/// Events that are printed with the first fault.
const EVENTS_KEPT: usize = 60;

/// Shared by all parts of a run.
pub struct Report {
    /// Since when it lasts.
    pub begun: Instant,
    told: Mutex<Told>,
    /// Events are printed at once, too.
    is_verbose: bool,
}

#[derive(Default)]
struct Told {
    faults: usize,
    events: VecDeque<String>,
}

impl Report {
    pub fn new(is_verbose: bool) -> Self {
        Self { begun: Instant::now(), told: Mutex::default(), is_verbose }
    }

    /// Keeps what happened for the first fault.
    pub fn event(&self, text: &str) {
        let text = format!("{:8.3} s: {text}", self.begun.elapsed().as_secs_f64());
        if self.is_verbose {
            println!("{text}");
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.events.len() == EVENTS_KEPT {
            told.events.pop_front();
        }
        told.events.push_back(text);
    }

    /// Says that something is not as it must be.
    pub fn fault(&self, text: &str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.faults += 1;
        match told.faults {
            ..=FAULTS_SHOWN => {
                eprintln!("FAULT after {:.3} s: {text}", self.begun.elapsed().as_secs_f64());
            }
            number if number == FAULTS_SHOWN + 1 => eprintln!("FAULT: further ones are not shown"),
            _ => {}
        }
        for event in std::mem::take(&mut told.events) {
            eprintln!("    {event}");
        }
    }

    /// Prints the end. Returns whether all held.
    pub fn conclude(&self) -> bool {
        let faults = self.told.lock().unwrap_or_else(PoisonError::into_inner).faults;
        match faults {
            0 => println!("soak: all held"),
            _ => eprintln!("soak: FAILED, {faults} faults; see above"),
        }
        faults == 0
    }
}
