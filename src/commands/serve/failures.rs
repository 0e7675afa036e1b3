//! What made the daemon end, as an exit code and a message. The part of `serve` that knows the errors of all
//! others.

use std::path::Path;

use shiftboss_actors::tree::TreeError;

use crate::exit::{ExitCode, Failure};
use crate::lock::LockError;

pub(in crate::commands) fn lock_failure(error: LockError) -> Failure {
    let code = match error {
        LockError::Held { .. } | LockError::Watched { .. } | LockError::Taken { .. } => {
            ExitCode::AlreadyRunning
        }
        LockError::Io { .. } => ExitCode::CannotCreate,
    };
    Failure::new(code, error.to_string())
}

/// Found while it was used.
pub(super) fn corrupt(database: &Path, fault: &str) -> Failure {
    let path = database.display();
    let text = format!(
        "the database {path} is corrupt: {fault}. It is not used any more. Restore a backup, or save what can be \
         read with `shiftboss recover {path} NEW`; `shiftboss check --database {path}` tells all that is wrong, \
         and allows its use if nothing is"
    );
    Failure::new(ExitCode::BadData, text)
}

pub(super) fn tree_failure(error: TreeError) -> Failure {
    let code = match error {
        TreeError::Storage(_) | TreeError::Hangs => ExitCode::StoreIo,
        TreeError::Input { .. } => ExitCode::Configuration,
        TreeError::Socket(_) => ExitCode::CannotCreate,
        TreeError::Panicked(_) => ExitCode::Internal,
    };
    Failure::new(code, error.to_string())
}
