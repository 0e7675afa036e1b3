//! The configuration file: from text in TOML to typed values, with errors that name the line.
//!
//! `serve`, `relay` and `check` read it. The keys of a command's own are its [`options`]; here are those of fetchers
//! ([`FetcherTable`]) and what all files have in common. No actor.

mod failures;
mod fetcher;
mod list_name;
pub mod options;
pub mod values;

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde::de::DeserializeOwned;

use crate::exit::{ExitCode, Failure};
use crate::near::did_you_mean;
use options::Options;

pub use failures::{BackoffRule, RetryRule};
pub use fetcher::{DaemonFiles, FetcherTable, OnChangeTable, check_fetchers, check_own_files};
pub use list_name::ListName;

/// A longer file is none that a person wrote.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// What is needed where another value stands.
const TEXT: &str = "a text in quotes, as in \"text\",";

/// What is wrong with a place in the text, in bytes from its beginning.
#[derive(Debug)]
pub struct Fault {
    pub place: Range<usize>,
    pub what: String,
}

/// Values that can be wrong together, though each of them is right.
pub trait Checked {
    fn check(&self) -> Result<(), Fault> {
        Ok(())
    }
}

/// Reads a whole configuration file; its path, to whose directory what it says is relative, is returned with it. If
/// anything in it is wrong, none of it is in force.
pub fn read<T: DeserializeOwned + Checked>(path: &Path) -> Result<(T, PathBuf), Failure> {
    read_as(path, |text, _| parse(text))
}

/// The same of a command's options; paths in it are made whole.
pub fn read_options<T: Options>(path: &Path) -> Result<(T, PathBuf), Failure> {
    read_as(path, options::of_text)
}

fn read_as<T>(
    path: &Path,
    parse: impl FnOnce(&str, &Path) -> Result<T, (usize, String)>,
) -> Result<(T, PathBuf), Failure> {
    let refused = |text: String| Failure::new(ExitCode::Configuration, text);
    let path = std::path::absolute(path).map_err(|error| refused(error.to_string()))?;
    let bytes = bytes(&path).map_err(refused)?;
    let wrong =
        |(line, what): (usize, String)| refused(format!("{}:{line}: {what}", path.display()));
    let text = str::from_utf8(&bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        wrong((line_of(before, before.len()), "this is not UTF-8".to_owned()))
    })?;
    let values = parse(text, path.parent().unwrap_or(Path::new("/"))).map_err(wrong)?;
    Ok((values, path))
}

/// What a text says, other keys aside. What is wrong has its line.
pub fn parse<T: DeserializeOwned + Checked>(text: &str) -> Result<T, (usize, String)> {
    let at = |place: usize| line_of(text.as_bytes(), place);
    let values: T = toml::from_str(text).map_err(|error| not_toml(text, &error))?;
    values.check().map_err(|fault| (at(fault.place.start), fault.what))?;
    Ok(values)
}

/// What a library says of a text, with its line.
fn not_toml(text: &str, error: &toml::de::Error) -> (usize, String) {
    let line = line_of(text.as_bytes(), error.span().map_or(0, |span| span.start));
    (line, plain(error.message(), text.lines().nth(line - 1).unwrap_or_default().trim()))
}

fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let failed = |error: io::Error| format!("cannot read the configuration file {shown}: {error}");
    // A pipe in its place must not hold up its reader.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file =
        rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
    let file = File::from(file);
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(format!("the configuration file {shown} is no file: name one"));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!(
            "the configuration file {shown} has more than {FILE_BYTES_MAX} bytes: is it another file?"
        ));
    }
    Ok(bytes)
}

fn line_of(text: &[u8], place: usize) -> usize {
    1 + text.iter().take(place).filter(|byte| **byte == b'\n').count()
}

/// What a library's message means, for somebody who sees `line` in the file: "expected a sequence" tells a programmer of
/// types. What is not known here is passed on as it is.
fn plain(message: &str, line: &str) -> String {
    let is_table = line.starts_with('[') && !line.starts_with("[[");
    if let Some(rest) = message.strip_prefix("unknown field `") {
        let (name, known) = rest.split_once('`').unwrap_or((rest, ""));
        let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
        return unknown("key", name, &known, line);
    }
    if let Some(name) = quoted(message, "missing field `") {
        return format!("the key {name:?} is missing");
    }
    match (message, message.split_once(", expected ")) {
        ("invalid type: map, expected a sequence", _) if is_table => {
            let name = line.trim_matches(['[', ']', ' ']);
            format!("write [[{name}]], in double brackets: there may be several")
        }
        ("invalid type: map, expected a sequence", _) if line.starts_with("fetcher.") => {
            "write [[fetcher]], in double brackets, and its keys below: there may be several"
                .to_owned()
        }
        ("duplicate key", _) => "this key is there twice".to_owned(),
        ("wanted string or table", _) => format!("{TEXT} is needed here"),
        (_, Some((found, wanted))) => expected(found, wanted, message),
        _ => message.to_owned(),
    }
}

/// What was meant, or what may be. Where `line` has a dotted key, its last part may be meant.
fn unknown(what: &str, name: &str, known: &[&str], line: &str) -> String {
    let dotted = line.split('=').next().and_then(|key| key.trim().rsplit_once('.'));
    let words = [Some(name), dotted.map(|(_, last)| last)].into_iter().flatten();
    let mut hints = words.map(|word| did_you_mean(word, known.iter().copied()));
    match hints.find(|hint| !hint.is_empty()).unwrap_or_default() {
        hint if hint.is_empty() => {
            format!("there is no {what} {name:?} here; there are: {}", known.join(", "))
        }
        hint => format!("there is no {what} {name:?} here{hint}"),
    }
}

fn quoted<'a>(message: &'a str, before: &str) -> Option<&'a str> {
    message.strip_prefix(before)?.strip_suffix('`')
}

/// What stands there, and what is to.
fn expected(found: &str, wanted: &str, message: &str) -> String {
    let needed = match wanted {
        "a string" | "path string" | "literal string" => TEXT,
        "a boolean" | "`true`" | "`false`" => "true or false, without quotes,",
        "u64" => "a whole number from 0 on, without quotes,",
        "f64" => "a number such as 0.5, without quotes,",
        "a sequence" => "a list in brackets, as in [\"text\"],",
        "a map" => "a table in braces, as in { NAME = \"text\" },",
        "`=`" => return "a line is KEY = VALUE, or the head of a table in brackets".to_owned(),
        _ => return message.to_owned(),
    };
    let kinds = ["invalid type: ", "invalid value: "];
    let found = kinds.iter().find_map(|kind| found.strip_prefix(kind)).map(value);
    found.map_or(format!("{needed} is needed here"), |found| {
        format!("{needed} is needed here, not {found}")
    })
}

/// A value as it was written: the library puts its type before it.
fn value(found: &str) -> &str {
    match found {
        "map" => "a table",
        "sequence" => "a list",
        _ => found.find(['`', '"']).map_or(found, |begin| {
            let value = &found[begin..];
            value.strip_prefix('`').and_then(|value| value.split('`').next()).unwrap_or(value)
        }),
    }
}

#[cfg(test)]
mod tests;
