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

/// What runs beside the tree, and the spool that one of them takes tasks from.
type Services = (Vec<Box<dyn Service>>, Option<Spool>);

/// The services that the configuration asks for; `wanted` are its fetchers, now and later.
pub(super) fn of(
    configuration: &Configuration,
    wanted: watch::Receiver<Vec<FetcherTable>>,
) -> Result<Services, Failure> {
    let settings = configuration.in_force();
    let mut services: Vec<Box<dyn Service>> = Vec::new();
    let intake = settings.spool.as_deref().map(intake).transpose()?;
    let spool = intake.map(|(spool, intake)| {
        services.push(Box::new(intake));
        spool
    });
    // Without a file there are none; those that a former daemon ran are forgotten then.
    let (input, database) = (settings.input.clone(), settings.database.clone());
    services.push(Box::new(Fetchers::new(input, database, wanted)));
    Ok((services, spool))
}

fn intake(path: &Path) -> Result<(Spool, SpoolIntake), Failure> {
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
    let intake = SpoolIntake::new(spool.clone(), lock);
    let intake = intake.map_err(|error| failure(ExitCode::CannotCreate, &error))?;
    Ok((spool, intake))
}
