//! Values in a configuration file that TOML has no type for: times as people write them, shares, globs.
//! For `#[serde(deserialize_with)]`; what is refused here is reported with its line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Deserializer};

use crate::logging;
use crate::schedule::globs::Globs;

/// The longest time that can be set.
pub const TIME_MAX: Duration = Duration::from_secs(366 * 86_400);

/// How a time is written, for who wrote something else.
pub const TIME_IN_QUOTES: &str = "write a time in quotes, with its unit: \"90s\"";

/// What is written with and without quotes.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Written<T> {
    Right(T),
    Wrong(IgnoredAny),
}

/// A time such as `90s` or `1h 30m`.
pub fn time<'de, D: Deserializer<'de>>(typed: D) -> Result<Duration, D::Error> {
    let text: String = match Written::deserialize(typed)? {
        Written::Right(text) => text,
        Written::Wrong(_) => {
            return Err(D::Error::custom(TIME_IN_QUOTES));
        }
    };
    let time = parse_time(&text).map_err(D::Error::custom)?;
    if time > TIME_MAX {
        return Err(D::Error::custom(format!("{text:?}: give a time up to \"366days\"")));
    }
    Ok(time)
}

/// A time as it is written on the command line, too.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{text:?} is no time such as \"90s\" or \"1h 30m\": {error}"))
}

/// The same above zero, for a key that may be left out.
pub fn some_time<'de, D: Deserializer<'de>>(typed: D) -> Result<Option<Duration>, D::Error> {
    let time = time(typed)?;
    if time.is_zero() {
        return Err(D::Error::custom("give a time above 0, or leave the key out"));
    }
    Ok(Some(time))
}

/// The same from a second on.
pub fn interval<'de, D: Deserializer<'de>>(typed: D) -> Result<Option<Duration>, D::Error> {
    at_least_a_second(time(typed)?).map(Some).map_err(D::Error::custom)
}

/// The same as it is written on the command line.
pub fn parse_interval(text: &str) -> Result<Duration, String> {
    at_least_a_second(parse_time(text)?)
}

fn at_least_a_second(time: Duration) -> Result<Duration, String> {
    if (Duration::from_secs(1)..=TIME_MAX).contains(&time) {
        return Ok(time);
    }
    Err("give a time from \"1s\" to \"366days\"".to_owned())
}

/// A number from 0 to 1.
pub fn share<'de, D: Deserializer<'de>>(typed: D) -> Result<f64, D::Error> {
    let share = f64::deserialize(typed)?;
    if !(0.0..=1.0).contains(&share) {
        return Err(D::Error::custom("a share is a number from 0 to 1, such as 0.5"));
    }
    Ok(share)
}

/// A program and its arguments.
pub fn command<'de, D: Deserializer<'de>>(typed: D) -> Result<Vec<OsString>, D::Error> {
    let words: Vec<String> = match Written::deserialize(typed)? {
        Written::Right(words) => words,
        Written::Wrong(_) => {
            return Err(D::Error::custom("write a list of words: [\"./list\", \"--all\"]"));
        }
    };
    if words.first().is_none_or(String::is_empty) {
        return Err(D::Error::custom("name a program, and its arguments: [\"./list\", \"--all\"]"));
    }
    if words.iter().any(|word| word.contains('\0')) {
        return Err(D::Error::custom("there is a NUL in the command"));
    }
    Ok(words.into_iter().map(OsString::from).collect())
}

pub fn directories<'de, D: Deserializer<'de>>(typed: D) -> Result<Vec<PathBuf>, D::Error> {
    let paths: Vec<PathBuf> = match Written::deserialize(typed)? {
        Written::Right(paths) => paths,
        Written::Wrong(_) => Vec::new(),
    };
    if paths.is_empty() || !paths.iter().all(|path| is_path(path)) {
        return Err(D::Error::custom("name the directories to watch: [\"src\", \"/etc/lists\"]"));
    }
    paths.iter().try_for_each(|path| not_home(path))?;
    Ok(paths)
}

/// A path, for a key that may be left out.
pub fn path<'de, D: Deserializer<'de>>(typed: D) -> Result<Option<PathBuf>, D::Error> {
    let path = PathBuf::deserialize(typed)?;
    if !is_path(&path) {
        return Err(D::Error::custom("name a path, or leave the key out"));
    }
    not_home(&path)?;
    Ok(Some(path))
}

/// A shell's word for a home directory means nothing here.
fn not_home<E: Error>(path: &Path) -> Result<(), E> {
    if path.starts_with("~") {
        return Err(E::custom("~ is not expanded here: write the whole path"));
    }
    Ok(())
}

fn is_path(path: &Path) -> bool {
    !path.as_os_str().is_empty() && !path.as_os_str().as_encoded_bytes().contains(&0)
}

/// What is logged: a level, or targets with theirs.
pub fn log_level<'de, D: Deserializer<'de>>(typed: D) -> Result<Option<String>, D::Error> {
    let filter = String::deserialize(typed)?;
    logging::check(&filter).map_err(D::Error::custom)?;
    Ok(Some(filter))
}

/// Globs as `.gitignore` has them.
pub fn globs<'de, D: Deserializer<'de>>(typed: D) -> Result<Vec<String>, D::Error> {
    let globs = Vec::<String>::deserialize(typed)?;
    Globs::new(&globs, &[], false).map_err(D::Error::custom)?;
    Ok(globs)
}
