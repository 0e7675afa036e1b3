//! What the RunActor needs of whatever runs: a way to start a run, to ask it to stop, and to hear how it
//! ended. [`super::command_runs`] starts a command; other users start what is theirs.

use std::pin::Pin;

use tokio::sync::oneshot;

use super::paths::Changed;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// 0: well; else as a shell would report it.
    pub exit_code: u8,
    /// What is to be said of it: the reason, if it failed.
    pub message: String,
}

/// A run that goes on. Dropped, it is killed, and nothing of it is left.
pub type Run = Pin<Box<dyn Future<Output = Outcome>>>;

/// Starts runs, one at a time.
pub trait Runs {
    /// Starts a run for what changed. It is to end soon after `stop` resolves, of whichever kind.
    fn start(&mut self, changed: Changed, stop: oneshot::Receiver<()>) -> Run;
}
