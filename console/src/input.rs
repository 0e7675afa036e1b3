//! The input of commands that read a file or standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// A name for messages, and what is read; without a file standard input.
pub fn open(file: Option<&Path>) -> (String, io::Result<Box<dyn Read>>) {
    match file {
        None => ("standard input".to_owned(), Ok(Box::new(io::stdin()))),
        Some(path) => {
            (path.display().to_string(), File::open(path).map(|file| Box::new(file) as _))
        }
    }
}
