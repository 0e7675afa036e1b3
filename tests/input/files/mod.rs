//! Fetcher files (spec 4): names, lines, life cycle, and everything that the reference loses
//! or dies of.

mod bulk;
mod life;
mod lines;
mod losses;
mod names;
mod positions;
mod reconciled;
mod rewritten;

use crate::common::Daemon;

/// Whether the log has a warning that names `file` and the line number `line`.
fn warned_of_line(daemon: &Daemon, file: &str, line: u64) -> bool {
    let number = line.to_string();
    let names_line = |text: &str| {
        let after_time = text.split_once(' ').map_or("", |(_, rest)| rest);
        let rest = after_time.replace(file, "");
        rest.split(|c: char| !c.is_ascii_digit()).any(|word| word == number)
    };
    let warnings = daemon.warnings(&[file]);
    warnings.iter().any(|text| names_line(text))
}
