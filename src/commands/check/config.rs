//! `shiftboss check --config`: reads a configuration file as the daemon would, and starts nothing.
//!
//! What the daemon would refuse is an error; what may be there by the time it runs (a program, a tree) is only
//! noted.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::cli::ServeOptions;
use crate::commands::text::shown;
use crate::config::{self, FetcherTable};
use crate::exit::{self, ExitCode, Failure};

/// Checks a configuration file.
///
/// # Errors
/// `Configuration` with the line that is wrong, or when it cannot be read.
pub fn run(file: &Path) -> Result<(), Failure> {
    let refused =
        |error: &dyn std::error::Error| Failure::new(ExitCode::Configuration, error.to_string());
    let path = std::path::absolute(file).map_err(|error| refused(&error))?;
    let options: ServeOptions = config::read(&path).map_err(|error| refused(&error))?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    let tables = options.fetcher.into_iter().map(|table| table.into_inner().below(directory));
    print(file, &tables.collect::<Vec<_>>()).or_else(|error| exit::output_failed(&error))
}

fn print(file: &Path, tables: &[FetcherTable]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for table in tables {
        writeln!(out, "fetcher {}: {}", shown(table.name.as_str()), when(table))?;
        for note in notes(table) {
            writeln!(out, "  note: {note}")?;
        }
    }
    writeln!(out, "{}: in order", shown(&file.display().to_string()))
}

fn when(table: &FetcherTable) -> String {
    let every = table.every.map(|every| format!("every {}", humantime::format_duration(every)));
    let on_change = table.on_change.as_ref().map(|on_change| {
        let paths = on_change.paths.iter().map(|path| shown(&path.display().to_string()));
        format!("on change in {}", paths.collect::<Vec<_>>().join(", "))
    });
    every.into_iter().chain(on_change).collect::<Vec<_>>().join(", and ")
}

/// What is not there now.
fn notes(table: &FetcherTable) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(program) = table.command.first().filter(|program| !is_program(program)) {
        let program = shown(&program.to_string_lossy());
        notes.push(format!("there is no program {program} that this user could run"));
    }
    let trees = table.on_change.iter().flat_map(|on_change| &on_change.paths);
    notes.extend(
        trees
            .filter(|path| !path.is_dir())
            .map(|path| format!("{} is no directory yet", shown(&path.display().to_string()))),
    );
    notes
}

/// Whether there is such a program: in `PATH`, if its name has no slash.
fn is_program(program: &OsStr) -> bool {
    if program.as_encoded_bytes().contains(&b'/') {
        return is_executable(Path::new(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory: PathBuf| is_executable(&directory.join(program)))
}

fn is_executable(path: &Path) -> bool {
    let looked = fs::metadata(path);
    looked.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
