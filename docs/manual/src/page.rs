//! A man page: what clap tells of a command, and the sections that readers of man pages look for.

use std::io;

use clap::{Arg, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::tables::{self, Entry};

/// What a command that has a target reads when it is left out.
const CONFIGURATION: (&str, &str) = (
    "/etc/shiftboss.toml",
    "the configuration file; it says which queue is meant when nothing else does",
);
const VARIABLES: [(&str, &str); 2] = [
    (
        "SHIFTBOSS_TARGET",
        "the queue that is meant when no --target is given: its database or its daemon's socket",
    ),
    ("SHIFTBOSS_CONFIG", "the configuration file, instead of /etc/shiftboss.toml"),
];

/// The page of a command, as roff.
pub fn page(command: &Command) -> io::Result<String> {
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    // Names of commands and options are not to be cut, nor lines stretched.
    Roff::new().control("nh", []).control("ad", ["l"]).to_writer(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|command| !command.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    sections(command).to_writer(&mut page)?;
    // Each part defines anew how an apostrophe is written; once is enough.
    let definition = Roff::new().render();
    let page = String::from_utf8_lossy(&page).replace(&definition, "");
    Ok(definition + &page)
}

/// A command's full name, as it is typed.
pub fn full_name(command: &Command) -> String {
    let (name, last) = (command.get_display_name().unwrap_or_default(), command.get_name());
    // A command may have a hyphen in its name; none above another one has.
    let above = name.strip_suffix(last).unwrap_or_default().replace('-', " ");
    format!("{above}{last}")
}

/// As documents call it: without `shiftboss` in front.
pub fn name(command: &Command) -> String {
    let name = full_name(command);
    name.strip_prefix("shiftboss").map_or(name.clone(), |name| name.trim().to_owned())
}

/// The heading of a command's examples, and the examples.
pub fn examples(command: &Command) -> Option<(String, String)> {
    let examples = command.get_after_help()?.to_string();
    let (heading, examples) =
        examples.split_once(":\n").filter(|_| examples.starts_with("Example"))?;
    Some((heading.to_owned(), examples.to_owned()))
}

fn sections(command: &Command) -> Roff {
    let name = name(command);
    let mut roff = Roff::new();
    if let Some((_, examples)) = examples(command) {
        roff.control("SH", ["EXAMPLES"]).control("nf", []);
        for line in examples.lines() {
            roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
        }
        roff.control("fi", []);
    }
    list(&mut roff, "EXIT STATUS", tables::exit_codes(&name));
    let configuration = has_target(command).then(|| entry(CONFIGURATION));
    list(&mut roff, "FILES", configuration.into_iter().chain(tables::files(&name)).collect());
    list(&mut roff, "ENVIRONMENT", environment(command));
    roff
}

fn list(roff: &mut Roff, heading: &str, entries: Vec<Entry>) {
    if entries.is_empty() {
        return;
    }
    roff.control("SH", [heading]);
    for (term, meaning) in entries {
        roff.control("TP", []).text([bold(term)]).text([roman(meaning)]);
    }
}

/// The variables that stand for options, and those that say which queue is meant.
fn environment(command: &Command) -> Vec<Entry> {
    let of_option = |argument: &Arg| {
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        Some((argument.get_env()?.to_str()?.to_owned(), help))
    };
    let mut all: Vec<Entry> = command.get_arguments().filter_map(of_option).collect();
    if has_target(command) {
        all.extend(VARIABLES.map(entry));
    }
    all
}

/// Whether an argument names a queue.
pub fn is_target(argument: &Arg) -> bool {
    argument.get_id() == "target"
}

/// Whether a command finds its queue by itself; the program's own page tells of it, too.
fn has_target(command: &Command) -> bool {
    command.get_arguments().any(is_target) || command.get_name() == "shiftboss"
}

fn entry((term, meaning): (&str, &str)) -> Entry {
    (term.to_owned(), meaning.to_owned())
}
