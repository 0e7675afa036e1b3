//! The settings in force, from the command line and then from a file, read at the start and again at SIGHUP.
//!
//! `serve` makes it, signals reload it, and the services of fetchers and groups follow it.

use std::path::Path;

use shiftboss_queue::groups::GroupRules;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tracing::{error, info, warn};

use crate::cli::{ServeArguments, ServeSettings};
use crate::config::{DaemonFiles, FetcherTable, check_own_files};
use crate::exit::{ExitCode, Failure};

/// The settings from the arguments, and the file that they name.
pub(super) fn settle(typed: &ServeArguments) -> Result<ServeSettings, Failure> {
    let file = typed.read_file()?;
    let settings = ServeSettings::new(typed, file.as_ref())?;
    let path = typed.file.as_deref().unwrap_or(Path::new(""));
    refuse_own_files(path, &settings.fetchers, &settings.files())?;
    Ok(settings)
}

pub(in crate::commands) fn refuse_own_files(
    path: &Path,
    tables: &[FetcherTable],
    own: &DaemonFiles<'_>,
) -> Result<(), Failure> {
    check_own_files(tables, own).map_err(|fault| {
        Failure::new(ExitCode::Configuration, format!("{}: {fault}", path.display()))
    })
}

pub(in crate::commands) struct Configuration {
    typed: ServeArguments,
    in_force: ServeSettings,
    fetchers: watch::Sender<Vec<FetcherTable>>,
    groups: watch::Sender<GroupRules>,
}

/// What a running daemon follows of a configuration that is read again: now and later.
pub(super) struct Wanted {
    pub(super) fetchers: watch::Receiver<Vec<FetcherTable>>,
    pub(super) groups: watch::Receiver<GroupRules>,
}

impl Configuration {
    /// The settings in force from the start.
    pub(super) fn new(typed: ServeArguments, in_force: ServeSettings) -> (Self, Wanted) {
        let (fetchers, wanted) = watch::channel(in_force.fetchers.clone());
        let (groups, wanted_groups) = watch::channel(in_force.store.groups_in_force());
        let wanted = Wanted { fetchers: wanted, groups: wanted_groups };
        (Self { typed, in_force, fetchers, groups }, wanted)
    }

    pub(super) fn in_force(&self) -> &ServeSettings {
        &self.in_force
    }

    /// Reads the file again. A faulty file changes nothing; of a good one fetchers and groups are followed at once,
    /// and what takes a restart is named.
    pub(super) async fn reload(&mut self) {
        let Some(path) = self.typed.file.clone() else {
            return info!("SIGHUP is ignored: there is no configuration file to be read again.");
        };
        let typed = self.typed.clone();
        // Beside the runtime's thread: a disk may take its time.
        let Ok(read) = spawn_blocking(move || settle(&typed)).await else {
            return error!("Reading the configuration broke off; the old one stays in force.");
        };
        // Paths that were changed are not in force: what the daemon writes is where it was.
        let read = read.and_then(|new| {
            refuse_own_files(&path, &new.fetchers, &self.in_force.files()).map(|()| new)
        });
        let new = match read {
            Ok(new) => new,
            Err(reason) => {
                return error!(%reason, "The configuration is refused as a whole; the old one stays in force.");
            }
        };
        let waiting = new.differences(&self.in_force);
        if !waiting.is_empty() {
            let settings = waiting.join(", ");
            warn!(settings, "Changed in the configuration, and in force after a restart only.");
        }
        let (file, fetchers) = (path.display(), new.fetchers.len());
        info!(%file, fetchers, "The configuration was read again.");
        // Also if they are what they were: another daemon of the queue may have brought others.
        self.groups.send_replace(new.store.groups_in_force());
        self.fetchers.send_replace(new.fetchers);
    }
}
