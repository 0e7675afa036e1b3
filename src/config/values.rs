//! Values of the command line that are also those of keys in the file: times as people write them, shares, globs.

use std::path::Path;
use std::time::Duration;

use crate::schedule::globs::{GlobError, Globs};

const TIME_MAX: Duration = Duration::from_secs(366 * 86_400);

/// A time such as `90s` or `1h 30m`.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{text:?} is no time such as \"90s\" or \"1h 30m\": {error}"))
}

/// One up to a year.
pub fn parse_bounded_time(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    let is_right = time <= TIME_MAX;
    is_right.then_some(time).ok_or_else(|| format!("{text:?}: give a time up to \"366days\""))
}

/// The same from a second on.
pub fn parse_interval(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    if (Duration::from_secs(1)..=TIME_MAX).contains(&time) {
        return Ok(time);
    }
    Err("give a time from \"1s\" to \"366days\"".to_owned())
}

pub fn parse_share(text: &str) -> Result<f64, &'static str> {
    let share: f64 = text.parse().unwrap_or(f64::NAN);
    let wrong = "a share is a number from 0 to 1, such as 0.5";
    (0.0..=1.0).contains(&share).then_some(share).ok_or(wrong)
}

pub fn parse_glob(text: &str) -> Result<String, GlobError> {
    let glob = [text.to_owned()];
    Globs::new(&glob, &[], false)?;
    let [glob] = glob;
    Ok(glob)
}

/// Checks a path in a file.
pub(super) fn check_path(text: &str) -> Result<(), String> {
    if text.is_empty() || text.contains('\0') {
        return Err("name a path, or leave the key out".to_owned());
    }
    // A shell's `~` for a home directory means nothing here.
    if Path::new(text).starts_with("~") {
        return Err("~ is not expanded here: write the whole path".to_owned());
    }
    Ok(())
}
