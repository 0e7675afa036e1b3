//! What `serve` lets live in the supervision tree beside the tree's own actors: a spool's intake, and
//! fetchers.

use std::error::Error;
use std::path::Path;

use shiftboss_actors::guest::Guest;
use tokio::sync::watch;

use super::configuration::Configuration;
use crate::config::FetcherTable;
use crate::exit::{ExitCode, Failure};
use crate::fetchers::Fetchers;
use crate::intake::SpoolIntake;
use crate::spool::{Options, Spool};

/// The guests that the configuration asks for; `wanted` are its fetchers, now and later.
///
/// # Errors
/// When the spool cannot be made or opened.
pub(super) fn of(
    configuration: &Configuration,
    wanted: watch::Receiver<Vec<FetcherTable>>,
) -> Result<Vec<Box<dyn Guest>>, Failure> {
    let settings = configuration.in_force();
    let mut guests: Vec<Box<dyn Guest>> = Vec::new();
    if let Some(path) = &settings.spool {
        guests.push(Box::new(intake(path)?));
    }
    // Without a file there are none; those that a former daemon ran are forgotten then.
    let (input, database) = (settings.input.clone(), settings.database.clone());
    guests.push(Box::new(Fetchers::new(input, database, wanted)));
    Ok(guests)
}

fn intake(path: &Path) -> Result<SpoolIntake, Failure> {
    let failure = |error: &dyn Error| {
        let text = format!("cannot use the spool {}: {error}", path.display());
        Failure::new(ExitCode::CannotCreate, text)
    };
    let spool = Spool::create(path, Options { accepting: true, ..Options::default() })
        .map_err(|error| failure(&error))?;
    SpoolIntake::new(spool).map_err(|error| failure(&error))
}
