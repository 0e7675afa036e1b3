//! The bare loops: what an entry costs at the least, by the same system calls and nothing else.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

use super::{DATA, METADATA};

/// Directories for bare loops.
pub struct Bare {
    drafts: PathBuf,
    data: PathBuf,
    queue: PathBuf,
    count: usize,
}

fn write(path: &PathBuf, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

impl Bare {
    pub fn new(root: PathBuf) -> io::Result<Self> {
        let [drafts, data, queue] = ["drafts", "data", "queue"].map(|name| root.join(name));
        [&drafts, &data, &queue].into_iter().try_for_each(fs::create_dir_all)?;
        Ok(Self { drafts, data, queue, count: 0 })
    }

    fn next(&mut self) -> String {
        self.count += 1;
        format!("{:020}", self.count)
    }

    /// One file: create, write, fsync, rename.
    pub fn one(&mut self) -> io::Result<()> {
        let name = self.next();
        write(&self.drafts.join(&name), &DATA)?;
        fs::rename(self.drafts.join(&name), self.queue.join(&name))
    }

    /// Two files, each created, written and synced; one of them renamed.
    pub fn two(&mut self) -> io::Result<()> {
        let name = self.next();
        write(&self.drafts.join(&name), METADATA)?;
        write(&self.data.join(&name), &DATA)?;
        fs::rename(self.drafts.join(&name), self.queue.join(&name))
    }
}
