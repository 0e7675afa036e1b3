//! The command reference, docs/commands.md: what clap tells of each command, and the notes that no definition has.

use std::fmt::Write;

use clap::{Arg, Command};

use crate::{page, tables};

/// The notes of each command, and what stands in front of all of them.
const INTRODUCTION: &str = include_str!("../notes/introduction.md");
const NOTES: [(&str, &str); 13] = [
    ("serve", include_str!("../notes/serve.md")),
    ("status", include_str!("../notes/status.md")),
    ("why", include_str!("../notes/why.md")),
    ("tasks", include_str!("../notes/tasks.md")),
    ("log", include_str!("../notes/log.md")),
    ("drain", include_str!("../notes/drain.md")),
    ("add", include_str!("../notes/add.md")),
    ("ask", include_str!("../notes/ask.md")),
    ("fetch", include_str!("../notes/fetch.md")),
    ("work", include_str!("../notes/work.md")),
    ("on-change", include_str!("../notes/on-change.md")),
    ("shiftspool take", include_str!("../notes/shiftspool-take.md")),
    ("shiftspool run", include_str!("../notes/shiftspool-run.md")),
];

/// The whole reference of both programs, as Markdown.
pub fn reference([shiftboss, shiftspool]: [&Command; 2]) -> String {
    let mut out = String::from(INTRODUCTION);
    let line = |command: &Command| {
        let (name, about) = (page::name(command), command.get_about().map(ToString::to_string));
        let about = about.map(|text| prose(&text)).unwrap_or_default();
        let anchor = page::full_name(command).replace(' ', "-");
        format!("| [`{name}`](#{anchor}) | {about} |\n")
    };
    out.push_str("\n## All commands\n\n| command | what it does |\n|---|---|\n");
    out.extend(shown(shiftboss).chain(shown(shiftspool)).map(line));
    shown(shiftboss).for_each(|command| add(command, &mut out));
    add(shiftspool, &mut out);
    out
}

/// A command, and those below it.
fn add(command: &Command, out: &mut String) {
    let (name, full) = (page::name(command), page::full_name(command));
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(|text| paragraphs(&text.to_string()).join("\n\n")).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").lines().map(str::trim);
    let usage = usage.map(|line| format!("    {line}\n")).collect::<String>();
    let _ = write!(out, "\n## `{full}`\n\n{about}\n\n{usage}");
    let mut arguments: Vec<_> =
        command.get_arguments().filter(|argument| !is_common(command, argument)).collect();
    arguments.sort_by_key(|argument| !argument.is_positional());
    let rows: String = arguments.into_iter().map(row).collect();
    if !rows.is_empty() {
        let _ = write!(out, "\n| argument | default | meaning |\n|---|---|---|\n{rows}");
    }
    if let Some((heading, examples)) = page::examples(command) {
        let examples: String =
            examples.lines().map(|line| format!("  {line}").trim_end().to_owned() + "\n").collect();
        let _ = write!(out, "\n{heading}:\n\n{examples}");
    }
    if let Some((_, notes)) = NOTES.iter().find(|(of, _)| *of == name) {
        let _ = write!(out, "\n{notes}");
    }
    let codes = tables::own_exit_codes(&name).into_iter();
    let codes: String = codes.map(|(code, meaning)| format!("- {code}: {meaning}\n")).collect();
    if !codes.is_empty() {
        let _ = write!(out, "\nExit codes of its own:\n\n{codes}");
    }
    shown(command).for_each(|below| add(below, out));
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set())
}

/// What every command has, or has from the one above it.
fn is_common(command: &Command, argument: &Arg) -> bool {
    let is_inherited = argument.is_global_set() && !command.has_subcommands();
    is_inherited || ["help", "version"].contains(&argument.get_id().as_str())
}

/// A line of the table: an option with its value, or an argument.
fn row(argument: &Arg) -> String {
    let help = argument.get_long_help().or(argument.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let (help, said) = without_default(&help);
    let mut defaults = argument.get_default_values().iter().map(|value| value.to_string_lossy());
    let default = match (said, defaults.next()) {
        (Some(default), _) => format!("`{default}`"),
        (None, Some(default)) if is_shown(argument) => format!("`{default}`"),
        _ => String::new(),
    };
    let mut meaning = match paragraphs(&help) {
        // The introduction says what takes its place.
        all if page::is_target(argument) => {
            format!("{} [If it is left out.](#which-queue)", all[0])
        }
        all => all.join(" ").replace('|', "\\|"),
    };
    for value in values(argument) {
        meaning.push_str(&value);
    }
    if let Some(variable) = argument.get_env() {
        let _ = write!(meaning, " (`{}`)", variable.to_string_lossy());
    }
    // A bar would end the cell, also in code.
    let term = term(argument).replace('|', "\\|");
    format!("| `{term}` | {default} | {meaning} |\n")
}

fn is_shown(argument: &Arg) -> bool {
    argument.get_action().takes_values() && !argument.is_hide_default_value_set()
}

/// An argument as it is typed.
fn term(argument: &Arg) -> String {
    let value = argument.get_value_names().unwrap_or_default().join(" ");
    let value = if value.is_empty() { argument.get_id().to_string().to_uppercase() } else { value };
    let Some(long) = argument.get_long() else {
        return argument
            .get_short()
            .map_or_else(|| value.clone(), |short| format!("-{short} {value}"));
    };
    let short = argument.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
    match (argument.get_action().takes_values(), argument.is_require_equals_set()) {
        (true, false) => format!("{short}--{long} {value}"),
        _ => format!("{short}--{long}"),
    }
}

/// The values that can be chosen from, with what each means.
fn values(argument: &Arg) -> Vec<String> {
    if !argument.get_action().takes_values() || argument.is_require_equals_set() {
        return Vec::new();
    }
    let values = argument.get_possible_values().into_iter();
    let value = |value: clap::builder::PossibleValue| {
        let help = value.get_help().map(|help| format!(": {help}")).unwrap_or_default();
        format!("<br>`{}`{}", value.get_name(), prose(&help))
    };
    values.map(value).collect()
}

/// A help text, and the default that it names at the end of its first paragraph.
pub fn without_default(help: &str) -> (String, Option<String>) {
    let Some((before, rest)) = help.split_once(" [default: ") else {
        return (help.to_owned(), None);
    };
    let (default, behind) = rest.split_once(']').unwrap_or((rest, ""));
    (format!("{before}{behind}"), Some(default.to_owned()))
}

/// The paragraphs of a help text, each a sentence at least.
pub fn paragraphs(help: &str) -> Vec<String> {
    let ended = |text: String| if text.ends_with(['.', '!']) { text } else { text + "." };
    prose(help).split("\n\n").map(|text| ended(text.to_owned())).collect()
}

/// Help as Markdown: what would be markup there is escaped, outside of code.
fn prose(help: &str) -> String {
    let parts = help.trim().split('`').enumerate();
    let part = |(number, text): (usize, &str)| match number % 2 {
        0 => text.replace('<', "\\<").replace('*', "\\*").replace("{", "\\{"),
        _ => format!("`{text}`"),
    };
    parts.map(part).collect::<String>()
}
