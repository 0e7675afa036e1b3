//! What the RunActor is told, and what it is made of.

use actix::prelude::*;
use shiftboss_actors::clock::Clock;
use shiftboss_actors::exit_notifier::ExitNotifier;

use super::super::machine::{Refusal, Timing};
use super::super::messages::Drain;
use super::super::runs::Runs;
use super::super::status::Status;

/// A run is due by the clock, whether anything changed or not.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Due;

/// Start no more runs, and end the one that is on; the second time kill it. Answers, when it has ended,
/// whether one was on. The actor ends then.
#[derive(Debug, Message)]
#[rtype(result = "bool")]
pub struct Stop;

/// Is told how things are, each time something about it changes.
pub trait Observer {
    /// Takes what is new.
    fn note(&mut self, status: &Status);
}

/// What a RunActor is made of.
pub struct RunParts {
    /// Names it in the log.
    pub name: String,
    /// The machine's times.
    pub timing: Timing,
    /// What runs.
    pub runs: Box<dyn Runs>,
    /// The watch, if there is one: asked at the end of a run for what changed during it.
    pub watch: Option<Recipient<Drain>>,
    /// Who is told how things are.
    pub observer: Box<dyn Observer>,
    /// The wall clock; for the observer alone.
    pub clock: Box<dyn Clock>,
    /// Tells the owner of an error of the program, or by its silence of a panic.
    pub exit_notifier: ExitNotifier<Refusal>,
}
