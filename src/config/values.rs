//! Values in a configuration file that TOML has no type for: times as people write them, shares, globs.
//! For `#[serde(deserialize_with)]`; what is refused here is reported with its line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Deserializer};

use crate::schedule::globs::Globs;

const TIME_MAX: Duration = Duration::from_secs(366 * 86_400);

/// How a time is written, for who wrote something else.
const TIME_IN_QUOTES: &str = "write a time in quotes, with its unit: \"90s\"";

/// What is written with and without quotes.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written<T> {
    Right(T),
    Wrong(IgnoredAny),
}

/// What was read and holds to `check`; `wrong` is said of anything that is no `T`.
fn checked<'de, D: Deserializer<'de>, T: Deserialize<'de>, U>(
    typed: D,
    wrong: &str,
    check: impl FnOnce(T) -> Result<U, String>,
) -> Result<U, D::Error> {
    let checked = match Written::deserialize(typed)? {
        Written::Right(value) => check(value),
        Written::Wrong(_) => Err(wrong.to_owned()),
    };
    checked.map_err(D::Error::custom)
}

/// A time such as `90s` or `1h 30m`.
pub fn time<'de, D: Deserializer<'de>>(typed: D) -> Result<Duration, D::Error> {
    checked(typed, TIME_IN_QUOTES, |text: String| {
        let time = parse_time(&text)?;
        if time > TIME_MAX {
            return Err(format!("{text:?}: give a time up to \"366days\""));
        }
        Ok(time)
    })
}

/// A time as it is written on the command line, too.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{text:?} is no time such as \"90s\" or \"1h 30m\": {error}"))
}

/// A time of the command line that is also a key of the file.
pub fn parse_bounded_time(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time > TIME_MAX => Err("give a time up to 366days".to_owned()),
        result => result.map_err(|error| error.to_string()),
    }
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

pub fn share<'de, D: Deserializer<'de>>(typed: D) -> Result<f64, D::Error> {
    a_share(f64::deserialize(typed)?).map_err(D::Error::custom)
}

/// The same as it is written on the command line.
pub fn parse_share(text: &str) -> Result<f64, &'static str> {
    a_share(text.parse().unwrap_or(f64::NAN))
}

fn a_share(share: f64) -> Result<f64, &'static str> {
    let wrong = "a share is a number from 0 to 1, such as 0.5";
    (0.0..=1.0).contains(&share).then_some(share).ok_or(wrong)
}

pub fn command<'de, D: Deserializer<'de>>(typed: D) -> Result<Vec<OsString>, D::Error> {
    checked(typed, "write a list of words: [\"./list\", \"--all\"]", |words: Vec<String>| {
        if words.first().is_none_or(String::is_empty) {
            return Err("name a program, and its arguments: [\"./list\", \"--all\"]".to_owned());
        }
        if words.iter().any(|word| word.contains('\0')) {
            return Err("there is a NUL in the command".to_owned());
        }
        Ok(words.into_iter().map(OsString::from).collect())
    })
}

pub fn directories<'de, D: Deserializer<'de>>(typed: D) -> Result<Vec<PathBuf>, D::Error> {
    let wrong = "name the directories to watch: [\"src\", \"/etc/lists\"]";
    checked(typed, wrong, |paths: Vec<PathBuf>| {
        if paths.is_empty() {
            return Err(wrong.to_owned());
        }
        paths.iter().try_for_each(|path| check_path(path, wrong)).map(|()| paths)
    })
}

pub(super) fn check_path(path: &Path, wrong: &str) -> Result<(), String> {
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.is_empty() || bytes.contains(&0) {
        return Err(wrong.to_owned());
    }
    // A shell's word for a home directory means nothing here.
    if path.starts_with("~") {
        return Err("~ is not expanded here: write the whole path".to_owned());
    }
    Ok(())
}

pub fn globs<'de, D: Deserializer<'de>>(typed: D) -> Result<Vec<String>, D::Error> {
    let globs = Vec::<String>::deserialize(typed)?;
    Globs::new(&globs, &[], false).map_err(D::Error::custom)?;
    Ok(globs)
}
