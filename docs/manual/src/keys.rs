//! The tables of docs/configuration.md: which keys a file may have, from the definitions of the options that they are. A table
//! stands behind a line that names it, and is written anew there; the rest of the document is written by hand.

use clap::{Arg, Command};
use shiftboss::cli::{is_number, tables};

use crate::reference::{paragraphs, without_default};

/// What stands in front of the name of a table.
const MARK: &str = "<!-- keys of ";

/// The document with its tables as they are to be today.
pub fn keys(document: &str, program: &Command) -> String {
    let mut out = String::new();
    let mut lines = document.lines().peekable();
    while let Some(line) = lines.next() {
        out += &format!("{line}\n");
        if let Some(name) = line.strip_prefix(MARK).and_then(|rest| rest.strip_suffix(" -->")) {
            while lines.next_if(|line| line.starts_with('|')).is_some() {}
            out += &table(name, program);
        }
    }
    out
}

fn table(name: &str, program: &Command) -> String {
    if let Some(command) = program.find_subcommand(name) {
        let head = "| key | flag | environment | default |\n|---|---|---|---|\n".to_owned();
        let options = command
            .get_arguments()
            .filter(|it| !["config", "help"].contains(&it.get_id().as_str()));
        return options.fold(head, |table, option| table + &flag_row(option));
    }
    let head = "| key | meaning | default |\n|---|---|---|\n".to_owned();
    let definition = tables().into_iter().find(|(of, _)| *of == name);
    let definition = definition.unwrap_or_else(|| panic!("there is no table {name}")).1;
    definition.get_arguments().fold(head, |table, key| {
        let (help, _) =
            without_default(&key.get_help().map(ToString::to_string).unwrap_or_default());
        let meaning = paragraphs(&help).join(" ").replace('|', "\\|");
        table + &format!("| `{}` | {meaning} | {} |\n", key.get_id(), default(key))
    })
}

fn flag_row(option: &Arg) -> String {
    let name = option.get_id();
    let flag =
        option.get_long().map_or(name.to_string().to_uppercase(), |long| format!("`--{long}`"));
    let variable = option.get_env().map(|name| format!("`{}`", name.to_string_lossy()));
    format!("| `{name}` | {flag} | {} | {} |\n", variable.unwrap_or_default(), default(option))
}

/// A default as a file has it.
fn default(option: &Arg) -> String {
    let help = option.get_help().map(ToString::to_string).unwrap_or_default();
    let written =
        option.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
    match written.or(without_default(&help).1) {
        Some(words) if words.contains(' ') => words,
        Some(value) if is_number(option) && value.parse::<f64>().is_ok() => format!("`{value}`"),
        Some(value) if ["true", "false"].contains(&&*value) => format!("`{value}`"),
        Some(value) => format!("`\"{value}\"`"),
        None if option.is_required_set() || option.is_positional() => "required".to_owned(),
        None => "none".to_owned(),
    }
}
