//! `shiftboss check --config`: reads a configuration file as the daemon would, and starts nothing.
//!
//! What the daemon would refuse is an error, in the file and around it, and so is a command that cannot be run;
//! a tree that is not there, which the daemon waits for, is only noted.

use std::io::{self, Write};
use std::path::Path;

use super::needs;
use crate::child::{look_for, look_for_in};
use crate::cli::ServeOptions;
use crate::commands::serve::configuration;
use crate::commands::serve::network::ADVICE;
use crate::commands::text::shown;
use crate::config::{self, FetcherTable, OwnFiles};
use crate::exit::{self, ExitCode, Failure};

pub fn run(file: &Path) -> Result<(), Failure> {
    let (options, path) = config::read::<ServeOptions>(file)?;
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
    let mut faults = needs::faults(&options);
    let does_start = faults.is_empty();
    faults.extend(tables.iter().filter_map(program));
    print(file, &options, &tables, &faults).or_else(|error| exit::output_failed(&error))?;
    if faults.is_empty() {
        return Ok(());
    }
    let why = match does_start {
        true => "a fetcher's command cannot be run",
        false => "`serve` would not start with this",
    };
    let text = format!("{}: {why}", shown(&file.display().to_string()));
    Err(Failure::new(ExitCode::Configuration, text))
}

/// Why the program of a fetcher's command cannot be run.
fn program(table: &FetcherTable) -> Option<String> {
    let program = table.command.first()?;
    let found = match table.environment.get("PATH") {
        Some(path) => look_for_in(program, path.as_ref()),
        None => look_for(program),
    };
    found.err().map(|error| format!("fetcher {}: {error}", table.name.as_str()))
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

fn print(
    file: &Path,
    options: &ServeOptions,
    tables: &[FetcherTable],
    faults: &[String],
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let missing = missing(options);
    if !missing.is_empty() {
        let missing = missing.join(", ");
        writeln!(out, "note: {missing}: not in this file, and needed on the command line")?;
    }
    for path in needs::unwritable(options) {
        let path = shown(&path.display().to_string());
        writeln!(out, "note: this user may not write to {path}; the daemon's must")?;
    }
    for table in tables {
        writeln!(out, "fetcher {}: {}", shown(table.name.as_str()), when(table))?;
        for note in notes(table) {
            writeln!(out, "  note: {note}")?;
        }
    }
    if !tables.is_empty() {
        writeln!(out, "note: the unit as it is shipped has no network; {ADVICE}")?;
    }
    for fault in faults {
        writeln!(out, "fault: {}", shown(fault))?;
    }
    if faults.is_empty() {
        writeln!(out, "{}: in order", shown(&file.display().to_string()))?;
    }
    Ok(())
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
    let trees = table.on_change.iter().flat_map(|on_change| &on_change.paths);
    trees
        .filter(|path| !path.is_dir())
        .map(|path| format!("{} is no directory yet", shown(&path.display().to_string())))
        .collect()
}
