//! A watch that polls: for when inotify has no watches left, or reports nothing (spec 2.10).
//!
//! It keeps two numbers for each name that counts, not the name itself: so removals are noticed, but not named. Used
//! through [`super::open()`].

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::paths::Changed;
use super::watch::{Trees, Wake, Watch, WatchError};

/// Shortest pause between two looks.
const PAUSE_MIN: Duration = Duration::from_secs(2);
/// The pause is also at least this many times as long as a look takes.
const PAUSE_SHARE: u32 = 10;

pub struct PollWatch {
    trees: Trees,
    /// By the path's hash: the hash of the metadata that shows a change.
    seen: HashMap<u64, u64>,
    took: Duration,
}

impl PollWatch {
    /// Looks for the first time.
    pub fn open(trees: Trees) -> Result<Self, WatchError> {
        let mut watch = Self { trees, seen: HashMap::new(), took: Duration::ZERO };
        watch.turn()?;
        Ok(watch)
    }

    /// Looks at all trees: what is there, and what of that is new or changed since the last look. What vanishes
    /// meanwhile is skipped: the next look notices it.
    fn look(&mut self) -> Result<(HashMap<u64, u64>, Changed), WatchError> {
        let Trees { roots, files, globs } = &mut self.trees;
        let (mut now, mut changed) = (HashMap::with_capacity(self.seen.len()), Changed::default());
        let mut unlisted: Vec<_> = roots.iter().map(|root| (root, PathBuf::new())).collect();
        while let Some((root, below)) = unlisted.pop() {
            globs.enter(&root.join(&below));
            let listed = match globs.list(root, &below) {
                Err(source) if below.as_os_str().is_empty() => {
                    return Err(WatchError::Root { path: root.clone(), source });
                }
                listed => listed.into_iter().flatten(),
            };
            for (found, is_dir) in listed {
                let path = root.join(&found);
                if globs.takes(&found, is_dir)
                    // A file that was named may be reached through links.
                    && let Ok(metadata) =
                        if files.is_empty() { path.symlink_metadata() } else { path.metadata() }
                {
                    let (name, stamp) = (hash(&path), stamp(&metadata));
                    now.insert(name, stamp);
                    if self.seen.get(&name) != Some(&stamp) {
                        changed.add(path);
                    }
                }
                if is_dir {
                    unlisted.push((root, found));
                }
            }
        }
        Ok((now, changed))
    }
}

/// The metadata that shows a change of a file. For a directory only its existence counts: the names in it are looked at
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
        let (now, mut changed) = self.look()?;
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
    use crate::schedule::globs::Globs;

    /// Creations, changes, moves and removals are noticed; left-out files are not.
    #[test]
    fn looking_finds_what_changed() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_path_buf();
        std::fs::create_dir(root.join("sub")).unwrap();
        std::fs::write(root.join("sub/a.org"), "1").unwrap();
        let globs = Globs::new(&["*.org".to_owned()], &[], false).unwrap();
        let mut watch =
            PollWatch::open(Trees { roots: vec![root.clone()], files: Vec::new(), globs }).unwrap();
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
