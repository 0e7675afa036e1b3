//! Lists from files, as a daemon would read them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shiftboss_protocol::fetcher_file::{FileName, Line, Named};
use shiftboss_protocol::model::Row;

use crate::exit::{ExitCode, Failure};
use crate::fetch::read_lines;
use crate::text::counted;

/// Files by fetcher: their numbers, and whether they grow.
type Newest<'a> = BTreeMap<Arc<str>, (i64, &'a Path, bool)>;

/// Takes the lines of each fetcher's newest file; says how many are left out.
pub fn read(
    paths: &[PathBuf],
    mut take: impl FnMut(&Arc<str>, Row) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut skipped = 0_u64;
    for (fetcher, (_, path, is_growing)) in newest(paths)? {
        let mut taken = Ok(());
        let one = |line| match line {
            Line::Row(row) if taken.is_ok() => taken = take(&fetcher, row),
            Line::Row(_) => {}
            Line::Skipped { .. } => skipped += 1,
        };
        let read = File::open(path).and_then(|file| read_lines(file, is_growing, one));
        read.map_err(|why| {
            let text = format!("cannot read the list {}: {why}", path.display());
            Failure::new(ExitCode::Unavailable, text)
        })?;
        taken?;
    }
    if skipped > 0 {
        let skipped = counted(skipped, "faulty line");
        let text = format!("shiftboss: {skipped} left out; `shiftboss check` says which\n");
        // There may be no reader.
        let _ = io::stderr().write_all(text.as_bytes());
    }
    Ok(())
}

fn newest(paths: &[PathBuf]) -> Result<Newest<'_>, Failure> {
    let mut newest = Newest::new();
    for path in paths {
        let refused = |why: &str| Failure::usage(format!("{}: {why}", path.display()));
        let file = match FileName::parse(path.file_name().unwrap_or_default()) {
            Named::Fetcher(file) => file,
            Named::Bad(fault) => return Err(refused(&fault.to_string())),
            Named::Hidden | Named::Other => {
                return Err(refused("a list is a file that is named FETCHER.NUMBER.txt"));
            }
        };
        // A pipe in its place might never end.
        if !path.is_file() {
            return Err(refused("there is no such file: give a fetcher's list"));
        }
        let found = (file.run.started, path.as_path(), file.growing);
        let known = newest.entry(file.run.fetcher).or_insert(found);
        if found.0 > known.0 {
            *known = found;
        }
    }
    Ok(newest)
}
