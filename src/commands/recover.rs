//! `shiftboss recover`: saves what can be read of a damaged database into a new one.

use std::path::Path;

use super::printing::print;
use crate::exit::{ExitCode, Failure};
use crate::stores::{Saved, recover};
use crate::text::counted;

pub fn run(database: &Path, new: &Path) -> Result<(), Failure> {
    let _lock = super::locked(database)?;
    if new.symlink_metadata().is_ok() {
        let text = format!("{} exists already: remove it, or choose another name", new.display());
        return Err(Failure::new(ExitCode::CannotCreate, text));
    }
    let saved = recover(database, new).map_err(|error| {
        let (old, new) = (database.display(), new.display());
        let text = format!(
            "cannot recover {old} into {new}: {error}. Restore a backup; `.recover` of sqlite.org's sqlite3 may read more (Debian's has no such command)"
        );
        Failure::new(ExitCode::BadData, text)
    })?;
    print(report(&saved, new))?;
    if saved.iter().any(Saved::lost_for_good) {
        return Err(Failure::silent(ExitCode::Found));
    }
    Ok(())
}

fn report(saved: &[Saved], new: &Path) -> String {
    let mut out = format!("{:<24} {:>10}  lost ranges\n", "Table", "rows");
    for Saved { table, rows, lost_ranges, .. } in saved {
        out += &format!("{table:<24} {rows:>10}  {lost_ranges}\n");
    }
    let new = new.display();
    let again = "At the next start its lists are read again from their files";
    let lost: Vec<_> = saved.iter().filter(|saved| saved.lost_for_good()).map(lost_of).collect();
    out + &if lost.is_empty() {
        format!("{new} is ready. {again}, which bring back all that was lost of them.\n")
    } else {
        format!(
            "{new} is ready, but NOT whole: {} could not be read. {again}; no file brings these rows back.\n",
            lost.join(", ")
        )
    }
}

fn lost_of(Saved { table, lost_ranges, from_ends, .. }: &Saved) -> String {
    let how = if *from_ends { " (read from both ends only)" } else { "" };
    format!("{} of {table}{how}", counted(lost_ranges, "range"))
}
