//! A little room for when the disk is full: a few files that are given up then, so that what is in the
//! spool can still be taken and removed, which makes room. Made with the spool, and again in passing.

use std::path::{Path, PathBuf};

use super::Spool;
use super::error::Result;
use super::files;
use super::layer::{How, Layer};
use super::layout::{self, SPARE, joined};

/// So many files: a checkout needs three at most (a record of the process, its note, the next one).
const FILES: usize = 4;
/// Each fills a block.
const BYTES: usize = 4096;

fn path(number: usize) -> PathBuf {
    Path::new(SPARE).join(number.to_string())
}

/// Makes what is missing. Without room there is none; that is no error.
pub(super) fn keep(layer: &dyn Layer) {
    let there = layer.list(Path::new(SPARE)).unwrap_or_default();
    if there.len() >= FILES || layout::ensure(layer, Path::new(SPARE)).is_err() {
        return;
    }
    for path in (0..FILES).map(path) {
        let Ok(file) = layer.open(&path, How::Over) else { return };
        if files::write_all(layer, &file, &[0; BYTES]).is_err() {
            return;
        }
    }
}

/// Removes one of the files; whether there was one.
fn give_up(layer: &dyn Layer) -> bool {
    let listed = layer.list(Path::new(SPARE)).unwrap_or_default();
    listed.iter().any(|file| layer.remove(&joined(Path::new(SPARE), &file.name)).is_ok())
}

impl Spool {
    /// Does what a full disk may refuse, and undoes itself then; again with what was spared.
    pub(super) fn with_spare<T>(&self, call: impl Fn() -> Result<T>) -> Result<T> {
        loop {
            match call() {
                Err(error) if error.is_full() && give_up(self.layer()) => {}
                result => return result,
            }
        }
    }
}
