//! The output of the jobs of all keys, each line with its key in front: of a day so far, or from now on.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::park_timeout;
use std::time::Duration;

use super::{last_lines, unreadable};
use crate::cli::OutputArguments;
use crate::escape::shown_bytes;
use crate::exit::{ExitCode, Failure};
use crate::outputs::screen::{Colours, line};
use crate::runner::log_directory::{is_day, key_in};
use crate::safe_file;

const LINES: usize = 10;
/// Pause between two looks at the files of a day.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Days whose files are looked at: jobs begun yesterday go on in that day's file.
const DAYS: usize = 2;

pub(super) fn run(typed: &OutputArguments) -> Result<(), Failure> {
    if typed.follow { follow(&typed.log_dir) } else { so_far(typed) }
}

fn so_far(typed: &OutputArguments) -> Result<(), Failure> {
    let directory = &typed.log_dir;
    let newest = days(directory).map_err(unreadable)?.into_iter().next();
    let none = || {
        let text = format!("there is no output in {}", directory.display());
        Failure::new(ExitCode::Unavailable, text)
    };
    let day = typed.day.clone().or(newest).ok_or_else(none)?;
    let mut files = files(directory, &day).map_err(|_| none())?;
    files.sort();
    for name in files {
        let Some(mut file) = open(directory, &day, &name) else { continue };
        let to = file.metadata().map_err(unreadable)?.len();
        let from =
            last_lines(&mut file, 0, to, typed.lines.unwrap_or(LINES)).map_err(unreadable)?;
        if show(&mut file, from, &key_of(&name))?.is_none() {
            return Ok(());
        }
    }
    Ok(())
}

/// Shows what is written from now on, until it is interrupted.
fn follow(directory: &Path) -> Result<(), Failure> {
    let mut places: HashMap<(String, String), u64> = HashMap::new();
    let mut is_first = true;
    loop {
        for day in days(directory).map_err(unreadable)?.into_iter().take(DAYS) {
            // A directory that was just swept has nothing to show.
            for name in files(directory, &day).unwrap_or_default() {
                let Ok(length) = fs::metadata(directory.join(&day).join(&name)).map(|it| it.len())
                else {
                    continue;
                };
                let place = places.entry((day.clone(), name.clone()));
                let place = place.or_insert(if is_first { length } else { 0 });
                if length <= *place {
                    continue;
                }
                let Some(mut file) = open(directory, &day, &name) else { continue };
                match show(&mut file, *place, &key_of(&name))? {
                    Some(to) => *place = to,
                    None => return Ok(()),
                }
            }
        }
        is_first = false;
        park_timeout(LOOK_EVERY);
    }
}

pub(super) fn days(directory: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(directory)?.filter_map(|it| it.ok()?.file_name().into_string().ok());
    let mut days: Vec<String> = names.filter(|name| is_day(name)).collect();
    days.sort_by(|one, other| other.cmp(one));
    Ok(days)
}

fn files(directory: &Path, day: &str) -> io::Result<Vec<String>> {
    let names = fs::read_dir(directory.join(day))?;
    let names = names.filter_map(|it| it.ok()?.file_name().into_string().ok());
    Ok(names.filter(|name| name.ends_with(".log")).collect())
}

fn open(directory: &Path, day: &str, name: &str) -> Option<File> {
    safe_file::open_beneath(directory, &PathBuf::from(day).join(name)).ok()
}

/// Shows the whole lines from a position on; returns where they end. `None`: there is no reader.
fn show(file: &mut File, from: u64, key: &str) -> Result<Option<u64>, Failure> {
    super::show(file, from, u64::MAX, true, |bytes| {
        let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let lines = text.split(|byte| *byte == b'\n');
        let lines = lines.map(|text| format!("{key}: {}\n", line(text, Colours::LeftOut)));
        lines.collect::<String>().into_bytes()
    })
}

/// The key of a file, as far as its name has it; or the name.
fn key_of(name: &str) -> String {
    let (key, is_cut) = key_in(name).unwrap_or_else(|| (name.into(), false));
    shown_bytes(&key) + if is_cut { "..." } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::log_directory::file_name;
    use crate::text::shown;

    /// A file's name gives its key back, as far as it is in it.
    #[test]
    fn names_are_keys() {
        for key in ["python3.12-foo", "a/é~%\n", "..", "%41"] {
            assert_eq!(key_of(&file_name(key.as_bytes())), shown(key));
        }
        assert_eq!(key_of(&file_name(&[b'k'; 4_096])), "k".repeat(200) + "...");
        assert_eq!(key_of("%zz.log"), "%zz.log");
    }
}
