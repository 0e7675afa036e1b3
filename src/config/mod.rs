//! The configuration file: from text in TOML to typed values, with errors that name the line.
//!
//! `serve` and `check` read it. The daemon's own keys are those of its flags, and so defined with them in
//! [`crate::cli`]; here are those of fetchers ([`FetcherTable`]) and what all files have in common. No
//! command line, no actor.

mod fetcher;
mod list_name;
mod plain;
pub mod values;

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde::de::DeserializeOwned;

use crate::exit::{ExitCode, Failure};
use plain::plain;

pub use fetcher::{DaemonFiles, FetcherTable, OnChangeTable, check_fetchers, check_own_files};
pub use list_name::ListName;

/// A longer file is none that a person wrote.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;

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
    let refused = |text: String| Failure::new(ExitCode::Configuration, text);
    let path = std::path::absolute(path).map_err(|error| refused(error.to_string()))?;
    let bytes = bytes(&path).map_err(refused)?;
    let wrong =
        |(line, what): (usize, String)| refused(format!("{}:{line}: {what}", path.display()));
    let text = str::from_utf8(&bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        wrong((line_of(before, before.len()), "this is not UTF-8".to_owned()))
    })?;
    let values = parse(text).map_err(wrong)?;
    Ok((values, path))
}

/// Values from text; else the line and what is wrong with it.
fn parse<T: DeserializeOwned + Checked>(text: &str) -> Result<T, (usize, String)> {
    let at = |place: usize| line_of(text.as_bytes(), place);
    let values: T = toml::from_str(text).map_err(|error| {
        let line = at(error.span().map_or(0, |span| span.start));
        (line, plain(error.message(), text.lines().nth(line - 1).unwrap_or_default().trim()))
    })?;
    values.check().map_err(|fault| (at(fault.place.start), fault.what))?;
    Ok(values)
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

/// The number of the line in which a byte is.
fn line_of(text: &[u8], place: usize) -> usize {
    1 + text.iter().take(place).filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests;
