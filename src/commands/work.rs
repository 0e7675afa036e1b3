//! `shiftboss work`: wires [`crate::worker`] to signals.

use crate::child;
use crate::exit::{ExitCode, Failure};
use crate::program::with_signals;
use crate::signals::SIGNAL_BASE;
use crate::standard_error;
use crate::worker::{self, Settings};

/// Works. After a second signal the process ends here, with 128 and the signal's number.
pub fn run(settings: Settings) -> Result<(), Failure> {
    child::look_for(&settings.runner.template.program).map_err(|error| {
        Failure::new(ExitCode::Configuration, format!("no job was taken: {error}"))
    })?;
    let killed = with_signals(async |mut signals| worker::run(settings, &mut signals).await)?;
    match killed {
        None => Ok(()),
        Some(signal) => standard_error::exit(SIGNAL_BASE + signal),
    }
}
