//! `shiftboss check --config`: reads a configuration file as the daemon would, and starts nothing.
//!
//! What the daemon would refuse is an error; what may be there by the time it runs (a program, a tree) is only
//! noted.

use std::io::{self, Write};
use std::path::Path;

use crate::child::{look_for, look_for_in};
use crate::cli::ServeOptions;
use crate::commands::serve::configuration;
use crate::commands::text::shown;
use crate::config::{FetcherTable, OwnFiles};
use crate::exit::{self, Failure};

/// Checks a configuration file.
///
/// # Errors
/// `Configuration` with the line that is wrong, or when it cannot be read.
pub fn run(file: &Path) -> Result<(), Failure> {
    let (options, path) = configuration::read(file)?;
    let directory = configuration::directory_of(&path);
    let tables = options.fetcher.iter().map(|table| table.get_ref().clone().below(directory));
    let tables: Vec<_> = tables.collect();
    let options = options.below(directory);
    let own = OwnFiles {
        database: options.database.as_deref(),
        input: options.input_dir.as_deref(),
        socket: options.socket.as_deref(),
    };
    configuration::refuse_own_files(&path, &tables, &own)?;
    print(file, &tables, &missing(&options)).or_else(|error| exit::output_failed(&error))
}

/// What must be said elsewhere, then.
fn missing(options: &ServeOptions) -> Vec<&'static str> {
    let needed = [
        ("database", options.database.is_none()),
        ("input_dir", options.input_dir.is_none()),
        ("socket", options.socket.is_none()),
    ];
    needed.into_iter().filter_map(|(key, is_missing)| is_missing.then_some(key)).collect()
}

fn print(file: &Path, tables: &[FetcherTable], missing: &[&str]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        writeln!(out, "note: {missing}: not in this file, and needed on the command line")?;
    }
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
    let found = table.command.first().map(|program| match table.environment.get("PATH") {
        Some(path) => look_for_in(program, path.as_ref()),
        None => look_for(program),
    });
    if let Some(Err(error)) = found {
        notes.push(shown(&error.to_string()));
    }
    let trees = table.on_change.iter().flat_map(|on_change| &on_change.paths);
    notes.extend(
        trees
            .filter(|path| !path.is_dir())
            .map(|path| format!("{} is no directory yet", shown(&path.display().to_string()))),
    );
    notes
}
