//! `shiftboss check --database`: is a database sound? If so, a daemon may use it again.

use std::path::Path;

use crate::commands::printing::print;
use crate::exit::{ExitCode, Failure};
use crate::stores::{self, Findings};

/// Looks a database through, which no daemon uses meanwhile.
pub fn run(database: &Path) -> Result<(), Failure> {
    let _lock = crate::commands::locked(database)?;
    let Findings { damage, set_aside } = stores::findings(database);
    let lines = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    print([&damage, &set_aside].map(|it| lines(it)).concat())?;
    let path = database.display();
    if !damage.is_empty() {
        let text = format!(
            "the database {path} is damaged, as shown above: restore a backup, or save what can be read with \
             `shiftboss move --salvage {path} NEW`"
        );
        return Err(Failure::new(ExitCode::BadData, text));
    }
    stores::unmark(database).map_err(|error| {
        let text = format!("cannot remove the note beside {path}: {error}");
        Failure::new(ExitCode::CannotCreate, text)
    })?;
    print(format!("{path} is sound\n"))
}
