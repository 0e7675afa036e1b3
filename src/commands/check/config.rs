//! `shiftboss check --config`: reads a configuration file as the daemon would, and starts nothing.
//!
//! What the daemon would refuse is an error, in the file and around it, and so is a command that cannot be run. A
//! missing tree is only noted, because the daemon waits for it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::groups;
use crate::child::{look_for, look_for_in};
use crate::cli::ServeOptions;
use crate::commands::printing::print;
use crate::commands::serve::configuration;
use crate::commands::serve::needs::{self, NETWORK_ADVICE};
use crate::commands::text::shown;
use crate::config::{FetcherTable, File};
use crate::exit::{ExitCode, Failure};
use crate::stores;

pub fn run(file: &Path, lists: &[PathBuf], job_time: Duration) -> Result<(), Failure> {
    let (options, said) = File::read(file)?.all::<ServeOptions>()?;
    let (files, tables) = (options.files(), &options.fetcher);
    let own = configuration::refuse_own_files(file, tables, &files).err();
    let faults = own.into_iter().chain(options.faults(&said)).chain(needs::faults(&files));
    let mut faults: Vec<_> = faults.map(|fault| fault.to_string()).collect();
    let database = files.database.filter(|path| stores::look(path).is_ok());
    faults.extend(database.and_then(stores::unusable));
    let does_start = faults.is_empty();
    faults.extend(tables.iter().filter_map(program));
    let mut out = report(file, &options, &faults);
    for list in lists {
        out += &groups::report(list, &options, job_time)?;
    }
    print(out)?;
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

fn program(table: &FetcherTable) -> Option<String> {
    let program = table.list.command.first()?;
    let found = match table.list.environment.get("PATH") {
        Some(path) => look_for_in(program, path.as_ref()),
        None => look_for(program),
    };
    found.err().map(|error| format!("fetcher {}: {error}", table.list.name.as_str()))
}

fn report(file: &Path, options: &ServeOptions, faults: &[String]) -> String {
    let tables = &options.fetcher;
    let mut out = String::new();
    let needed = [
        ("database", options.database.is_none()),
        ("input_dir", options.common.input_dir.is_none()),
        ("socket", options.common.socket.is_none()),
    ];
    let missing: Vec<&str> =
        needed.into_iter().filter(|(_, is_missing)| *is_missing).map(|(key, _)| key).collect();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        out += &format!("note: {missing}: not in this file, and needed on the command line\n");
    }
    for path in needs::unwritable(&options.files()) {
        let path = shown(&path.display().to_string());
        out += &format!("note: this user may not write to {path}; the daemon's must\n");
    }
    for table in tables {
        out += &format!("fetcher {}: {}\n", shown(table.list.name.as_str()), when(table));
        out.extend(notes(table).iter().map(|note| format!("  note: {note}\n")));
    }
    if !tables.is_empty() {
        out += &format!("note: the unit as it is shipped has no network; {NETWORK_ADVICE}\n");
    }
    out.extend(faults.iter().map(|fault| format!("fault: {}\n", shown(fault))));
    if faults.is_empty() {
        out += &format!("{}: in order\n", shown(&file.display().to_string()));
    }
    out
}

fn when(table: &FetcherTable) -> String {
    let every =
        table.list.every.map(|every| format!("every {}", humantime::format_duration(every)));
    let on_change = table.on_change.as_ref().map(|on_change| {
        let paths = on_change.paths.iter().map(|path| shown(&path.display().to_string()));
        format!("on change in {}", paths.collect::<Vec<_>>().join(", "))
    });
    every.into_iter().chain(on_change).collect::<Vec<_>>().join(", and ")
}

/// Trees that do not exist now.
fn notes(table: &FetcherTable) -> Vec<String> {
    let trees = table.on_change.iter().flat_map(|on_change| &on_change.paths);
    trees
        .filter(|path| !path.is_dir())
        .map(|path| format!("{} is no directory yet", shown(&path.display().to_string())))
        .collect()
}
