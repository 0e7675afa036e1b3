//! What `serve` lets live in the supervision tree beside the tree's own actors: a spool's intake.

use std::error::Error;

use shiftboss_actors::guest::Guest;

use crate::cli::ServeSettings;
use crate::exit::{ExitCode, Failure};
use crate::intake::SpoolIntake;
use crate::spool::{Options, Spool};

/// The guests that the settings ask for.
///
/// # Errors
/// When the spool cannot be made or opened.
pub(super) fn of(settings: &ServeSettings) -> Result<Vec<Box<dyn Guest>>, Failure> {
    let Some(path) = &settings.spool else {
        return Ok(Vec::new());
    };
    let failure = |error: &dyn Error| {
        let text = format!("cannot use the spool {}: {error}", path.display());
        Failure::new(ExitCode::CannotCreate, text)
    };
    let spool = Spool::create(path, Options::default()).map_err(|error| failure(&error))?;
    let intake = SpoolIntake::new(spool).map_err(|error| failure(&error))?;
    Ok(vec![Box::new(intake)])
}
