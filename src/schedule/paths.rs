//! What changed: paths, each once and not too many; and paths that a run itself changes, again and again.
//!
//! Plain values. The watch fills a [`Changed`], a schedule gathers them for the next run and asks
//! [`Loops`] which of them the run that is on made itself (spec 2.8, 2.9).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Most paths that are kept for one run; more are left out, and the list is marked as incomplete.
pub const PATHS_MAX: usize = 50_000;
pub const PATHS_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Runs in a row that must have changed a path for it to count as their own.
const RUNS_IN_A_ROW: u8 = 3;

/// What changed since the last call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    paths: BTreeSet<PathBuf>,
    bytes: usize,
    is_whole: bool,
}

impl Default for Changed {
    fn default() -> Self {
        Self { paths: BTreeSet::new(), bytes: 0, is_whole: true }
    }
}

impl Changed {
    /// Something changed, but it is not known what.
    pub fn unknown() -> Self {
        Self { is_whole: false, ..Self::default() }
    }

    #[cfg(test)]
    pub fn of(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut changed = Self::default();
        paths.into_iter().for_each(|path| changed.add(path));
        changed
    }

    pub fn add(&mut self, path: PathBuf) {
        if self.paths.contains(&path) {
            return;
        }
        let bytes = self.bytes.saturating_add(path.as_os_str().len());
        if self.paths.len() >= PATHS_MAX || bytes > PATHS_BYTES_MAX {
            self.is_whole = false;
            return;
        }
        self.bytes = bytes;
        self.paths.insert(path);
    }

    pub fn merge(&mut self, other: Self) {
        self.is_whole &= other.is_whole;
        other.paths.into_iter().for_each(|path| self.add(path));
    }

    /// Says that more changed than is named.
    pub fn lose_some(&mut self) {
        self.is_whole = false;
    }

    pub fn leave_out(&mut self, is_out: impl Fn(&Path) -> bool) {
        self.paths.retain(|path| !is_out(path));
        self.bytes = self.paths.iter().map(|path| path.as_os_str().len()).sum();
    }

    pub fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.is_whole
    }

    /// Whether everything that changed is named.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub fn paths(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.paths.iter().map(PathBuf::as_path)
    }
}

/// Finds the paths that runs change themselves: those that changed during three runs in a row.
#[derive(Debug, Default)]
pub struct Loops {
    /// For each path that changed during the last run: in how many runs in a row.
    streaks: HashMap<PathBuf, u8>,
    /// Those that changed during the run that is on.
    during: HashSet<PathBuf>,
    /// Found, and passed over while a run is on.
    own: HashSet<PathBuf>,
}

impl Loops {
    /// Takes what changed while a run is on, and leaves in it what counts.
    pub fn during_run(&mut self, changed: &mut Changed) {
        changed.leave_out(|path| self.own.contains(path));
        let room = PATHS_MAX.saturating_sub(self.during.len());
        self.during.extend(changed.paths().take(room).map(Path::to_path_buf));
    }

    /// A run has ended. Returns the paths that are from now on taken for the runs' own.
    pub fn run_ended(&mut self) -> Vec<PathBuf> {
        let during = std::mem::take(&mut self.during);
        let last = std::mem::take(&mut self.streaks);
        let mut found = Vec::new();
        for path in during {
            match last.get(&path).map_or(1, |streak| streak.saturating_add(1)) {
                RUNS_IN_A_ROW.. if self.own.len() < PATHS_MAX => found.push(path),
                streak => {
                    self.streaks.insert(path, streak);
                }
            }
        }
        self.own.extend(found.iter().cloned());
        found.sort();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(paths: &[&str]) -> Changed {
        Changed::of(paths.iter().map(PathBuf::from))
    }

    /// A path is kept once; beyond the limits the list is marked as incomplete.
    #[test]
    fn paths_are_kept_once_and_bounded() {
        let mut all = changed(&["b", "a", "b"]);
        all.merge(changed(&["a", "c"]));
        assert_eq!(all.paths().collect::<Vec<_>>(), ["a", "b", "c"].map(Path::new));
        assert!(all.is_whole());
        for number in 0..2 * PATHS_MAX {
            all.add(format!("path {number}").into());
        }
        assert_eq!((all.paths().len(), all.is_whole()), (PATHS_MAX, false));
        let mut long = Changed::default();
        (0..10).for_each(|n| long.add(n.to_string().repeat(1024 * 1024).into()));
        assert_eq!((long.paths().len(), long.is_whole()), (8, false));
        assert!(Changed::default().is_empty() && !Changed::unknown().is_empty());
    }

    /// Three runs in a row make a path the runs' own; two, a pause and one do not.
    #[test]
    fn what_runs_change_themselves_is_found() {
        let mut loops = Loops::default();
        let mut run = |paths: &[&str]| {
            let mut changed = changed(paths);
            loops.during_run(&mut changed);
            let counted = changed.paths().map(Path::to_path_buf).collect::<Vec<_>>();
            (counted, loops.run_ended())
        };
        let (out, none) = ([PathBuf::from("out")], Vec::<PathBuf>::new());
        assert_eq!(run(&["out", "in"]).1, none);
        assert_eq!(run(&["out"]).1, none);
        assert_eq!(run(&["out", "in"]), (vec!["in".into(), "out".into()], out.to_vec()));
        assert_eq!(run(&["out", "in"]), (vec!["in".into()], vec![]), "it is passed over now");
        assert_eq!(run(&["out"]).1, none);
        assert_eq!(run(&["in"]).1, none, "its row was broken");
    }
}
