//! The bare loops: what an entry costs at least, by the same system calls and nothing else.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{DATA, METADATA};

/// Directories for bare loops.
pub struct Bare {
    names: PathBuf,
    drafts: PathBuf,
    data: PathBuf,
    queue: PathBuf,
    count: usize,
}

fn create(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut file = File::options().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    Ok(file)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    create(path, bytes)?.sync_all()
}

impl Bare {
    pub fn new(root: PathBuf) -> io::Result<Self> {
        let [names, drafts, data, queue] =
            ["names", "drafts", "data", "queue"].map(|name| root.join(name));
        [&names, &drafts, &data, &queue].into_iter().try_for_each(fs::create_dir_all)?;
        Ok(Self { names, drafts, data, queue, count: 0 })
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

    /// Three files each, as an entry has them; one sync of all, then a rename each and a sync of their
    /// directory.
    pub fn batch(&mut self, count: usize) -> io::Result<()> {
        let all: Vec<String> = (0..count).map(|_| self.next()).collect();
        for name in &all {
            create(&self.names.join(name), b"")?;
            create(&self.drafts.join(name), METADATA)?;
            create(&self.data.join(name), &DATA)?;
        }
        let queue = File::open(&self.queue)?;
        rustix::fs::syncfs(&queue)?;
        for name in &all {
            fs::rename(self.drafts.join(name), self.queue.join(name))?;
        }
        queue.sync_all()
    }
}
