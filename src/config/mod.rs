//! The configuration file: from text in TOML to typed values, with errors that name the line.
//!
//! `serve` and `check` read it. The daemon's own keys are those of its flags, and so defined with them in
//! [`crate::cli`]; here are those of fetchers ([`FetcherTable`]) and what all files have in common. No
//! command line, no actor.

mod fetcher;
mod plain;
pub mod values;

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde::de::DeserializeOwned;
use thiserror::Error;

use plain::plain;

pub use fetcher::{FetcherTable, OnChangeTable, OwnFiles, check_fetchers, check_own_files};

/// A longer file is none that a person wrote.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Why a configuration file is refused. None of it is in force then.
#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// It is a directory, a pipe or a device.
    #[error("the configuration file {} is no file: name one", path.display())]
    NoFile { path: PathBuf },
    #[error("the configuration file {} has more than {FILE_BYTES_MAX} bytes: is it another file?", path.display())]
    TooLong { path: PathBuf },
    /// Something in it is wrong.
    #[error("{}:{line}: {what}", path.display())]
    Wrong {
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
}

/// What is wrong with a place in the text, in bytes from its beginning.
#[derive(Debug)]
pub struct Fault {
    pub place: Range<usize>,
    pub what: String,
}

/// Values that can be wrong together, though each of them is right.
pub trait Checked {
    fn check(&self) -> Result<(), Fault>;
}

/// Reads a whole configuration file.
pub fn read<T: DeserializeOwned + Checked>(path: &Path) -> Result<T, ConfigError> {
    let bytes = bytes(path)?;
    let wrong = |(line, what)| ConfigError::Wrong { path: path.to_owned(), line, what };
    let text = str::from_utf8(&bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        wrong((line_of(before, before.len()), "this is not UTF-8".to_owned()))
    })?;
    parse(text).map_err(wrong)
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

fn bytes(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    // A pipe in its place must not hold up its reader.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file =
        rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
    let file = File::from(file);
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(ConfigError::NoFile { path: path.to_owned() });
    }
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(ConfigError::TooLong { path: path.to_owned() });
    }
    Ok(bytes)
}

/// The number of the line in which a byte is.
fn line_of(text: &[u8], place: usize) -> usize {
    1 + text.iter().take(place).filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests;
