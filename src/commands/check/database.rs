//! `shiftboss check --database`: is a database sound? If so, a daemon may use it again.

use std::path::Path;

use crate::commands::printing::print;
use crate::exit::{ExitCode, Failure};
use crate::stores;

/// Looks a database through, which no daemon uses meanwhile.
pub fn run(database: &Path) -> Result<(), Failure> {
    let _lock = crate::commands::locked(database)?;
    let findings = stores::findings(database);
    print(findings.iter().map(|line| format!("{line}\n")).collect::<String>())?;
    if !findings.is_empty() {
        let path = database.display();
        let text = format!(
            "the database {path} is damaged, as shown above: restore a backup, or save what can be read with \
             `shiftboss recover {path} NEW`"
        );
        return Err(Failure::new(ExitCode::BadData, text));
    }
    stores::unmark(database).map_err(|error| {
        let text = format!("cannot remove the note beside {}: {error}", database.display());
        Failure::new(ExitCode::CannotCreate, text)
    })?;
    print(format!("{} is sound\n", database.display()))
}
