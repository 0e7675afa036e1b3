//! Which names count: globs with the meaning that `.gitignore` gives them (spec 2.6).
//!
//! The watches ask. Paths are relative to the root that is watched; nothing is read but `.gitignore`
//! files, and those only on request.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use thiserror::Error;

/// Left out by default: what Git, Emacs (and similar editors) and Vim keep beside files; the number is the file with
/// which Vim tests a directory. `--ignore '!*.tmp'` takes one of them back.
pub const LEFT_OUT: [&str; 8] =
    [".git", "*.~undo-tree~", "*.tmp", ".#*", "\\#*#", "*~", ".*.sw?", "4913"];
/// A file that says what to leave out of its directory and all below.
const GITIGNORE: &str = ".gitignore";
/// The same for a whole repository, below its root.
const EXCLUDE: &str = ".git/info/exclude";

#[derive(Debug, Error)]
#[error("the glob {glob:?} cannot be used: {source}")]
pub struct GlobError {
    glob: String,
    source: Box<ignore::Error>,
}

#[derive(Debug, Clone)]
pub struct Globs {
    taken: Gitignore,
    left_out: Gitignore,
    /// By the directory they are in, as it begins with its root; `None`: they are not looked at.
    gitignores: Option<HashMap<PathBuf, Gitignore>>,
    /// Those above the root, each with the root's path from there; the nearest first.
    above: Vec<(PathBuf, Gitignore)>,
}

impl Globs {
    /// Takes what matches one of `taken` (all, if there is none) and is not left out by `left_out`;
    /// of several that match the last one counts, and `!` negates it. With `gitignore`, the trees' own `.gitignore`
    /// files count, too, after `left_out`.
    pub fn new(taken: &[String], left_out: &[String], gitignore: bool) -> Result<Self, GlobError> {
        let own = LEFT_OUT.iter().map(|glob| (*glob).to_owned());
        let left_out: Vec<String> = own.chain(left_out.iter().cloned()).collect();
        Ok(Self {
            taken: matcher(taken)?,
            left_out: matcher(&left_out)?,
            gitignores: gitignore.then(HashMap::new),
            above: Vec::new(),
        })
    }

    /// Reads the ignore files of the repository that the one root is in, from its directory up to the
    /// repository's, if they count.
    pub fn enter_repository(&mut self, root: &Path) {
        let root = std::path::absolute(root).unwrap_or_default();
        let is_repository = |directory: &&Path| directory.join(".git").exists();
        let found = root.ancestors().find(is_repository).filter(|_| self.gitignores.is_some());
        let Some(repository) = found else {
            return;
        };
        let above = root.ancestors().skip(1).take_while(|above| above.starts_with(repository));
        let files = above.map(|above| (above, GITIGNORE)).chain([(repository, EXCLUDE)]);
        self.above.extend(files.filter_map(|(directory, file)| {
            let below = root.strip_prefix(directory).ok()?;
            Some((below.to_owned(), ignore_file(&directory.join(file))?))
        }));
    }

    /// Reads the `.gitignore` of a directory of a tree, if there is one and it counts.
    pub fn enter(&mut self, directory: &Path) {
        let Some(known) = &mut self.gitignores else {
            return;
        };
        match ignore_file(&directory.join(GITIGNORE)) {
            Some(own) => known.insert(directory.to_owned(), own),
            None => known.remove(directory),
        };
    }

    /// The contents of a directory of a root's tree that are not left out, by their paths below the root, and whether
    /// each is a directory.
    pub fn list<'a>(
        &'a self,
        root: &'a Path,
        below: &'a Path,
    ) -> io::Result<impl Iterator<Item = (PathBuf, bool)> + use<'a>> {
        let entries = std::fs::read_dir(root.join(below))?.flatten();
        let found = entries.map(|entry| {
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            (below.join(entry.file_name()), is_dir)
        });
        Ok(found.filter(|(path, is_dir)| !self.leaves_out(root, path, *is_dir)))
    }

    /// Whether a change of this file changes what counts.
    pub fn is_changed_by(&self, path: &Path) -> bool {
        self.gitignores.is_some() && path.file_name().is_some_and(|name| name == GITIGNORE)
    }

    /// Whether this is left out, with everything in it. The directories that lead there are not checked.
    pub fn leaves_out(&self, root: &Path, path: &Path, is_dir: bool) -> bool {
        match self.left_out.matched(path, is_dir) {
            Match::Ignore(_) => true,
            Match::Whitelist(_) => false,
            Match::None => self.is_gitignored(root, path, is_dir),
        }
    }

    /// Whether a change of this counts, which is not left out.
    pub fn takes(&self, path: &Path, is_dir: bool) -> bool {
        self.taken.is_empty() || self.taken.matched_path_or_any_parents(path, is_dir).is_ignore()
    }

    /// The `.gitignore` nearest to the file counts first.
    fn is_gitignored(&self, root: &Path, path: &Path, is_dir: bool) -> bool {
        let Some(known) = self.gitignores.as_ref() else {
            return false;
        };
        let mut within = path.ancestors().skip(1).filter_map(|directory| {
            let below = path.strip_prefix(directory).ok()?;
            decided(&known.get(&root.join(directory))?.matched(below, is_dir))
        });
        let above = |(below, own): &(PathBuf, Gitignore)| {
            decided(&own.matched_path_or_any_parents(below.join(path), is_dir))
        };
        within.next().or_else(|| self.above.iter().find_map(above)).unwrap_or(false)
    }
}

fn decided<T>(found: &Match<T>) -> Option<bool> {
    if found.is_none() { None } else { Some(found.is_ignore()) }
}

