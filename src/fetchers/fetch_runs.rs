//! Runs that fetch a list: [`crate::change::runs::Runs`] over [`crate::fetch`], as `shiftboss fetch` does it.
//!
//! The command of one that watches is also told what changed. One for each fetcher; [`super::Fetchers`]
//! makes them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{Mutex, oneshot};

use super::output::ToLog;
use crate::change::handover::hand_over;
use crate::change::paths::Changed;
use crate::change::runs::{Outcome, Run, Runs};
use crate::child::Guardian;
use crate::config::FetcherTable;
use crate::exit::ExitCode;
use crate::fetch::{Delivered, FetchError, Fetcher, Given, ListName, Settings};

/// A shell's code for what cannot be executed.
const NOT_EXECUTABLE: u8 = 126;

/// The runs of a fetcher whose lists go to `input`.
pub(super) fn of(
    table: &FetcherTable,
    input: &Path,
    database: &Path,
    guardian: &Guardian,
) -> Box<dyn Runs> {
    let settings = settings(table, input);
    let changes = table.on_change.is_some().then(|| Changes {
        program: settings.program.clone(),
        arguments: settings.arguments.clone(),
        environment: settings.environment.clone(),
        file: table.name.changed_file(database),
    });
    let fetcher = Arc::new(Mutex::new(Fetcher::new(settings, guardian.clone())));
    Box::new(FetchRuns { name: table.name.clone(), fetcher, changes: changes.map(Arc::new) })
}

fn settings(table: &FetcherTable, input: &Path) -> Settings {
    let mut words = table.command.iter().cloned();
    let variable = |(name, value): (&String, &String)| (name.into(), value.into());
    Settings {
        input: input.to_owned(),
        name: table.name.clone(),
        // A command has a program: the file was refused otherwise.
        program: words.next().unwrap_or_default(),
        arguments: words.collect(),
        environment: table.environment.iter().map(variable).collect(),
        directory: Some(table.directory.clone()),
        time_limit: table.timeout,
        grace: table.grace,
        min_lines: table.min_lines,
        min_share: table.min_share,
        live: table.live,
    }
}

struct FetchRuns {
    name: ListName,
    /// Locked by the one run that is on.
    fetcher: Arc<Mutex<Fetcher>>,
    /// `None`: it watches nothing.
    changes: Option<Arc<Changes>>,
}

impl Runs for FetchRuns {
    fn start(&mut self, changed: Changed, stop: oneshot::Receiver<()>) -> Run {
        let (name, fetcher) = (self.name.clone(), Arc::clone(&self.fetcher));
        let changes = self.changes.clone();
        Box::pin(async move {
            let given = match given(changes, changed).await {
                Ok(given) => given,
                Err(message) => return Outcome { exit_code: NOT_EXECUTABLE, message },
            };
            let stopped = async {
                let _ = stop.await;
            };
            let output = Box::new(ToLog::new(name.shared()));
            let mut fetcher = fetcher.lock().await;
            let fetched = fetcher.run(given, output, stopped).await;
            // Between two runs somebody may fetch it by hand.
            fetcher.release();
            outcome(fetched)
        })
    }
}

fn outcome(fetched: Result<Delivered, FetchError>) -> Outcome {
    match fetched {
        Ok(Delivered { file, accepted, faulty }) => {
            Outcome { exit_code: 0, message: format!("{accepted} lines, {faulty} faulty: {file}") }
        }
        Err(error) => Outcome { exit_code: code(&error), message: error.to_string() },
    }
}

fn code(error: &FetchError) -> u8 {
    match error {
        FetchError::Command { end, .. } => end.shell_code(),
        FetchError::Start(error) => error.shell_code(),
        _ => ExitCode::Unavailable as u8,
    }
}

/// What a command is told of changes, and where.
struct Changes {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    file: PathBuf,
}

impl Drop for Changes {
    fn drop(&mut self) {
        // It may never have been written.
        let _ = std::fs::remove_file(&self.file);
    }
}

/// What this run's command is given beyond the settings; else why it cannot be.
async fn given(changes: Option<Arc<Changes>>, changed: Changed) -> Result<Given, String> {
    let Some(changes) = changes else {
        return Ok(Given::default());
    };
    let handed = tokio::task::spawn_blocking(move || {
        let Changes { program, arguments, environment, file } = &*changes;
        hand_over(program, arguments, environment, file, &changed)
    });
    match handed.await {
        Ok(Ok(handed)) => {
            Ok(Given { arguments: Some(handed.arguments), environment: handed.environment })
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the changed paths could not be handed over".to_owned()),
    }
}
