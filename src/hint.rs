//! Command lines of ours that a message tells to type: they work as they stand for whoever typed this one.
//!
//! Whoever finds a target that no other command would find remembers it here; all that speak to people ask for the line.

use std::fmt::Display;
use std::path::Path;
use std::sync::OnceLock;

use crate::stores::Database;
use crate::text::quoted;

/// What was typed, as the next command line has to have it, too.
static TYPED: OnceLock<String> = OnceLock::new();

/// From now on [`hint`] names this target: nobody else knows it.
pub fn remember(target: &Path) {
    let target = Database::from(target.to_owned()).to_string();
    let _ = TYPED.set(format!("-t {} ", quoted(&target)));
}

/// A command line: what was typed with -t it has, too.
pub fn hint(words: impl Display) -> String {
    format!("`shiftboss {}{words}`", TYPED.get().map_or("", String::as_str))
}
