//! A watch that looks again and again: where inotify has no watches left, or tells nothing (spec 2.10).
//!
//! It keeps two numbers for each name that counts, not the name itself: so what was removed is noticed
//! and not named. Used through [`super::open()`].

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::globs::Globs;
use super::paths::Changed;
use super::watch::{Trees, Wake, Watch, WatchError};

/// From one look to the next, at least.
const PAUSE_MIN: Duration = Duration::from_secs(2);
/// And so many times as long as a look takes.
const PAUSE_SHARE: u32 = 10;

pub struct PollWatch {
    roots: Vec<PathBuf>,
    globs: Globs,
    /// By the path's hash: the hash of what tells that it changed.
    seen: HashMap<u64, u64>,
    took: Duration,
}

impl PollWatch {
    /// Looks for the first time.
    pub fn open(trees: &Trees) -> Result<Self, WatchError> {
        let (roots, globs) = (trees.roots.clone(), trees.globs.clone());
        let mut watch = Self { roots, globs, seen: HashMap::new(), took: Duration::ZERO };
        watch.turn()?;
        Ok(watch)
    }

    /// Looks at the tree of a root: `now` gets what is there. What goes away meanwhile is passed over: the next look
    /// tells.
    fn look(
        &mut self,
        root: &Path,
        now: &mut HashMap<u64, u64>,
        changed: &mut Changed,
    ) -> io::Result<()> {
        std::fs::read_dir(root)?;
        let mut unlisted = vec![PathBuf::new()];
        while let Some(below) = unlisted.pop() {
            self.globs.enter(&root.join(&below));
            for (found, is_dir) in self.globs.list(root, &below).into_iter().flatten() {
                let path = root.join(&found);
                if self.globs.takes(&found, is_dir)
                    && let Ok(metadata) = path.symlink_metadata()
                {
                    let (name, stamp) = (hash(&path), stamp(&metadata));
                    now.insert(name, stamp);
                    if self.seen.get(&name) != Some(&stamp) {
                        changed.add(path);
                    }
                }
                if is_dir {
                    unlisted.push(found);
                }
            }
        }
        Ok(())
    }
}

/// What tells that a file changed. Of a directory only that it is there: the names in it speak for
/// themselves.
fn stamp(metadata: &std::fs::Metadata) -> u64 {
    let (mtime, mtime_nsec) = (metadata.mtime(), metadata.mtime_nsec());
    let content = (!metadata.is_dir()).then_some((metadata.len(), mtime, mtime_nsec));
    hash(&(metadata.dev(), metadata.ino(), content))
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Watch for PollWatch {
    fn turn(&mut self) -> Result<Changed, WatchError> {
        let begun = Instant::now();
        let mut changed = Changed::default();
        let mut now = HashMap::with_capacity(self.seen.len());
        for root in self.roots.clone() {
            let looked = self.look(&root, &mut now, &mut changed);
            looked.map_err(|source| WatchError::Root { path: root, source })?;
        }
        if self.seen.keys().any(|name| !now.contains_key(name)) {
            changed.lose_some();
        }
        self.seen = now;
        self.took = begun.elapsed();
        Ok(changed)
    }

    fn wake(&self) -> Wake {
        Wake::After(PAUSE_MIN.max(self.took.saturating_mul(PAUSE_SHARE)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is made, changed, moved and removed is noticed; what is left out is not.
    #[test]
    fn looking_finds_what_changed() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_path_buf();
        std::fs::create_dir(root.join("sub")).unwrap();
        std::fs::write(root.join("sub/a.org"), "1").unwrap();
        let globs = Globs::new(&["*.org".to_owned()], &[], false).unwrap();
        let mut watch = PollWatch::open(&Trees { roots: vec![root.clone()], globs }).unwrap();
        let mut turn = || {
            let changed = watch.turn().unwrap();
            let names = changed.paths().map(|path| path.strip_prefix(&root).unwrap().to_owned());
            (names.collect::<Vec<_>>(), changed.is_whole())
        };
        assert_eq!(turn(), (vec![], true));
        std::fs::write(root.join("sub/b.txt"), "1").unwrap();
        std::fs::write(root.join("sub/a.org"), "22").unwrap();
        assert_eq!(turn(), (vec!["sub/a.org".into()], true));
        std::fs::rename(root.join("sub"), root.join("other")).unwrap();
        assert_eq!(turn(), (vec!["other/a.org".into()], false));
        std::fs::remove_file(root.join("other/a.org")).unwrap();
        assert_eq!(turn(), (vec![], false));
        assert_eq!(turn(), (vec![], true));
        std::fs::remove_dir_all(&root).unwrap();
        assert!(matches!(watch.turn(), Err(WatchError::Root { .. })));
    }
}
