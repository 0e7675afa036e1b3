//! What `serve` lets live in the supervision tree beside the tree's own actors: a spool's intake, and
//! fetchers.

use std::error::Error;
use std::path::Path;

use shiftboss_actors::service::Service;
use tokio::sync::watch;

use super::configuration::Configuration;
use crate::config::FetcherTable;
use crate::exit::{ExitCode, Failure};
use crate::fetchers::Fetchers;
use crate::intake::SpoolIntake;
use shiftboss_spool::{Options, Spool, SpoolError};

/// The services that the configuration asks for; `wanted` are its fetchers, now and later.
pub(super) fn of(
    configuration: &Configuration,
    wanted: watch::Receiver<Vec<FetcherTable>>,
) -> Result<Vec<Box<dyn Service>>, Failure> {
    let settings = configuration.in_force();
    let mut services: Vec<Box<dyn Service>> = Vec::new();
    if let Some(path) = &settings.spool {
        services.push(Box::new(intake(path)?));
    }
    // Without a file there are none; those that a former daemon ran are forgotten then.
    let (input, database) = (settings.input.clone(), settings.database.clone());
    services.push(Box::new(Fetchers::new(input, database, wanted)));
    Ok(services)
}

fn intake(path: &Path) -> Result<SpoolIntake, Failure> {
    let failure = |code, error: &dyn Error| {
        Failure::new(code, format!("cannot use the spool {}: {error}", path.display()))
    };
    let refused = |error: SpoolError| match error {
        SpoolError::Accepting(_) => failure(ExitCode::AlreadyRunning, &error),
        error => failure(ExitCode::CannotCreate, &error),
    };
    let options = Options { accepting: true, ..Options::default() };
    let spool = Spool::create(path, options).map_err(refused)?;
    let lock = spool.lock_accepting().map_err(refused)?;
    SpoolIntake::new(spool, lock).map_err(|error| failure(ExitCode::CannotCreate, &error))
}