/// The rules of an ignore file; most directories have none.
fn ignore_file(path: &Path) -> Option<Gitignore> {
    let mut builder = GitignoreBuilder::new("");
    if let Some(error) = builder.add(path).filter(|error| !error.is_io()) {
        tracing::warn!(%error, "A line of an ignore file is passed over.");
    }
    builder.build().ok().filter(|own| !own.is_empty())
}

fn matcher(globs: &[String]) -> Result<Gitignore, GlobError> {
    let mut builder = GitignoreBuilder::new("");
    for glob in globs {
        let wrong = |source| GlobError { glob: glob.clone(), source: Box::new(source) };
        builder.add_line(None, glob).map_err(wrong)?;
    }
    let all = |source| GlobError { glob: globs.join(" "), source: Box::new(source) };
    builder.build().map_err(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(taken: &[&str], left_out: &[&str]) -> Globs {
        let owned = |globs: &[&str]| globs.iter().map(|&glob| glob.to_owned()).collect::<Vec<_>>();
        Globs::new(&owned(taken), &owned(left_out), false).unwrap()
    }

    fn counts(globs: &Globs, path: &str) -> bool {
        let path = Path::new(path);
        !globs.leaves_out(Path::new("r"), path, false) && globs.takes(path, false)
    }

    /// A suffix is a suffix: the reference took `x.org.bak` too.
    #[test]
    fn names_are_taken_by_glob() {
        let org = globs(&["*.org"], &[]);
        for good in ["a.org", "deep/down/b.org", "-x.org", "é.org"] {
            assert!(counts(&org, good), "{good}");
        }
        for bad in ["x.org.bak", "x.org~", "xorg", ".#a.org", "deep/.#b.org", ".x.org.swp"] {
            assert!(!counts(&org, bad), "{bad}");
        }
        let below = globs(&["/notes/", "!*.log"], &[]);
        assert!(counts(&below, "notes/deep/a") && !counts(&below, "other/notes/a"));
        assert!(!counts(&below, "notes/a.log"));
    }

    /// What is left out by default, and how to take it back.
    #[test]
    fn editors_leavings_are_left_out() {
        let all = globs(&[], &["build/", "!*.tmp"]);
        let editors = ["#a.org#", "deep/a~", ".a.org.swp", ".b.swx", "4913", "deep/4913"];
        for bad in [".#lock", "a.~undo-tree~", "deep/.git"].into_iter().chain(editors) {
            assert!(!counts(&all, bad), "{bad}");
        }
        assert!(all.leaves_out(Path::new("r"), Path::new("deep/build"), true));
        assert!(
            counts(&all, "a.tmp") && counts(&all, "build") && !counts(&globs(&[], &[]), "a.tmp")
        );
        for good in ["a.swp", "#a", "49130", "a~b", ".sw"] {
            assert!(counts(&all, good), "{good}");
        }
        let back = globs(&[], &["!*~", "!4913"]);
        assert!(counts(&back, "a~") && counts(&back, "4913") && !counts(&back, "#a#"));
        let wrong = Globs::new(&["[z-a]".to_owned()], &[], false).unwrap_err();
        assert!(wrong.to_string().contains("[z-a]"), "{wrong}");
    }

    /// A tree within a repository also follows that repository's rules; files above that are not read.
    #[test]
    fn a_repositorys_rules_count_within_it() {
        let directory = tempfile::tempdir().unwrap();
        let (repository, tree) = (directory.path().join("r"), directory.path().join("r/a/tree"));
        std::fs::create_dir_all(&tree).unwrap();
        std::fs::create_dir_all(repository.join(".git/info")).unwrap();
        std::fs::write(directory.path().join(".gitignore"), "*.c\n").unwrap();
        std::fs::write(repository.join(".gitignore"), "*.o\n/a/tree/out/\n/b\n").unwrap();
        std::fs::write(repository.join(".git/info/exclude"), "*.mine\n").unwrap();
        std::fs::write(repository.join("a/.gitignore"), "!kept.o\n").unwrap();
        std::fs::write(tree.join(".gitignore"), "own\n").unwrap();
        let mut globs = Globs::new(&[], &[], true).unwrap();
        globs.enter_repository(&tree);
        globs.enter(&tree);
        for (path, is_out) in [
            ("x.o", true),
            ("deep/x.o", true),
            ("kept.o", false),
            ("out/x", true),
            ("b", false),
            ("x.mine", true),
            ("own", true),
            ("x.c", false),
        ] {
            assert_eq!(globs.leaves_out(&tree, Path::new(path), false), is_out, "{path}");
        }
        let mut without = Globs::new(&[], &[], false).unwrap();
        without.enter_repository(&tree);
        assert!(!without.leaves_out(&tree, Path::new("x.o"), false));
    }

    /// `.gitignore` files count on request, the nearest one first.
    #[test]
    fn gitignores_count_on_request() {
        let directory = tempfile::tempdir().unwrap();
        let sub = directory.path().join("sub");
        std::fs::create_dir(&sub).unwrap();
        std::fs::write(directory.path().join(".gitignore"), "*.o\n/only-here\n").unwrap();
        std::fs::write(sub.join(".gitignore"), "!keep.o\n").unwrap();
        let mut globs = Globs::new(&[], &[], true).unwrap();
        globs.enter(directory.path());
        globs.enter(&sub);
        for (path, is_out) in [
            ("a.o", true),
            ("sub/a.o", true),
            ("sub/keep.o", false),
            ("only-here", true),
            ("sub/only-here", false),
        ] {
            assert_eq!(
                globs.leaves_out(directory.path(), Path::new(path), false),
                is_out,
                "{path}"
            );
        }
        assert!(globs.is_changed_by(Path::new("sub/.gitignore")));
        assert!(!globs.leaves_out(Path::new("another root"), Path::new("a.o"), false));
    }
}
