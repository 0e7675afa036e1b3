//! The links on the way to watched paths: a release that is switched (`current -> release/2`), Kubernetes' `..data`, a
//! file that is reached through links. Used by [`super::tree_watch`], whose watches and events it shares; it reads
//! links, and nothing else.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;
use shiftboss_actors::fs_events::{EventMask, EventOwned, WatchDescriptor, Watches};
use tracing::warn;

use super::paths::Changed;
use super::watch::{AddWatch, Trees, WatchError, changes};

/// As many as the kernel follows.
const LINKS_MAX: usize = 40;

/// A name in a directory.
type Name = (PathBuf, OsString);

/// What a path means.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Way {
    /// Where each link on the way is, in a directory that is reached through none.
    links: Vec<Name>,
    end: PathBuf,
}

impl Way {
    fn of(path: &Path) -> io::Result<Self> {
        let (mut links, mut end) = (Vec::new(), PathBuf::new());
        let part = |part: Component<'_>| part.as_os_str().to_owned();
        let mut left: VecDeque<OsString> = path.components().map(part).collect();
        while let Some(name) = left.pop_front() {
            let next = end.join(&name);
            match next.read_link() {
                Ok(target) => {
                    let directory =
                        if end.as_os_str().is_empty() { ".".into() } else { end.clone() };
                    links.push((directory, name));
                    if links.len() > LINKS_MAX {
                        return Err(Errno::LOOP.into());
                    }
                    target.components().rev().for_each(|it| left.push_front(part(it)));
                }
                // It is not a link.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => end = next,
                Err(error) => return Err(error),
            }
        }
        Ok(Self { links, end })
    }
}

#[derive(Clone)]
enum Tells {
    Link,
    /// A file that links lead to, as the user named it.
    File(PathBuf),
}

#[derive(Default)]
pub struct Links {
    /// Of the paths that lead through links.
    ways: Vec<(PathBuf, Way)>,
    names: HashMap<WatchDescriptor, Vec<(OsString, Tells)>>,
}

impl Links {
    /// Watches the links on the way to the roots and the files of the trees, and the files that they lead to.
    pub fn open(
        trees: &Trees,
        add: &mut AddWatch,
        watches: &mut Watches,
    ) -> Result<Self, WatchError> {
        let mut links = Self::default();
        for path in trees.roots.iter().chain(&trees.files) {
            let failed = |source| WatchError::Root { path: path.clone(), source };
            let way = Way::of(path).map_err(failed)?;
            if way.links.is_empty() {
                continue;
            }
            let mut names: Vec<(Name, Tells)> =
                way.links.iter().map(|link| (link.clone(), Tells::Link)).collect();
            let end =
                way.end.parent().zip(way.end.file_name()).filter(|_| trees.files.contains(path));
            names.extend(end.map(|(parent, name)| {
                let directory = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
                ((directory.to_owned(), name.to_owned()), Tells::File(path.clone()))
            }));
            for ((directory, name), tells) in names {
                match add(watches, &directory, changes()) {
                    Ok(watch) => links.names.entry(watch).or_default().push((name, tells)),
                    Err(error) if Errno::from_io_error(&error) == Some(Errno::NOSPC) => {
                        return Err(WatchError::NoWatches { watched: links.names.len() });
                    }
                    Err(error) => {
                        let directory = directory.display();
                        warn!(%directory, %error, "A directory cannot be watched: if a link in it is changed, that is not seen.");
                    }
                }
            }
            links.ways.push((path.clone(), way));
        }
        // Finds links that were switched before they were watched.
        links.look_again().map(|()| links)
    }

    /// Whether all paths mean what they meant.
    pub fn look_again(&self) -> Result<(), WatchError> {
        let is_other = |(path, way): &&(PathBuf, Way)| Way::of(path).ok().as_ref() != Some(way);
        let other = self.ways.iter().find(is_other);
        other.map_or(Ok(()), |(path, _)| Err(WatchError::Switched { path: path.clone() }))
    }

    /// Takes an event in: a change of a file, or of what a path means.
    pub fn note(&self, event: &EventOwned, changed: &mut Changed) -> Result<(), WatchError> {
        let Some(names) = self.names.get(&event.wd) else { return Ok(()) };
        let mask = event.mask;
        for (_, tells) in names.iter().filter(|(name, _)| Some(name) == event.name.as_ref()) {
            match tells {
                Tells::File(path) if mask != EventMask::ATTRIB => changed.add(path.clone()),
                Tells::File(_) => {}
                Tells::Link => self.look_again()?,
            }
        }
        if mask.intersects(EventMask::IGNORED | EventMask::MOVE_SELF) {
            self.look_again()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Links are found wherever they are on the way, and followed as the kernel does.
    #[test]
    fn the_way_of_a_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("releases/1/config")).unwrap();
        symlink("releases/1", path("current")).unwrap();
        symlink("../../../current/config", path("releases/1/config/again")).unwrap();
        symlink(path("current"), path("absolute")).unwrap();
        symlink("loop", path("loop")).unwrap();
        let way = |name: &str| Way::of(&path(name)).unwrap();
        assert_eq!(way("releases/1").links, []);
        let link = |name: &str| (directory.path().to_owned(), name.into());
        assert_eq!(way("current/config").links, [link("current")]);
        assert_eq!(way("current/config").end, path("releases/1/config"));
        assert_eq!(way("absolute").links, [link("absolute"), link("current")]);
        let again = way("current/config/again");
        assert_eq!(again.links.len(), 3);
        assert_eq!(again.end.canonicalize().unwrap(), path("releases/1/config"));
        assert!(Way::of(&path("loop")).is_err() && Way::of(&path("nowhere/x")).is_err());
        assert_eq!(Way::of(Path::new(".")).unwrap().end, Path::new("."));
    }
}
